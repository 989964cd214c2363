"""A service over a fleet that stands still, for commands that a person would type."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from brain.db import SqlStores, prepare
from brain.types.job import JobId, JobState
from tests.web import seed
from tests.web.served import Served

#: What a worker said last: lines, a tab, and colours.
LAST_WORDS = "\n".join(
    f'File "train.py", line {line}, in \x1b[31mstep\x1b[0m\tof a traceback' for line in range(50)
)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that reaches a service whose fleet stands still; one job failed at length."""
    home = tmp_path_factory.mktemp("seeded")
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, now)
        with stores.transaction() as tx:
            tall = seed.job(
                JobId("0197f000-0000-7000-8000-00000000000f"),
                "tall-with-a-name-of-many-words",
                now,
                JobState.FAILED,
                reason=LAST_WORDS,
                exit_code=1,
                finished_at=now,
            )
            tx.jobs.add(tall)
    running = Served(home)
    running.start()
    yield {"BRAIN_URL": running.url, "BRAIN_TOKEN": running.admin}
    running.stop()
