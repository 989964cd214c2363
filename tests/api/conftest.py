"""One fresh app per test."""

from pathlib import Path

import pytest

from tests.api.app import Api


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """An app over empty stores."""
    return Api(tmp_path)
