"""What the ledger refuses, a type for each thing that a caller can do about it."""


class LedgerError(ValueError):
    """The ledger refuses something; the message is a sentence that says what and why."""


class NotFound(LedgerError):
    """There is no model, request, version or report of that name or number, or no record of a person."""


class Conflict(LedgerError):
    """What is asked for contradicts what is already there, or its state does not allow it."""


class Forbidden(LedgerError):
    """Somebody may not do this, though somebody else may."""


class NoLedger(LedgerError):
    """There is no ledger at that place; `unbayes init` makes one."""


class Locked(LedgerError):
    """Somebody else is at work there; trying again later may do."""


class BadSignature(LedgerError):
    """A signature or a key is damaged, or the signature is not by that key over these bytes."""


class TamperedLog(LedgerError):
    """The log, or a checkpoint of it, is not what was signed, or has not only grown since."""


class NotInLog(TamperedLog):
    """A proof does not lead from an entry to the root of the log."""


class WrongOpening(LedgerError):
    """A salt and details are not those that a commitment was made of."""


class UnverifiableReport(LedgerError):
    """A report is damaged, was changed, or was signed by another key."""


class KeyProblem(LedgerError):
    """A key is missing, damaged, readable by others, or not the one that sealed something."""


class KeyDestroyed(KeyProblem):
    """The key was destroyed on purpose: what it sealed cannot be read any more."""


class AlteredData(KeyProblem):
    """Something that a key sealed was changed since, or was sealed by another key."""


class DatabaseProblem(LedgerError):
    """The database cannot be reached or read; nothing was written."""
