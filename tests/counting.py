"""Progress that counts."""

import contextlib

from unbayes.progress import AbstractProgress


class Count(AbstractProgress):
    """Counts the records of each pass: [what for, how many there are, how many were done, what was noted]."""

    def __init__(self):
        self.passes = []

    def track(self, description, total):
        self.passes.append([description, total, 0, ""])
        mine = self.passes[-1]

        @contextlib.contextmanager
        def meter():
            def advance(steps, note):
                mine[2] += steps
                mine[3] = note

            yield advance

        return meter()
