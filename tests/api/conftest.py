"""One fresh app per test."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from brain import calls
from brain.db import SqlStores
from brain.types.job import JobId
from tests.api.app import Api, digits, run_for_a_minute


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """An app over empty stores."""
    return Api(tmp_path)


@pytest.fixture
def submitted(tmp_path: Path, database_url: str) -> Iterator[Api]:
    """An app over each database, with a row of each list, such as the job digits."""
    with closing(SqlStores(database_url)) as stores:
        api = Api(tmp_path, stores=stores)
        api.add_node()
        with api.client() as admin:
            admin.send(calls.submit(digits()))
        yield api


@pytest.fixture
def running(api: Api) -> JobId:
    """A job that has been running for a minute, two workers in step."""
    return run_for_a_minute(api)
