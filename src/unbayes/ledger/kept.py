"""The newest checkpoint of the log, kept beside the signing key.

Whoever can write to the database alone can take events off the end of the log, and the checkpoints over them.
That shows by a checkpoint which is somewhere else: this one, or those that the operator has given away.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from unbayes._replace import replacing
from unbayes.data.refusal import reason
from unbayes.ledger import log, schema
from unbayes.ledger.checkpoint import Checkpoint, read_checkpoint
from unbayes.ledger.desk import Desk
from unbayes.ledger.errors import KeyProblem, LedgerError, TamperedLog
from unbayes.ledger.keys import Keys
from unbayes.progress import AbstractProgress

FILE = "checkpoint"


def kept_checkpoint(keys: Keys) -> Checkpoint | None:
    """The checkpoint that is kept beside the key; None before the first."""
    path = keys.folder / FILE
    try:
        return read_checkpoint(path.read_text(encoding="utf-8"), keys.signing.public)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not text"
        raise KeyProblem(f"{path} cannot be read: {why}") from error
    except LedgerError as error:
        raise TamperedLog(f"{path} is not a checkpoint of this ledger: {error}") from error


def keep(keys: Keys, text: str, root_at: Callable[[int], bytes]) -> bool:
    """Keep a newer checkpoint in the place of the one before, which it continues; whether it was kept.

    Nothing is changed where the log that was signed does not continue the one that is kept: that is evidence.

    Parameters
    ----------
    keys
        Beside which it is kept.
    text
        The signed checkpoint.
    root_at
        Root of the log when it had only that many events, up to those of `text`.
    """
    new = read_checkpoint(text, keys.signing.public)
    with keys.changing():
        try:
            old = kept_checkpoint(keys)
        except LedgerError:
            # Whoever verifies the log is told; erasing goes on.
            return False
        if old is not None and not _continues(new, old, root_at):
            return False
        with replacing(keys.folder / FILE) as file:
            file.write(text.encode())
        (keys.folder / FILE).chmod(0o600)
    return True


def require_continued(keys: Keys, size: int, root_at: Callable[[int], bytes]) -> None:
    """Refuse a log that does not continue the checkpoint which is kept."""
    old = kept_checkpoint(keys)
    if old is None:
        return
    if size < old.size or root_at(old.size) != old.root:
        raise TamperedLog(
            f"the log of {size} events does not continue the checkpoint over {old.size} events that is kept "
            "beside the signing key: an older state of the database was brought back, or events were changed"
        )


def verify_log(
    desk: Desk, texts: Sequence[str] = (), progress: AbstractProgress | None = None, copy: Any = None
) -> log.LogState:
    """Read the whole log, and compare it with the checkpoint that is kept and those that are given.

    `copy` is a transaction on another database that holds the same log.
    """
    given = [read_checkpoint(text, desk.keys.signing.public) for text in texts]
    own = kept_checkpoint(desk.keys)
    elsewhere = given if own is None else [own, *given]
    with contextlib.nullcontext(copy) if copy is not None else desk.database.reading() as connection:
        return log.verify_log(connection, desk.keys.signing.public, elsewhere, progress)


def keep_newest(desk: Desk) -> bool:
    """Keep the newest checkpoint of the database, where whoever signed it was killed; whether that was so."""
    try:
        old = kept_checkpoint(desk.keys)
    except LedgerError:
        return False
    with desk.reading() as store:
        newest = sa.select(schema.checkpoint.c.size, schema.checkpoint.c.text)
        row = store.run(newest.order_by(schema.checkpoint.c.size.desc()).limit(1)).first()
        if row is None or (old is not None and row.size <= old.size):
            return False
        tree = log.tree(store.connection)
    return keep(desk.keys, row.text, tree.root_at)


def _continues(new: Checkpoint, old: Checkpoint, root_at: Callable[[int], bytes]) -> bool:
    is_later = new.origin == old.origin and new.size > old.size
    return is_later and root_at(old.size) == old.root
