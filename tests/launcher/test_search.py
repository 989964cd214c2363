"""How an agent finds who coordinates, where that is not who it knew."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

from brain.types.resources import NodeName
from brain.types.world import Cause
from launcher import messages
from launcher.agent.search import Answer, Found, Search
from launcher.coordinator.leadership import EndpointLeadership, LocalLeadership
from launcher.messages import Connection
from launcher.values.config import WorldDocument
from launcher.values.replica import JobPlace
from tests.disks import full_disk
from tests.launcher.observations import members

US = "127.0.0.1:9"
#: A world that we coordinated, and of which nobody else is left.
LAST = WorldDocument(
    job="j",
    epoch=1,
    generation=0,
    cause=Cause.START,
    members=members([9]),
    master_addr="127.0.0.1",
    master_port=1,
    run_id="j",
    coordinator=US,
)


def hello(replica: int) -> messages.Hello:
    """An agent that says hello under a number."""
    return messages.Hello(
        job="j",
        token_sha256="",
        replica=replica,
        node=NodeName("n0"),
        address=US,
        processes=1,
        generation=0,
        last_epoch=1,
        port=1,
    )


class Full:
    """A coordinator in whose world another agent has our number."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        said = await connection.receive(messages.Message)
        assert isinstance(said, messages.Hello)
        self.heard.append(said.replica)
        if said.replica < 0:
            connection.send(messages.Welcome(replica=99, epoch=1))
        else:
            connection.send(messages.Refused(reason="replica: 83 is here already", final=False))
        await connection.close()


async def _looked(full: Full) -> Answer:
    server = await asyncio.start_server(full.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    search = Search(
        EndpointLeadership(f"{host}:{port}", US, bound=False),
        US,
        lease_seconds=3.0,
        hello=lambda: hello(-1 if search.taken else 83),
        last=lambda: LAST,
        say=lambda _: None,
    )
    search.stood_down()
    async with server:
        answer = await search.look(own=False)
        if isinstance(answer, Found):
            await answer.connection.close()
        return answer


def test_who_has_lost_its_number_is_let_in_under_another_at_once() -> None:
    full = Full()

    found = asyncio.run(_looked(full))

    assert isinstance(found, Found)
    assert full.heard == [83, -1]


class Hung:
    """The coordinator's host, stopped: its kernel takes connections in, and nobody answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        try:
            await reader.read()
        finally:
            writer.close()


async def _named(follows: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A member that has not yet found out that whom it follows is silent."""
    connection = Connection(reader, writer)
    await connection.receive(messages.Message)
    connection.send(messages.Elsewhere(coordinator=follows, epoch=1))
    await connection.close()


async def _turned_away(hung: Hung) -> Answer:
    silent = await asyncio.start_server(hung.answer, "127.0.0.1", 0)
    endpoint = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    member = await asyncio.start_server(partial(_named, endpoint), "127.0.0.1", 0)
    theirs = f"127.0.0.1:{member.sockets[0].getsockname()[1]}"
    first, ours, last = members([0, 1, 2])
    there = (replace(first, address=endpoint), replace(ours, address=US))
    world = replace(LAST, coordinator=endpoint, members=(*there, replace(last, address=theirs)))
    search = Search(
        EndpointLeadership(endpoint, US, bound=False),
        US,
        lease_seconds=3.0,
        hello=lambda: hello(1),
        last=lambda: world,
        say=lambda _: None,
    )
    search.following = endpoint
    search.turned_away(0.0)
    async with silent, member:
        return await search.look(own=False)


def test_who_is_silent_is_asked_once_more_though_others_still_follow_it() -> None:
    hung = Hung()

    assert asyncio.run(_turned_away(hung)) is False
    assert hung.asked == 1


def test_who_cannot_take_the_seat_because_the_disk_is_full_looks_again(tmp_path: Path) -> None:
    said: list[str] = []
    search = Search(
        LocalLeadership(JobPlace(tmp_path)),
        US,
        lease_seconds=3.0,
        hello=lambda: hello(0),
        last=lambda: None,
        say=said.append,
    )
    with full_disk():
        assert (search.claim(), search.claim(), len(said)) == (False, False, 1)

    assert search.claim()
