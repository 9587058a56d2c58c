"""What all work at a ledger needs: its database, its keys and a clock."""

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator

from unbayes.ledger.clock import Clock
from unbayes.ledger.database import Database
from unbayes.ledger.errors import Conflict
from unbayes.ledger.keys import Keys
from unbayes.ledger.store import Store


@dataclasses.dataclass(frozen=True)
class Desk:
    """A ledger that is open."""

    database: Database
    keys: Keys
    clock: Clock

    @property
    def today(self) -> datetime.date:
        """Today's date, UTC."""
        return self.clock().astimezone(datetime.UTC).date()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Store]:
        """A transaction that sees one state of the ledger."""
        with self.database.reading() as connection:
            yield Store(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Store]:
        """A transaction that takes effect whole at the end of the block, or not at all."""
        with self.database.writing() as connection:
            store = Store(connection, self.clock())
            if store.has_moved():
                raise Conflict("this ledger has moved to another database; open it again, or export it again")
            yield store

    def new_secrets(self, store: Store, purpose: str, number: int) -> list[int]:
        """Places on the sheets of keys, for something new to be sealed.

        Those whose key is destroyed are passed over: a database that was brought back from a backup hands out
        numbers again that it has handed out before.
        """
        found: list[int] = []
        while len(found) < number:
            new = store.new_secrets(purpose, number - len(found))
            found += [each for each in new if not self.keys.is_destroyed(each)]
        return found

    def shred(self) -> int:
        """Destroy the keys that are no longer needed; how many there were.

        A transaction lists them, and from then on nobody needs them; whoever is killed before it comes to
        this leaves the list to the next one.
        """
        with self.reading() as store:
            listed = store.to_shred()
        if listed:
            self.keys.destroy(listed)
            with self.writing() as store:
                store.shredded(listed)
        return len(listed)
