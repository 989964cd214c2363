"""What a coordinator says to agents that are not real: frames in, frames out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from brain.types.world import Cause, DesiredWorld, ReplicaExit
from launcher import messages
from launcher.coordinator.brain import FixedDesiredWorld, Reports
from launcher.coordinator.coordinator import Coordinator
from launcher.coordinator.leadership import SoleLeadership
from launcher.coordinator.world.ledger import WorldLedger
from launcher.coordinator.world.terms import CoordinatorTerms
from launcher.messages import Connection, digest
from launcher.values.config import WorldDocument
from launcher.values.diagnosis.signs import Signs
from launcher.values.observation import WorldRules
from launcher.values.replica import JobPlace, read
from launcher.values.workers import ProbeEvent, Progress, WorkerExit
from tests.launcher.elastic import JOB, desired
from tests.launcher.observations import ORDINARY

T = TypeVar("T", bound=messages.Message)
SECRET = "brn_secret"


class Mute:
    """An agent that only says what a test says."""

    def __init__(self, connection: Connection, replica: int) -> None:
        self.connection, self.replica = connection, replica

    async def hear(self, kind: type[T]) -> T:
        """The next frame of ``kind``; others are passed over."""
        while True:
            message = await asyncio.wait_for(self.connection.receive(messages.Message), 30)
            assert message is not None, f"the connection ended before a {kind.__name__}"
            if isinstance(message, kind):
                return message

    def says(self, event: str, epoch: int = 1, **fields: Any) -> None:
        """A probe of its rank announced something."""
        said = ProbeEvent(rank=self.replica, local_rank=0, epoch=epoch, event=event, **fields)
        self.connection.send(messages.Said(event=said))

    def stopped(self, epoch: int) -> None:
        """Its workers have ended."""
        self.connection.send(messages.Stopped(epoch=epoch, now_ns=1, progress=(), port=1))

    async def steps(self) -> WorldDocument:
        """Be started in a world, and make the first step."""
        world = (await self.hear(messages.Run)).world
        self.connection.send(messages.Started(epoch=world.epoch))
        self.says("stepping", world.epoch)
        return world


def hello(replica: int, **fields: Any) -> messages.Hello:
    """The first words of an agent of the job."""
    made = {
        "job": JOB,
        "token_sha256": digest(SECRET),
        "node": "n0",
        "address": f"127.0.0.1:{replica + 1}",
        "processes": 1,
        "generation": 0,
        "last_epoch": 0,
        "port": 29500 + replica,
    }
    return messages.Hello(replica=replica, **(made | fields))


@asynccontextmanager
async def coordinating(
    place: Path, wanted: DesiredWorld, *, rules: WorldRules = ORDINARY, program: str = ""
) -> AsyncIterator[Callable[[messages.Hello], Awaitable[Mute]]]:
    """A coordinator that listens; yields how to connect to it."""
    place.mkdir(exist_ok=True)
    coordinator = Coordinator(
        CoordinatorTerms(
            job=JOB,
            run_id=JOB,
            token_sha256=digest(SECRET),
            address="127.0.0.1:0",
            node="n0",
            lease_seconds=60.0,  # nobody who says nothing is lost, however busy the machine
            rules=rules,
            program=program,
        ),
        place=JobPlace(place),
        leadership=SoleLeadership(),
        desired_worlds=FixedDesiredWorld(wanted),
        reports=Reports(place / "reports", None),
        say=lambda text: None,
    )

    accepted: list[asyncio.Task[None]] = []

    async def serve(connection: Connection) -> None:
        first = await connection.receive(messages.Hello)
        if first is not None:
            await coordinator.accept(first, connection)
        await connection.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(asyncio.create_task(serve(Connection(reader, writer))))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    running = asyncio.create_task(coordinator.run())
    mutes: list[Mute] = []

    async def connect(said: messages.Hello) -> Mute:
        connection = await Connection.to(address)
        connection.send(said)
        mutes.append(Mute(connection, said.replica))
        return mutes[-1]

    try:
        yield connect
    finally:
        running.cancel()
        await asyncio.wait([running])
        for mute in mutes:
            await mute.connection.close()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*accepted)  # a connection that nobody closed fails a later test


def an_exit(code: int, rank: int = 0) -> WorkerExit:
    """A worker's end that nobody asked for."""
    at = datetime.now(UTC)
    return WorkerExit(
        rank=rank,
        local_rank=0,
        pid=1,
        code=code,
        at_ns=1,
        stopped=False,
        failed_at=at,
        message="",
    )


def run(test: Awaitable[None]) -> None:
    """Run one test on a loop of its own."""

    async def limited() -> None:
        await asyncio.wait_for(test, 90)

    asyncio.run(limited())


def test_a_world_forms_when_all_have_said_hello(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            first, second = await connect(hello(0)), await connect(hello(1))
            world = (await first.hear(messages.Run)).world

            assert (await second.hear(messages.Run)).world == world
            assert [member.replica for member in world.members] == [0, 1]
            assert (world.epoch, world.cause, world.master_port) == (1, Cause.START, 29500)
            assert read(tmp_path / "world.json", WorldDocument) == world

    run(story())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"token_sha256": digest("guessed")}, "token: this is not the token of the job"),
        ({"job": "another"}, "job: the endpoint serves job"),
        ({"v": 99}, "v: the agent speaks version 99 and the coordinator version 1"),
    ],
)
def test_strangers_are_refused_with_the_reason(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(1)) as connect:
            stranger = await connect(hello(0, **fields))
            refused = await stranger.hear(messages.Refused)

            assert reason in refused.reason
            assert refused.final

    run(story())


def test_one_identity_has_one_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            await (await connect(hello(0))).hear(messages.Welcome)
            refused = await (await connect(hello(0))).hear(messages.Refused)

            assert not refused.final

    run(story())


def test_an_agent_without_an_id_is_given_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            welcomes = [await (await connect(hello(-1))).hear(messages.Welcome) for _ in range(2)]

            assert [welcome.replica for welcome in welcomes] == [0, 1]

    run(story())


def test_what_is_no_frame_ends_the_connection_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            first = await connect(hello(0))
            await first.hear(messages.Welcome)
            first.connection.send(_Unknown())

            assert await asyncio.wait_for(first.connection.receive(messages.Message), 30) is None
            await (await connect(hello(0))).hear(messages.Welcome)

    run(story())


def test_an_agent_whose_node_is_sick_is_let_go_with_the_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(3, minimum=1)) as connect:
            agents = [await connect(hello(each, node=f"n{each}")) for each in range(3)]
            for agent in agents:
                world = await agent.steps()
            signs = Signs(xids=("79 0000:3b:00",))
            failed = replace(an_exit(1, rank=2), signs=signs)
            agents[2].connection.send(messages.Exited(epoch=world.epoch, exit=failed))
            for agent in agents:
                await agent.hear(messages.Halt)
                agent.stopped(world.epoch)
            for agent in agents[:2]:
                await agent.steps()
            bye = await agents[2].hear(messages.Bye)

            assert bye.exit is ReplicaExit.LEFT
            assert bye.unfit == bye.detail
            assert bye.unfit.startswith(
                "the job leaves n2, because an accelerator of the node failed"
            )

    run(story())


def test_epochs_go_on_from_the_highest_that_an_agent_heard_of(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(1)) as connect:
            agent = await connect(hello(0, last_epoch=7))

            assert (await agent.hear(messages.Run)).world.epoch == 8

    run(story())


def test_a_heartbeat_is_answered_with_a_lease(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(1)) as connect:
            agent = await connect(hello(0))
            world = (await agent.hear(messages.Run)).world
            agent.connection.send(messages.Heartbeat(epoch=world.epoch, now_ns=77))
            lease = await agent.hear(messages.Lease)

            assert lease.sent_ns == 77
            assert 0 < lease.seconds <= world.lease_seconds

    run(story())


def test_a_lease_counts_from_what_this_very_heartbeat_brought(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            agents = [await connect(hello(0)), await connect(hello(1))]
            world = (await agents[0].hear(messages.Run)).world

            async def beat(agent: Mute, heard: float) -> messages.Lease:
                beat = messages.Heartbeat(epoch=world.epoch, now_ns=1, heard=heard)
                agent.connection.send(beat)
                return await agent.hear(messages.Lease)

            first, second = [await beat(agent, 0.0) for agent in agents]
            await beat(agents[0], first.at)
            lease = await beat(agents[1], second.at)

            counted_from = lease.at + lease.seconds - world.lease_seconds
            assert counted_from == pytest.approx(first.at, rel=0, abs=1e-6)

    run(story())


def test_a_replacement_waits_for_the_safe_point_and_the_checkpoint_is_pinned(
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_text("step 10")

    async def story() -> None:
        async with coordinating(tmp_path / "job", desired(2, patience_seconds=0)) as connect:
            first = await connect(hello(0))
            await first.steps()
            first.says("saved", path=str(checkpoint), step=10, replaced=True)
            await connect(hello(1))
            park = await first.hear(messages.Parked)
            first.says("parked", path=str(checkpoint), step=10)
            await first.hear(messages.Halt)

            assert park.mode == 1
            assert (tmp_path / f".brain-pin-{JOB}-model.pt.pin").samefile(checkpoint)

            first.stopped(1)
            grown = (await first.hear(messages.Run)).world
            assert [member.replica for member in grown.members] == [0, 1]

    run(story())


def test_a_world_that_loaded_a_checkpoint_waits_for_its_first_save(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2, patience_seconds=0)) as connect:
            first = await connect(hello(0))
            world = (await first.hear(messages.Run)).world
            first.connection.send(messages.Started(epoch=world.epoch))
            first.says("loaded", path=str(tmp_path / "model.pt"), inode=1)
            first.says("stepping")
            await connect(hello(1))

            assert (await first.hear(messages.Parked)).mode == 1

    run(story())


def test_a_successor_adopts_a_world_that_still_runs(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            await (await connect(hello(0))).hear(messages.Welcome)
            await (await connect(hello(1))).hear(messages.Run)
        async with coordinating(tmp_path, desired(2)) as connect:
            both = [await connect(hello(replica, epoch=1, last_epoch=1)) for replica in (0, 1)]
            for agent in both:
                await agent.hear(messages.Welcome)
                agent.connection.send(messages.Heartbeat(epoch=1, now_ns=5))

            # A lease and no order to stop: the world goes on as it is.
            said = await asyncio.wait_for(both[0].connection.receive(messages.Message), 30)
            assert isinstance(said, messages.Lease)

    run(story())


def test_a_member_that_had_turned_away_and_is_back_is_no_hindrance_to_a_change(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        wanted = desired(4, minimum=3, patience_seconds=0.3)
        async with coordinating(tmp_path, wanted, rules=WorldRules()) as connect:
            members = [await connect(hello(replica)) for replica in range(3)]
            for member in members:
                epoch = (await member.hear(messages.Run)).world.epoch
                member.connection.send(messages.Started(epoch=epoch))
                member.connection.send(messages.Elastic(epoch=epoch))
            members[0].says("stepping", epoch)
            members[2].connection.send(messages.Turned())
            members[2].connection.shut()
            back = hello(2, epoch=epoch, world_epoch=epoch, last_epoch=epoch, elastic=True)
            while isinstance(
                await (await connect(back)).connection.receive(messages.Message), messages.Refused
            ):
                await asyncio.sleep(0.01)  # its first connection has not ended there yet

            newcomer = await connect(hello(3))
            assert (await newcomer.hear(messages.Prepare)).in_process

    run(story())


def test_workers_of_a_world_that_is_no_more_are_stopped(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2)) as connect:
            stale = await connect(hello(0, epoch=5, last_epoch=5))

            assert (await stale.hear(messages.Halt)).epoch == 5

    run(story())


async def _grows(
    connect: Callable[[messages.Hello], Awaitable[Mute]], tmp_path: Path
) -> list[Mute]:
    """A world of one that has saved, and a second agent."""
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_text("step 10")
    first = await connect(hello(0))
    await first.steps()
    first.says("saved", path=str(checkpoint), step=10, replaced=True)
    return [first, await connect(hello(1))]


def test_a_prepared_world_is_run_with_the_very_document(tmp_path: Path) -> None:
    async def story() -> None:
        wanted = desired(2, patience_seconds=0)
        async with coordinating(tmp_path / "job", wanted, rules=WorldRules()) as connect:
            agents = await _grows(connect, tmp_path)
            prepared = [(await agent.hear(messages.Prepare)).world for agent in agents]
            for agent in agents:
                agent.connection.send(messages.Prepared(epoch=2, ok=True))
            await agents[0].hear(messages.Parked)
            agents[0].says("parked", path=str(tmp_path / "model.pt"), step=10)
            await agents[0].hear(messages.Halt)
            agents[0].stopped(1)

            run = [(await agent.hear(messages.Run)).world for agent in agents]
            assert run == prepared
            assert (run[0].epoch, len(run[0].members)) == (2, 2)

    run(story())


def test_what_cannot_be_prepared_is_ended_and_formed_as_ever_with_a_higher_epoch(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        wanted = desired(2, patience_seconds=0)
        async with coordinating(tmp_path / "job", wanted, rules=WorldRules()) as connect:
            first, second = await _grows(connect, tmp_path)
            await second.hear(messages.Prepare)
            second.connection.send(messages.Prepared(epoch=2, ok=False, reason="no gate"))
            discarded = await first.hear(messages.Discard)
            await first.hear(messages.Parked)
            first.says("parked", path=str(tmp_path / "model.pt"), step=10)
            await first.hear(messages.Halt)
            first.stopped(1)

            assert discarded.epoch == 2
            assert (await second.hear(messages.Run)).world.epoch == 3

    run(story())


def test_an_agent_that_is_not_ready_is_known_but_not_used(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(1)) as connect:
            cold = await connect(hello(0, ready=False))
            await cold.hear(messages.Welcome)
            warm = await connect(hello(1))

            assert [m.replica for m in (await warm.hear(messages.Run)).world.members] == [1]

    run(story())


def test_a_world_that_the_coordinator_before_formed_unheard_is_learnt_of(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path / "one", desired(2)) as connect:
            first, second = await connect(hello(0)), await connect(hello(1))
            world = (await first.hear(messages.Run)).world
        async with coordinating(tmp_path / "other", desired(2)) as connect:
            knows = {"world_epoch": 1, "last_epoch": 1, "epoch": 1}
            first = await connect(hello(0, **knows))
            await first.hear(messages.Welcome)
            first.connection.send(messages.Known(world=world))
            first.connection.send(messages.Heartbeat(epoch=1, now_ns=5))
            await first.hear(messages.Lease)  # it has heard of the world, too
            second = await connect(hello(1, **knows))
            await second.hear(messages.Welcome)
            second.connection.send(messages.Heartbeat(epoch=1, now_ns=5))

            # A lease and no order to stop: the world goes on as it is.
            assert (await second.hear(messages.Lease)).seconds > 0
            assert read(tmp_path / "other" / "world.json", WorldDocument) == world

    run(story())


def test_two_jobs_that_meet_at_one_endpoint_are_told_apart_by_what_they_run(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(2), program="train.py") as connect:
            await (await connect(hello(0, program="train.py"))).hear(messages.Welcome)
            refused = await (await connect(hello(1, program="other.py"))).hear(messages.Refused)

            assert refused.final
            assert "--rdzv-id" in refused.reason

    run(story())


def test_a_port_that_another_program_took_is_replaced_and_no_failure(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(1, restart_limit=0)) as connect:
            agent = await connect(hello(0))
            await agent.hear(messages.Run)
            exited = messages.Exited(epoch=1, exit=an_exit(1), port_taken=True)
            agent.connection.send(exited)
            await agent.hear(messages.Halt)
            agent.stopped(1)
            world = (await agent.hear(messages.Run)).world

            assert (world.cause, world.restart_count, world.master_port) == (Cause.MEMBERSHIP, 0, 1)

    run(story())


def test_heartbeats_write_only_the_newest_of_very_many_checkpoints(tmp_path: Path) -> None:
    async def story() -> None:
        async with coordinating(tmp_path, desired(1)) as connect:
            agent = await connect(hello(0))
            await agent.steps()
            for step in range(1, 3001):
                agent.says("saved", path=f"/checkpoints/step-{step}.pt", step=step)
            progress = Progress(
                rank=0,
                local_rank=0,
                pid=1,
                steps=3000,
                last_step_ns=1,
                saved_step=3000,
                parked=False,
                first_step_ns=1,
            )
            past = None
            while past is None or past.steps < 3000:
                beat = messages.Heartbeat(epoch=1, now_ns=1, progress=(progress,))
                agent.connection.send(beat)
                await agent.hear(messages.Lease)
                ledger = JobPlace(tmp_path).find("ledger", WorldLedger)
                past = None if ledger is None else ledger.past

            assert past.saved["/checkpoints/step-3000.pt"] == 3000
            assert len(past.saved) < 1000

    run(story())


class _Unknown(messages.Message, frozen=True, tag="Unknown"):
    """A frame that nobody knows."""


def test_unknown_fields_of_a_frame_are_tolerated() -> None:
    body = msgspec.msgpack.encode({"type": "Started", "epoch": 3, "mood": "good"})

    assert msgspec.msgpack.decode(body, type=messages.ANY) == messages.Started(epoch=3)
