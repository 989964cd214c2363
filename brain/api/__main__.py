"""``python -m brain.api`` prints the OpenAPI document to standard output."""

import sys
from datetime import UTC, datetime
from pathlib import Path

from cryptography.fernet import Fernet

from brain.api.app import create_app
from brain.api.openapi import as_text
from brain.api.secrets import Seal
from brain.inmemory import MemoryStores
from brain.settings import Settings

if __name__ == "__main__":
    nothing = create_app(
        MemoryStores(),
        Settings(),
        lambda: datetime.now(UTC),
        home=Path(),
        seal=Seal(Fernet.generate_key()),
    )
    sys.stdout.write(as_text(nothing))
