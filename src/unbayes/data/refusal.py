"""Bad input, in a sentence."""


class Refused(ValueError):
    """A sentence on what is wrong with the input, and what is expected. It never quotes a record."""


def reason(error: OSError) -> str:
    """What the operating system says, in its words."""
    return (error.strerror or str(error)).lower()
