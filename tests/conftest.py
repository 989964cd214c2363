"""Fixtures that several suites share: databases that are there for one test.

Programs under test inherit our environment; what a runner's may hold that changes what they do or
print is left out of it here, before anything is imported that reads it.
"""

import gc
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from brain.db import prepare
from brain.db.tables import metadata
from tests.postgresql import Server, server

_FOREIGN = re.compile(
    "BRAIN_(?!TEST_|BENCH_|CHAOS_).*|PET_.*|TORCH.*|NCCL_.*|GLOO_.*|GROUP_.*|ROLE_.*|MASTER_.*"
    "|(LOCAL_)?(RANK|WORLD_SIZE)|KUBECONFIG|KUBERNETES_.*|COLUMNS|LINES|NO_COLOR|(FORCE|CLI)_?COLOR.*"
    "|PYTHON(UNBUFFERED|HASHSEED|OPTIMIZE|WARNINGS|DEVMODE|ASYNCIODEBUG|TRACEMALLOC|FAULTHANDLER"
    "|VERBOSE|INSPECT|IOENCODING|SAFEPATH|STARTUP|PROFILEIMPORTTIME|DONTWRITEBYTECODE)"
)
# Examples are the same in every run and may take their time: a busy machine, or another seed, makes
# nobody's submission fail. `pytest --hypothesis-profile=search` looks for new ones.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", _PATIENT)
settings.register_profile("steady", _PATIENT, derandomize=True, database=None)
settings.load_profile("steady")

for _name in filter(_FOREIGN.fullmatch, list(os.environ)):
    del os.environ[_name]
# A runner that forbids compiled files has each of a thousand processes compile all of ours anew.
sys.dont_write_bytecode = False
# Threads of torch that spin while they wait for one that has no core make 0.3 s of training 30.
os.environ["OMP_WAIT_POLICY"] = "passive"
# What thousands of tests import and are made of stays: only garbage of tests is looked for.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from here on, beside all that was collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """The session's PostgreSQL server; fails with the command that installs one."""
    with server() as running:
        yield running


@pytest.fixture(scope="session")
def _prepared_postgresql(postgresql: Server) -> Iterator[str]:
    with postgresql.database() as name:
        prepare(postgresql.url(name))
        yield name


@pytest.fixture
def postgresql_url(postgresql: Server, _prepared_postgresql: str) -> str:
    """The URL of an empty PostgreSQL database at the newest schema."""
    postgresql.empty(_prepared_postgresql, metadata.tables)
    return postgresql.url(_prepared_postgresql)


@pytest.fixture(scope="session")
def prepared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file at the newest schema, to be copied."""
    file = tmp_path_factory.mktemp("sqlite") / "brain.db"
    prepare(f"sqlite:///{file}")
    return file


@pytest.fixture
def sqlite_url(prepared_sqlite: Path, tmp_path: Path) -> str:
    """The URL of an empty SQLite file at the newest schema."""
    return f"sqlite:///{shutil.copy(prepared_sqlite, tmp_path / 'brain.db')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
