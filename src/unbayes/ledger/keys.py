"""Keys, in a folder outside the database: destroying one makes what it sealed unreadable, in backups too.

    master.key    seals the sheets; digests of people and records are keyed by a key derived from it
    signing.pem   signs reports and checkpoints; public.pem is for whoever checks them
    checkpoint    the newest one of the log, once there is one
    sheets/       random keys, a thousand a sheet, each for one request or one version of a model

A sheet is made before it is needed, so that a submission waits for the database alone. The database says
which place on which sheet a secret has; a backup of it cannot read what was sealed. Do not back up `sheets`
together with it.
"""

import contextlib
import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from unbayes._replace import replacing
from unbayes.data.refusal import reason
from unbayes.ledger.errors import AlteredData, KeyDestroyed, KeyProblem
from unbayes.ledger.signing import SigningKey

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None

KEY_BYTES, NONCE_BYTES = 32, 12
KEYS_A_SHEET = 1000
DESTROYED = bytes(KEY_BYTES)
MASTER, SIGNING, PUBLIC, SHEETS = "master.key", "signing.pem", "public.pem", "sheets"


class Keys:
    """The keys of one ledger; `create` makes the folder, `open` reads it."""

    def __init__(self, folder: Path, master: bytes, signing: SigningKey):
        self.folder, self.signing = folder, signing
        self._master = AESGCM(master)
        self._naming = HKDF(SHA256(), KEY_BYTES, None, b"unbayes ledger: names").derive(master)
        # Sheets as they were last read, by number, with the nonce that tells whether a file is another one.
        self._sheets: dict[int, tuple[bytes, bytes]] = {}

    @classmethod
    def create(cls, folder: Path) -> "Keys":
        """New keys in a new folder, which none but its owner may read."""
        folder.mkdir(mode=0o700)
        (folder / SHEETS).mkdir(mode=0o700)
        signing, master = SigningKey.generate(), os.urandom(KEY_BYTES)
        _write(folder / SIGNING, signing.to_pem())
        _write(folder / PUBLIC, signing.public.to_pem())
        _write(folder / MASTER, master.hex().encode())
        return cls(folder, master, signing)

    @classmethod
    def open(cls, folder: Path) -> "Keys":
        """The keys in a folder; refuses what is missing, damaged, or readable by others."""
        try:
            master = bytes.fromhex((folder / MASTER).read_text().strip())
            signing = SigningKey.from_pem((folder / SIGNING).read_bytes())
            rights = (folder / MASTER).stat().st_mode | (folder / SIGNING).stat().st_mode
        except (OSError, ValueError) as error:
            raise KeyProblem(f"the keys in {folder} cannot be read: {error}") from error
        if len(master) != KEY_BYTES:
            raise KeyProblem(f"{folder / MASTER} must hold {KEY_BYTES} bytes as hexadecimal digits")
        if os.name == "posix" and rights & 0o077:
            raise KeyProblem(
                f"{MASTER} and {SIGNING} in {folder} must be readable by their owner only; chmod 600"
            )
        return cls(folder, master, signing)

    def digest(self, kind: str, name: str) -> str:
        """A keyed digest by which a person or a record is known again, and cannot be read."""
        return hmac.new(self._naming, f"{kind}\0{name}".encode(), hashlib.sha256).hexdigest()

    def seal(self, secret: int, data: bytes, label: str) -> bytes:
        """Encrypt and authenticate under a secret's key; the label must be the same to read it again."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(self._key(secret)).encrypt(nonce, data, label.encode())

    def unseal(self, secret: int, sealed: bytes, label: str) -> bytes:
        """What was sealed; `KeyDestroyed` where its key is gone."""
        nonce, rest = bytes(sealed[:NONCE_BYTES]), bytes(sealed[NONCE_BYTES:])
        try:
            if len(nonce) < NONCE_BYTES:
                raise InvalidTag
            return AESGCM(self._key(secret)).decrypt(nonce, rest, label.encode())
        except InvalidTag:
            raise AlteredData(f"{label} cannot be read: it was altered, or sealed by another key") from None

    def is_destroyed(self, secret: int) -> bool:
        """Whether nothing sealed under this secret can be read any more."""
        number, place = divmod(secret, KEYS_A_SHEET)
        return _entry(self._sheet(number), place) == DESTROYED

    def destroy(self, secrets: Iterable[int]) -> None:
        """Make everything sealed under these secrets unreadable; those that are destroyed already may be."""
        by_sheet: dict[int, list[int]] = {}
        for secret in secrets:
            number, place = divmod(secret, KEYS_A_SHEET)
            by_sheet.setdefault(number, []).append(place)
        for number, places in by_sheet.items():
            with self.changing():
                before = self._read_sheet(number) or _new_keys()
                keys = bytearray(before)
                for place in places:
                    keys[place * KEY_BYTES : (place + 1) * KEY_BYTES] = DESTROYED
                if keys != before:
                    self._write_sheet(number, bytes(keys))
                _sync_folder(self.folder / SHEETS)

    def _key(self, secret: int) -> bytes:
        number, place = divmod(secret, KEYS_A_SHEET)
        if (key := _entry(self._sheet(number), place)) == DESTROYED:
            raise KeyDestroyed(f"secret {secret} was destroyed, and with it what it sealed")
        return key

    def _sheet(self, number: int) -> bytes:
        """The keys of a sheet, which is made where there is none; of several writers the first one wins."""
        if (keys := self._read_sheet(number)) is not None:
            return keys
        with self.changing():
            if (keys := self._read_sheet(number)) is None:
                keys = _new_keys()
                self._write_sheet(number, keys)
                _sync_folder(self.folder / SHEETS)
        return keys

    def _read_sheet(self, number: int) -> bytes | None:
        path = self._path(number)
        try:
            with path.open("rb") as file:
                nonce = file.read(NONCE_BYTES)
                if (known := self._sheets.get(number)) is not None and known[0] == nonce:
                    return known[1]
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeyProblem(f"{path} cannot be read: {reason(error)}") from error
        try:
            keys = self._master.decrypt(nonce, data, path.name.encode())
        except (InvalidTag, ValueError):
            raise KeyProblem(f"{path} was altered, or belongs to another master key") from None
        self._sheets[number] = (nonce, keys)
        return keys

    def _write_sheet(self, number: int, keys: bytes) -> None:
        """Put a sheet in the place of the old one; what a killed writer has left there goes, too."""
        path, nonce = self._path(number), os.urandom(NONCE_BYTES)
        with replacing(path) as file:
            file.write(nonce + self._master.encrypt(nonce, keys, path.name.encode()))
        path.chmod(0o600)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """One process at a time changes what is in the folder; what the system refuses becomes a sentence."""
        try:
            with _locked(self.folder / SHEETS / ".lock"):
                yield
        except OSError as error:
            raise KeyProblem(f"the keys in {self.folder} cannot be changed: {reason(error)}") from error

    def _path(self, number: int) -> Path:
        return self.folder / SHEETS / f"{number:08d}.keys"


def _new_keys() -> bytes:
    return os.urandom(KEYS_A_SHEET * KEY_BYTES)


def _entry(keys: bytes, place: int) -> bytes:
    return keys[place * KEY_BYTES : (place + 1) * KEY_BYTES]


def _write(path: Path, data: bytes) -> None:
    """A new file that none but its owner may read, safely on disk."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; whoever is killed lets go."""
    with path.open("a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
