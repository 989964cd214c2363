"""Encrypts values with the installation's key."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from brain.errors import BrainError


class Seal:
    """Encrypts and decrypts values with the installation's key (Fernet: AES-128-CBC with
    HMAC-SHA-256).
    """

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    @classmethod
    def of(cls, path: Path) -> "Seal":
        """Return a seal with the key in the file ``path``; create a missing file (mode 0600)."""
        if not path.exists():
            write_private(path, Fernet.generate_key().decode())
        return cls(path.read_bytes().strip())

    def close(self, values: Mapping[str, object]) -> bytes:
        return self._fernet.encrypt(msgspec.json.encode(values))

    def open(self, sealed: bytes) -> dict[str, object]:
        """Return the decrypted value.

        Raises:
            BrainError: the value was encrypted with another key.
        """
        try:
            return msgspec.json.decode(self._fernet.decrypt(sealed), type=dict[str, object])
        except InvalidToken as wrong:
            raise BrainError(
                "stored values were encrypted with another key; restore the earlier file `key` "
                "to the state directory"
            ) from wrong


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically: with all of ``text`` or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
