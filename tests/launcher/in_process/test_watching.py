"""What is known of a world that was formed in process: when it is complete, how it failed."""

import base64
from pathlib import Path
from typing import Any, cast

from brain.types.world import WorldReport
from launcher import messages
from launcher.agent.worker_group.in_process import InProcessChanges
from launcher.coordinator.brain import Reports
from launcher.coordinator.world.journal import Journal
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.values.replica import JobPlace
from tests.launcher.building import a_world
from tests.launcher.test_coordinator import an_exit


def grown() -> WorldMonitor:
    """A world of replicas 10, 11 and 12, of which 12 has still to receive the state."""
    before, watch = (
        WorldMonitor(a_world(*[1] * size), goal=size, since=0.0, declared=False, blind=False)
        for size in (2, 3)
    )
    watch.follow(before)
    return watch


def test_a_training_that_is_over_before_newcomers_have_its_state_is_complete() -> None:
    watch = grown()
    watch.exited(10, an_exit(0, 0))
    assert not watch.finished
    watch.exited(11, an_exit(0, 1))
    assert watch.finished


def test_newcomers_that_have_the_state_have_to_end_well_too() -> None:
    watch = grown()
    for replica in (10, 11, 12):
        watch.started(replica)
    for rank, replica in enumerate((10, 11)):
        watch.exited(replica, an_exit(0, rank))
    assert not watch.finished
    watch.exited(12, an_exit(0, 2))
    assert watch.finished


def test_a_worker_that_said_that_it_fails_has_failed_with_the_code_that_comes_later() -> None:
    watch = grown()
    watch.fails(11)
    assert watch.seen().failed == 1
    watch.exited(11, an_exit(3, 1))
    assert watch.seen().failed == 3


def test_another_coordinator_is_told_what_members_that_meet_may_wait_for() -> None:
    told: list[messages.Message] = []
    in_process_changes = InProcessChanges("h", lambda: 0, told.append)
    for epoch in (4, 5):
        said = {"epoch": epoch, "key": "ends/0", "value": base64.b64encode(b"h 1").decode()}
        in_process_changes.heard(cast(Any, None), "post", said)
    told.clear()
    in_process_changes.over(5)
    in_process_changes.tell_again()
    assert told == [messages.Post(epoch=5, key="ends/0", value=b"h 1")]


def test_a_worker_hears_what_members_tell_while_others_beside_it_are_being_started() -> None:
    told: list[tuple[int, str]] = []

    class Sessions:
        def tell_one(self, local_rank: int, what: str, **fields: object) -> None:
            told.append((local_rank, what))

        def tell(self, what: str, **fields: object) -> None:
            self.tell_one(0, what)

    class Workers:
        world, joining, elastic, sessions = a_world(2, 2), True, False, Sessions()

    in_process_changes = InProcessChanges("h", lambda: 10, lambda message: None)
    in_process_changes.heard(cast(Any, Workers), "hello", {"local_rank": 0})
    post = messages.Post(epoch=Workers.world.epoch, key="ends/2", value=b"h 1")
    in_process_changes.asked(post, workers=None, newcomers=None)
    assert told == [(0, "build"), (0, "posted")]


def test_brain_is_told_whether_workers_can_go_over(tmp_path: Path) -> None:
    told: list[WorldReport] = []

    class Told(Reports):
        def put(self, report: WorldReport) -> Path | None:
            told.append(report)
            return None

    journal = Journal("job", JobPlace(tmp_path), Told(tmp_path / "reports", None), print)
    watch = grown()
    journal.tell_stepping(watch)
    watch.elastic.remove(12)
    journal.tell_stepping(watch)
    assert [report.elastic for report in told] == [True, False]
