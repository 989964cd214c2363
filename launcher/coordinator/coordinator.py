"""The agent of a job that forms worlds: it listens, asks ``membership``, and acts.

Its successor has all facts: the world document, the ledger and the reports are on disk before the
coordinator acts, and agents report the workers that they run.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress

from brain.types.world import DesiredWorld, ReplicaExit
from launcher import messages
from launcher.coordinator.brain import DesiredWorlds, Reports
from launcher.coordinator.continuity import Continuity
from launcher.coordinator.hangs import HangWatch
from launcher.coordinator.leadership import Leadership
from launcher.coordinator.membership import decide
from launcher.coordinator.network_checks import NetworkChecks
from launcher.coordinator.shards import ShardServer
from launcher.coordinator.witness_file import WitnessFile
from launcher.coordinator.world import actions, in_process, member_messages
from launcher.coordinator.world.heartbeats import Heartbeats
from launcher.coordinator.world.journal import Journal
from launcher.coordinator.world.peers import Peer, Peers
from launcher.coordinator.world.state import CoordinatorState
from launcher.coordinator.world.terms import CoordinatorTerms
from launcher.coordinator.world.witness import WitnessOffer
from launcher.messages import Connection
from launcher.values.action import End, FormWorld, StayAsIs, WaitFor
from launcher.values.config import WorldDocument
from launcher.values.replica import JobPlace

#: Seconds between looks for proof about members that have not come back.
_PROOF_SECONDS = 0.1


class Coordinator:
    """The coordinator of a job: ``accept`` takes connections, ``run`` returns when the job ends."""

    def __init__(
        self,
        terms: CoordinatorTerms,
        *,
        place: JobPlace,
        leadership: Leadership,
        desired_worlds: DesiredWorlds,
        reports: Reports,
        say: Callable[[str], None],
        last: WorldDocument | None = None,
        clock: Callable[[], float] = time.monotonic,
        witness: WitnessFile | None = None,
        continuity: Continuity | None = None,
    ) -> None:
        self._leadership, self._desired_worlds, self._reports, self._last = (
            leadership,
            desired_worlds,
            reports,
            last,
        )
        self._journal = Journal(terms.job, place, reports, say)
        self._peers = Peers(
            self,
            job=terms.job,
            token_sha256=terms.token_sha256,
            lease_seconds=terms.lease_seconds,
            program=terms.program,
            say=say,
            clock=clock,
        )
        self._it = CoordinatorState(terms, self._journal, self._peers, say, clock, witness)
        self._witnessing = WitnessOffer(self._it, leadership.near)
        # An agent that is started anew looks at home, and would begin the job there.
        self._continuity = continuity or Continuity(None, pause_seconds=math.inf, say=say)
        self._heartbeats = Heartbeats(
            self._it, lambda: leadership.holds() and not leadership.home, self._continuity
        )
        self._checking = NetworkChecks(terms.check, self._peers)
        self._shards = ShardServer(place, self._peers, say, clock)
        self._waiting = ""
        #: Why an agent cannot start workers at all; empty if all agents can.
        self._unusable = ""
        self._deposed = self._retired = False
        #: Since when there is nothing to wait for.
        self._stranded_at = math.inf
        self._changed = asyncio.Event()
        self._it.witness.changed = self._changed.set
        self._ready = asyncio.Event()
        self._hanging = HangWatch(
            terms.hang, self._it, self._changed.set, held=lambda: self._continuity.broken
        )

    @property
    def over(self) -> bool:
        """True if the job has ended, so that this coordinator needs no successor."""
        return self._journal.ledger.over is not None

    async def run(self) -> None:
        """Form worlds until the job is over and all its agents have been informed.

        This method also returns when another agent becomes the coordinator, or when it is
        cancelled.
        """
        self._it.recover(self._last)
        self._shards.begin()
        if self._it.monitor is not None:
            self._checking.skip()
        self._ready.set()
        tasks = [
            asyncio.create_task(self._desired_worlds.follow(self._desired)),
            asyncio.create_task(self._reports.deliver()),
            asyncio.create_task(self._peers.watch_silence()),
            asyncio.create_task(self._journal.settle()),
            asyncio.create_task(self._hanging.watch()),
        ]
        for task in tasks:
            task.add_done_callback(lambda _: self._changed.set())
        try:
            while not self.over:
                if self._deposed or not self._leadership.holds():
                    self._it.say("another agent is the coordinator; this agent joins it")
                    return
                if self._continuity.broken:
                    await asyncio.sleep(_PROOF_SECONDS)
                else:
                    await self._turn()
                for task in tasks:
                    if task.done():  # they never end but by a bug, which must be seen
                        task.result()
            await self._finish()
        finally:
            self._retired = True
            self._witnessing.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._peers.close()
            if self.over or not (self._deposed or self._it.missing):
                await self._it.witness.forget()

    async def accept(self, hello: messages.Hello, connection: Connection) -> None:
        """Serve an agent until its connection ends."""
        await self._ready.wait()
        if self._retired:  # whoever came in now would be answered for ever, and led by nobody
            return
        taken = () if self._it.monitor is None else self._it.monitor.replicas
        await self._peers.serve(hello, connection, epoch=self._journal.ledger.epoch, taken=taken)

    def yields_to(self, lead: messages.Lead) -> bool:
        """Stop coordinating if ``lead`` names another coordinator whose world has a higher epoch;
        return True in this case.
        """
        later = lead.coordinator != self._it.terms.address and lead.epoch > self._epoch
        if later and not self.over:
            self._deposed = True
            self._changed.set()
        return later

    def came(self, peer: Peer) -> None:
        """Handle an agent that has connected: find out whether the workers that it runs belong to
        the present world.
        """
        self._stir(peer)
        if self.over:
            peer.connection.send(self._bye())
        self._it.gone.discard(peer.replica)
        if peer.hello.world_epoch > self._epoch:
            self._it.behind[peer.replica] = peer.hello.world_epoch
        else:
            member_messages.compare(self._it, peer)
            self._witnessing.came(peer)

    def heard(self, peer: Peer, message: messages.Message) -> None:  # noqa: C901  one case each
        """Handle an agent's message, and decide again if the message may change a decision."""
        match message:
            case messages.Heartbeat():
                peer.connection.send(self._heartbeats.answer(peer, message))
                self._shards.beat(peer)
            case messages.Leave() if peer.leaving_since is None:
                peer.leaving_since = self._it.clock()
                self._changed.set()
            case messages.Turned():
                peer.turned = True
                self._turned(peer)
            case messages.Known(world=world):
                self._learn(world)
            case messages.Ready() if not peer.ready:
                peer.ready = True
                self._stir(peer)
            case messages.Prepared():
                if member_messages.prepared(self._it, peer.replica, message):
                    self._changed.set()
            case messages.Checked():
                self._checking.heard(peer.replica, message)
            case messages.Witnessed():
                self._witnessing.heard(peer, message)
            case messages.Looked():
                self._hanging.heard(peer.replica, message)
            case messages.Asked() | messages.Shared():
                self._shards.heard(peer, message)
                if not self._shards.settled:
                    self._changed.set()
            case messages.Appointed() | messages.Agreed():
                in_process.heard(self._it, peer, message)
                self._changed.set()
            case messages.Post():
                in_process.post(self._it, peer, message)
            case messages.Unusable(epoch=epoch, reason=reason) if epoch == self._epoch:
                self._unusable = self._unusable or reason
                self._changed.set()
            case _:
                if member_messages.note(self._it, self._heartbeats, peer, message):
                    self._changed.set()

    def left(self, peer: Peer, proved: bool) -> None:
        """Store that an agent is gone; its workers end with it, or when their lease expires.

        A silent agent on loopback is also proved to be gone, because there is no network in
        between.
        """
        self._checking.left(peer.replica)
        self._hanging.left(peer.replica)
        if not peer.turned:  # else another coordinator knows of its workers
            self._shards.left(peer.replica)
        if peer.turned:
            self._it.turned_until = self._it.clock() + self._it.terms.lease_seconds
        elif proved or self._leadership.near(peer.hello.address):
            self._it.gone.add(peer.replica)
        if self._it.monitor is not None:
            self._it.monitor.stopped(peer.replica)
        self._it.behind.pop(peer.replica, None)
        preparation = self._it.preparation
        if preparation is not None and preparation.needs(peer.replica):
            # An in-process change loses nothing if it is tried again without that replica.
            why = None if preparation.in_process else f"replica {peer.replica} is gone"
            actions.discard(self._it, why)
        self._stir(peer)

    def _learn(self, world: WorldDocument) -> None:
        if self._it.learn(world):
            for peer in self._peers:
                if peer.replica not in self._it.behind:
                    member_messages.compare(self._it, peer)
        self._changed.set()

    def _turned(self, peer: Peer) -> None:
        """Note that a member follows another coordinator. If most members do, this coordinator
        stands down: the other may have formed a world.
        """
        monitor = self._it.monitor
        if monitor is None:
            return
        turned = {each.replica for each in self._peers if each.turned} | {peer.replica}
        here = [m for m in monitor.replicas if m in self._peers.replicas and m not in turned]
        if 2 * len(here) <= len(monitor.replicas):
            self._deposed = True
            self._changed.set()

    @property
    def _epoch(self) -> int:
        return 0 if self._it.monitor is None else self._it.monitor.document.epoch

    def _stir(self, peer: Peer) -> None:
        """Wake the coordinator; if ``peer`` is ready, note that the usable agents changed."""
        if peer.ready:
            self._it.stirred_at = self._it.clock()
        self._changed.set()

    def _desired(self, desired: DesiredWorld) -> None:
        self._it.desire(desired)
        self._changed.set()

    async def _turn(self) -> None:
        """Observe, decide, act; then sleep until something happens."""
        it = self._it
        self._changed.clear()
        if missing := it.missing:
            expired = it.clock() >= it.lease_until
            touch = it.in_touch
            gone = await self._leadership.gone(missing, lease_expired=expired, in_touch=touch)
            for replica in gone:
                it.gone.add(replica)
                it.running.stopped(replica)
        if not self._shards.settled and self._all_heard:
            self._shards.settle()
        it.observe()
        self._witnessing.look()
        if it.monitor is not None and it.monitor.formed and it.monitor.parting:
            in_process.part(it, it.monitor.parting)
        action = decide(it.observation(), it.clock())
        if self._unusable:
            action = End(ReplicaExit.FAILED, 1, self._unusable)
        match action:
            case StayAsIs():
                await self._sleep(None)
            case WaitFor(reason=reason, until=until):
                self._explain(reason)
                await self._sleep(self._stranded(until))
            case FormWorld() if self._checking.due and it.desired is not None:
                unit, least = it.desired.unit, it.desired.minimum
                await self._checking.run(action.members, unit=unit, minimum=least)
            case _:
                await in_process.carry_out(action, it)

    @property
    def _all_heard(self) -> bool:
        """True if each agent that may know what the last coordinator knew is here or gone."""
        it = self._it
        if it.monitor is None or it.behind or not self._shards.complete:
            return False
        return not it.missing or it.clock() >= it.lease_until

    def _stranded(self, until: float | None) -> float | None:
        """Return the time until which to wait. If other members may have formed a world without
        this one, this coordinator waits for one more lease, and then looks for them.
        """
        it, now = self._it, self._it.clock()
        if not it.missing or now < it.lease_until:
            self._stranded_at = math.inf
            return until
        self._stranded_at = min(self._stranded_at, now)
        lost_at = self._stranded_at + it.terms.lease_seconds
        self._deposed = now >= lost_at
        return lost_at if until is None else min(until, lost_at)

    def _explain(self, reason: str) -> None:
        if reason != self._waiting:
            self._waiting = reason
            self._it.say(f"waiting: {reason}")

    async def _sleep(self, until: float | None) -> None:
        until = min(math.inf if until is None else until, self._it.fallen_until)
        seconds = None if math.isinf(until) else max(0.0, until - self._it.clock())
        if self._it.missing:
            seconds = min(_PROOF_SECONDS, seconds or _PROOF_SECONDS)
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the event.
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _finish(self) -> None:
        """Tell all agents and Brain that the job is over; this agent ends afterwards."""
        for peer in self._peers:
            peer.connection.send(self._bye())
        try:
            while self._peers:
                self._changed.clear()
                await self._changed.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._it.terms.linger_seconds):
                    await self._reports.drained()
        finally:
            if unsent := self._reports.unsent:
                self._it.say(
                    f"Brain is unreachable, so {unsent}; start Brain again, and the job's next "
                    "agent sends them"
                )

    def _bye(self) -> messages.Bye:
        ledger = self._journal.ledger
        assert ledger.over is not None
        return messages.Bye(exit=ledger.over, exit_code=ledger.exit_code, detail=ledger.reason)
