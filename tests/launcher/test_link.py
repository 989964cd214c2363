"""Words with Brain that a full disk does not end."""

import asyncio
from pathlib import Path

from brain.client import Call
from brain.errors import Unavailable
from brain.types.world import DesiredWorld
from launcher.coordinator.brain import Brain, DesiredByBrain, Reports
from launcher.values.replica import JobPlace
from tests.disks import full_disk
from tests.launcher.elastic import JOB, desired


class Wishing(Brain):
    """A Brain that wishes for more replicas each time it is asked."""

    def __init__(self) -> None:
        super().__init__(lambda: "http://127.0.0.1:1", None)
        self.asked, self.closed = 0, False

    async def send(self, call: Call[DesiredWorld | None]) -> DesiredWorld | None:
        self.asked += 1
        return desired(replicas=self.asked)

    async def close(self) -> None:
        self.closed = True


def test_a_wish_that_a_full_disk_does_not_keep_is_followed_and_so_is_the_next(
    tmp_path: Path,
) -> None:
    heard: list[int] = []

    async def follow() -> None:
        enough = asyncio.Event()

        def tell(said: DesiredWorld) -> None:
            heard.append(said.replicas)
            if len(heard) == 2:
                enough.set()

        wishes = DesiredByBrain(Wishing(), JOB, JobPlace(tmp_path))
        tasks = [asyncio.create_task(wishes.follow(tell)), asyncio.create_task(enough.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        tasks[0].cancel()

    with full_disk():
        asyncio.run(follow())

    assert heard[:2] == [1, 2]


class Away(Wishing):
    """A Brain that does not answer."""

    async def send(self, call: Call[DesiredWorld | None]) -> DesiredWorld | None:
        raise Unavailable("nobody is there")


def test_a_successor_on_another_disk_goes_on_with_the_world_that_it_was_in(tmp_path: Path) -> None:
    heard: list[DesiredWorld] = []
    last = desired(replicas=3)

    async def follow() -> None:
        told = asyncio.Event()

        def tell(said: DesiredWorld) -> None:
            heard.append(said)
            told.set()

        wishes = DesiredByBrain(Away(), JOB, JobPlace(tmp_path), last)
        task = asyncio.create_task(wishes.follow(tell))
        await asyncio.wait_for(told.wait(), 30)
        task.cancel()

    asyncio.run(follow())

    assert heard == [last]


def test_who_coordinates_no_more_leaves_no_connection_open(tmp_path: Path) -> None:
    wishing, reporting = Wishing(), Wishing()

    async def stand_down() -> None:
        heard = asyncio.Event()
        wishes = DesiredByBrain(wishing, JOB, JobPlace(tmp_path))
        reports = Reports(tmp_path / "reports", reporting)
        works = (wishes.follow(lambda said: heard.set()), reports.deliver())
        tasks = [asyncio.create_task(work) for work in works]
        await heard.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(stand_down())

    assert (wishing.closed, reporting.closed) == (True, True)
