"""Every adapter of ``brain.ports.Stores``, one after another."""

from collections.abc import Iterator

import pytest

from brain.db import SqlStores
from brain.inmemory import MemoryStores
from brain.ports import Stores


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    """Empty stores."""
    made: Stores = (
        MemoryStores()
        if request.param == "memory"
        else SqlStores(request.getfixturevalue(f"{request.param}_url"))
    )
    yield made
    made.close()
