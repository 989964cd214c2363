"""A coordinator serves shards by frames, and the next one knows what it gave out."""

import json
from pathlib import Path
from typing import Any

from launcher import messages
from tests.launcher.elastic import desired
from tests.launcher.test_coordinator import Mute, coordinating, hello, run

#: An agent knows of nothing that was given out.
NOTHING = messages.Shared(version=0, books=b"{}")
#: The answer to who opens a dataset.
BEGUN = {"ok": True, "era": 1}
TERMS = {"name": "train", "size": 4, "shard": 2, "shuffle": False}


def ask(agent: Mute, number: int, holder: str = "w", **body: Any) -> None:
    """A worker of the agent asks."""
    said = json.dumps({"name": "train", **body}).encode()
    agent.connection.send(messages.Asked(holder=holder, number=number, body=said))


def open_(agent: Mute, holder: str = "w") -> None:
    """A worker of the agent begins."""
    ask(agent, 1, holder, do="open", terms=TERMS, state=None, world=1, label="rank 0")


async def answer(agent: Mute) -> Any:
    """The next one."""
    return json.loads((await agent.hear(messages.Answered)).body)


def test_the_next_coordinator_on_the_machine_knows_what_was_given_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(1)) as connect:
            agent = await connect(hello(0))
            agent.connection.send(NOTHING)
            open_(agent)
            ask(agent, 2, do="ask", done=None, wait=False)
            assert [await answer(agent), await answer(agent)] == [BEGUN, {"span": [0, 0, 2]}]
        async with coordinating(tmp_path, desired(1)) as connect:
            agent = await connect(hello(0))
            began = {"terms": TERMS, "state": None, "world": 1, "label": "rank 0"}
            log = {"era": 1, "span": [0, 0, 2], "done": [], "over": False, "gone": False}
            ask(agent, -1, do="resume", **began, **log)
            agent.connection.send(NOTHING)
            ask(agent, 3, do="ask", done=[0, 0, 2], wait=False)
            assert await answer(agent) == {"span": [0, 2, 4]}

    run(story())


def test_agents_are_told_the_books_and_tell_a_coordinator_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path / "here", desired(1)) as connect:
            agent = await connect(hello(0))
            agent.connection.send(NOTHING)
            open_(agent, "gone")
            ask(agent, 2, "gone", do="ask", done=None, wait=False)
            ask(agent, 3, "gone", do="close", at=2)
            assert [await answer(agent) for _ in range(3)][-1] == {"ok": True}
            agent.connection.send(messages.Heartbeat(epoch=0, now_ns=1))
            books = await agent.hear(messages.Shared)
        async with coordinating(tmp_path / "there", desired(1)) as connect:
            agent = await connect(hello(0))
            agent.connection.send(books)
            open_(agent)
            ask(agent, 2, do="ask", done=None, wait=False)
            assert [await answer(agent), await answer(agent)] == [BEGUN, {"span": [0, 2, 4]}]

    run(story())


def test_what_an_agent_that_is_gone_held_is_given_to_another(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            first, second = await connect(hello(0)), await connect(hello(1))
            first.connection.send(NOTHING)
            second.connection.send(NOTHING)
            for agent, holder in ((first, "a"), (second, "b")):
                open_(agent, holder)
                ask(agent, 2, holder, do="ask", done=None, wait=True)
                assert [await answer(agent), "span" in await answer(agent)] == [BEGUN, True]
            ask(second, 3, "b", do="ask", done=[0, 2, 4], wait=True)
            await first.connection.close()
            assert await answer(second) == {"span": [0, 0, 2]}

    run(story())
