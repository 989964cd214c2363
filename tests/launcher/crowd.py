"""A coordinator and as many agents as one likes, in one process and without a socket.

The agents do at once whatever they are told; what is left is the work of the coordinator: the
frames that it sends and hears, the turns that it takes, and the time of both.

    python -m tests.launcher.crowd 10000
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from brain.types.resources import NodeName
from brain.types.world import DesiredWorld
from launcher import messages
from launcher.coordinator.brain import FixedDesiredWorld, Reports
from launcher.coordinator.coordinator import Coordinator
from launcher.coordinator.leadership import SoleLeadership
from launcher.coordinator.world.terms import CoordinatorTerms
from launcher.messages import Connection, digest
from launcher.values.observation import WorldRules
from launcher.values.replica import JobPlace
from launcher.values.workers import ProbeEvent
from tests.launcher.elastic import JOB, desired

#: Its agents say nothing unless something happens, however long a busy machine takes for it.
_LEASE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one change of the world cost its coordinator."""

    #: Frames by name, from and to the coordinator.
    sent: Counter[str]
    heard: Counter[str]
    #: How often it looked at everything and decided.
    turns: int
    #: Wall time from the event to the last agent's order, all agents' part included.
    seconds: float


class _Seat(SoleLeadership):
    """Counts turns: before each the coordinator asks whether the leadership is still its own."""

    turns = 0

    def holds(self) -> bool:
        self.turns += 1
        return True


class _Wire(Connection):
    """A connection without a socket: what the coordinator sends is answered by the agent."""

    def __init__(self, crowd: "Crowd", replica: int) -> None:
        self._crowd, self.replica = crowd, replica
        self.said: asyncio.Queue[messages.Message | None] = asyncio.Queue()

    def send(self, message: "messages.Message | bytes") -> None:
        self._crowd.told(self, message)

    async def receive(self, kind: type[messages.F]) -> messages.F | None:
        message = await self.said.get()
        assert message is None or isinstance(message, kind)
        return message

    async def close(self) -> None:
        return

    def abandon(self) -> None:
        return


class Crowd:
    """Make one with a coordinator that ``began``; ``join`` agents, then let things happen."""

    def __init__(self, place: Path, wanted: DesiredWorld) -> None:
        self._leadership = _Seat()
        self._coordinator = Coordinator(
            CoordinatorTerms(
                job=JOB,
                run_id=JOB,
                token_sha256=digest(""),
                address="127.0.0.1:0",
                node="n0",
                lease_seconds=_LEASE_SECONDS,
                rules=WorldRules(spares=True),
            ),
            place=JobPlace(place),
            leadership=self._leadership,
            desired_worlds=FixedDesiredWorld(wanted),
            reports=Reports(place / "reports", None),
            say=lambda text: None,
        )
        self._wires: dict[int, _Wire] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._sent, self._heard = Counter[str](), Counter[str]()
        self._decoded: tuple[bytes, messages.Message] = b"", messages.Ready()
        #: Of the newest world: its epoch, its agents that were told, those that there must be.
        self._epoch = self._running = self._size = 0
        self._whole = asyncio.Event()

    async def began(self) -> None:
        """Have the coordinator run."""
        self._tasks.append(asyncio.create_task(self._coordinator.run()))
        await asyncio.sleep(0)

    async def join(self, replicas: Sequence[int], size: int) -> Change:
        """Let agents say hello; returns once a world of ``size`` runs."""
        return await self._until(size, lambda: [self._hello(replica) for replica in replicas])

    async def kill(self, replica: int) -> Change:
        """End an agent's connection; returns once the others run anew."""
        return await self._until(len(self._wires) - 1, lambda: self._end(replica))

    async def beat(self) -> Change:
        """Let all agents live a little longer; nothing else happens."""
        begun, turns = time.perf_counter(), self._leadership.turns
        self._sent.clear(), self._heard.clear()
        for wire in self._wires.values():
            self._say(wire, messages.Heartbeat(epoch=self._epoch, now_ns=time.monotonic_ns()))
        while self._sent["Lease"] < len(self._wires):
            await asyncio.sleep(0)
        return self._change(begun, turns)

    async def end(self) -> None:
        """Stop the coordinator."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def told(self, wire: _Wire, message: "messages.Message | bytes") -> None:
        """An agent was told something: it does so, and says so."""
        told = self._decode(message) if isinstance(message, bytes) else message
        self._sent[type(told).__name__] += 1
        match told:
            case messages.Run(world=world):
                self._say(wire, messages.Started(epoch=world.epoch))
                if wire.replica == world.members[0].replica:
                    self._announce(wire, world.epoch, "stepping")
                    self._announce(wire, world.epoch, "saved", path="/model.pt", step=1)
                if world.epoch != self._epoch:
                    self._epoch, self._running = world.epoch, 0
                self._running += 1
                if self._running == self._size:
                    self._whole.set()
            case messages.Halt(epoch=epoch):
                stopped = messages.Stopped(epoch=epoch, now_ns=1, progress=(), port=29500)
                self._say(wire, stopped)
            case messages.Prepare(world=world):
                self._say(wire, messages.Prepared(epoch=world.epoch, ok=True))
            case messages.Parked(epoch=epoch, mode=mode) if mode and wire.replica == 0:
                self._announce(wire, epoch, "parked")

    async def _until(self, size: int, happen: Callable[[], object]) -> Change:
        self._size = size
        self._whole.clear()
        self._sent.clear(), self._heard.clear()
        begun, turns = time.perf_counter(), self._leadership.turns
        happen()
        await self._whole.wait()
        change = self._change(begun, turns)
        await asyncio.sleep(0.05)  # what was said last is heard before the next event
        return change

    def _change(self, begun: float, turns: int) -> Change:
        return Change(
            sent=Counter(self._sent),
            heard=Counter(self._heard),
            turns=self._leadership.turns - turns,
            seconds=time.perf_counter() - begun,
        )

    def _hello(self, replica: int) -> None:
        hello = messages.Hello(
            job=JOB,
            token_sha256=digest(""),
            replica=replica,
            node=NodeName(f"n{replica}"),
            address=f"10.{replica >> 16}.{replica >> 8 & 255}.{replica & 255}:29400",
            processes=1,
            generation=0,
            last_epoch=0,
            port=29500,
        )
        wire = self._wires[replica] = _Wire(self, replica)
        self._tasks.append(asyncio.create_task(self._coordinator.accept(hello, wire)))

    def _end(self, replica: int) -> None:
        self._wires.pop(replica).said.put_nowait(None)

    def _say(self, wire: _Wire, message: messages.Message) -> None:
        self._heard[type(message).__name__] += 1
        wire.said.put_nowait(message)

    def _announce(self, wire: _Wire, epoch: int, event: str, **fields: object) -> None:
        said = ProbeEvent(rank=0, local_rank=0, epoch=epoch, event=event, **fields)  # type: ignore[arg-type]
        self._say(wire, messages.Said(event=said))

    def _decode(self, message: bytes) -> messages.Message:
        """What goes to many is the same bytes, and is read once."""
        if self._decoded[0] is not message:
            self._decoded = message, msgspec.msgpack.decode(message[4:], type=messages.ANY)
        return self._decoded[1]


async def story(agents: int, place: Path) -> dict[str, Change]:
    """Form a world of ``agents``, kill one, let one join again; what each cost."""
    crowd = Crowd(place, desired(agents, patience_seconds=0.0, restart_limit=100))
    await crowd.began()
    try:
        formed = await crowd.join(range(agents), agents)
        beaten = await crowd.beat()
        killed = await crowd.kill(agents // 2)
        joined = await crowd.join([agents], agents)
    finally:
        await crowd.end()
    return {"formed": formed, "beaten": beaten, "killed": killed, "joined": joined}


def simulate(agents: int) -> dict[str, Change]:
    """``story`` on a loop and in a directory of its own."""
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(story(agents, Path(place)))


if __name__ == "__main__":
    for name, change in simulate(int(sys.argv[1])).items():
        sent, heard = sum(change.sent.values()), sum(change.heard.values())
        print(
            f"{name:8} sent {sent:7} heard {heard:7} turns {change.turns:3} {change.seconds:.3f} s"
        )
