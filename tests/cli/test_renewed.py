"""A proposal that was renewed is approved by who has seen its present numbers."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from brain.db import SqlStores, prepare
from tests.cli.terminal import typed
from tests.web import seed
from tests.web.served import Served


@pytest.fixture
def renewed(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A service whose job digits has a proposal, version 2: its numbers moved since it was made."""
    url = f"sqlite:///{tmp_path / 'brain.db'}"
    prepare(url)
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, now)
        with stores.transaction() as tx:
            (plan, *_) = tx.plans.of(tx.jobs.get("digits").id)
            moved = replace(plan, updated_at=plan.created_at + timedelta(minutes=4))
            tx.plans.put(moved)
    running = Served(tmp_path)
    running.start()
    yield {"BRAIN_URL": running.url, "BRAIN_TOKEN": running.admin}
    running.stop()


def test_it_is_approved_by_the_version_that_was_shown(renewed: dict[str, str]) -> None:
    named = next(
        word for word in typed("plans", environment=renewed).stdout.split() if "digits/4" in word
    )
    bare = typed("approve", "digits/4", environment=renewed)
    other = typed("approve", "digits/4@1", environment=renewed)
    taken = typed("approve", named, environment=renewed)
    assert named == "digits/4@2"
    assert (bare.returncode, other.returncode, taken.returncode) == (2, 2, 0)
    assert "Brain renewed plan digits/4 at" in bare.stderr
    assert bare.stderr.endswith("if you still want this plan, approve digits/4@2\n")
    assert other.stderr.startswith(
        "brain: digits/4@1 has changed since you saw it. Brain renewed plan digits/4"
    )
