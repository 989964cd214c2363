"""A second signal ends an agent immediately, whatever the agent waits for."""

import asyncio
import signal

from launcher.agent.departure import Departure
from launcher.coordinator.continuity import Continuity


def test_a_second_signal_ends_the_wait_for_storage() -> None:
    done: list[str] = []

    async def story() -> None:
        departure = Departure(Continuity(None, pause_seconds=3.0, say=print), print)

        async def drain() -> None:
            done.append("begun")
            departure.ask(signal.SIGTERM)
            departure.ask(signal.SIGTERM)
            await asyncio.Event().wait()  # storage hangs

        async with asyncio.timeout(60):
            await departure.until_hurried(drain)
            await departure.until_hurried(drain)  # it hurries already

    asyncio.run(story())
    assert done == ["begun"]


def test_an_agent_that_was_asked_once_waits_for_storage() -> None:
    done: list[str] = []

    async def story() -> None:
        departure = Departure(Continuity(None, pause_seconds=3.0, say=print), print)
        departure.ask(signal.SIGTERM)

        async def drain() -> None:
            await asyncio.sleep(0)
            done.append("stored")

        await departure.until_hurried(drain)

    asyncio.run(story())
    assert done == ["stored"]
