"""One fresh app per test."""

from pathlib import Path

import pytest

from brain.types.job import JobId
from tests.api.app import Api, run_for_a_minute


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """An app over empty stores."""
    return Api(tmp_path)


@pytest.fixture
def running(api: Api) -> JobId:
    """A job that has been running for a minute, two workers in step."""
    return run_for_a_minute(api)
