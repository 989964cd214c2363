"""Carries out what ``launcher.membership`` decides: the one agent of a job that forms worlds.

It holds no truth of its own that a successor would miss: the world document, the ledger and the
reports are on disk before anything else happens, and agents tell what they run.
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, assert_never

from brain.errors import BadInput
from brain.types.world import Cause, ReplicaExit, WorldEvent, WorldReport, WorldWish
from launcher import frames
from launcher.config import VERSION, WorldDocument
from launcher.frames import Connection
from launcher.membership import decide, may_form, next_epoch
from launcher.processes.values import Park as Mode
from launcher.replica import JobPlace
from launcher.worlds import pins, sight
from launcher.worlds.link import Reports, WishSource
from launcher.worlds.seats import Seat
from launcher.worlds.watch import Ledger, Watch

#: Seconds between two heartbeats of an agent.
HEARTBEAT_SECONDS = 1.0
#: Seconds between looks for proof about members that have not come back.
_PROOF_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a coordinator is told about its job."""

    job: str
    run_id: str
    token_sha256: str
    #: host:port where agents reach it, and the node it runs on.
    address: str
    node: str
    master_addr: str | None = None
    master_port: int | None = None
    lease_seconds: float = 10.0
    grace_seconds: float = 10.0
    #: A checkpoint was declared; workers cannot be seen stepping.
    declared: bool = False
    blind: bool = False
    rules: sight.Rules = field(default_factory=sight.Rules)
    #: Seconds to go on telling Brain of the end while it is away.
    linger_seconds: float = 10.0


class Peer:
    """A connected agent."""

    def __init__(self, hello: frames.Hello, connection: Connection, now: float) -> None:
        self.hello, self.connection = hello, connection
        self.heard_at = now
        self.leaving_since: float | None = None
        self.port = hello.port


class Coordinator:
    """Make one, let connections in by ``accept``, ``run`` it until the job is over."""

    def __init__(
        self,
        terms: Terms,
        *,
        place: JobPlace,
        seat: Seat,
        wishes: WishSource,
        reports: Reports,
        say: Callable[[str], None],
        last: WorldDocument | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terms, self._place, self._seat = terms, place, seat
        self._wishes, self._reports, self._say, self._clock = wishes, reports, say, clock
        self._last = last
        self._peers: dict[int, Peer] = {}
        self._wish: WorldWish | None = None
        self._wished_since = clock()
        self._watch: Watch | None = None
        self._ledger = Ledger()
        self._gone: set[int] = set()
        self._lease_until = 0.0
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        #: Everything was said and done; the own agent may end.
        self.done = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether the job ends, so that this coordinator has no successor."""
        return self._ledger.over is not None

    async def run(self) -> None:
        """Form worlds until the job is over, or cancelled."""
        await self._recover()
        self._ready.set()
        tasks = [
            asyncio.create_task(self._wishes.follow(self._wished)),
            asyncio.create_task(self._reports.deliver()),
            asyncio.create_task(self._listen_for_silence()),
        ]
        for task in tasks:
            task.add_done_callback(lambda _: self._changed.set())
        try:
            while not self.over:
                await self._turn()
                for task in tasks:
                    if task.done():
                        task.result()
            await self._finish()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for peer in list(self._peers.values()):
                await peer.connection.close()

    async def accept(self, hello: frames.Hello, connection: Connection) -> None:
        """Serve an agent until its connection ends."""
        await self._ready.wait()
        if refused := self._refusal(hello):
            connection.send(refused)
            return
        if hello.replica < 0:
            known = [*self._peers, *(self._watch.replicas if self._watch else ())]
            hello = replace_hello(hello, max(known, default=-1) + 1)
        peer = self._peers[hello.replica] = Peer(hello, connection, self._clock())
        connection.send(frames.Welcome(replica=hello.replica, epoch=self._ledger.epoch))
        if self.over:
            connection.send(self._bye())
        self._returned(peer)
        self._changed.set()
        try:
            while (frame := await connection.receive(frames.Frame)) is not None:
                self._hear(peer, frame)
        except BadInput as bad:
            self._say(f"replica {hello.replica} is dropped: {bad}")
        finally:
            self._left(peer)

    # --- what agents say -------------------------------------------------------------------

    def _refusal(self, hello: frames.Hello) -> frames.Refused | None:
        terms = self._terms
        if hello.v != VERSION:
            return frames.Refused(
                reason=f"agent speaks v {hello.v}, its coordinator v {VERSION}; "
                "start both from the same version"
            )
        if hello.job != terms.job:
            return frames.Refused(reason=f"this is job {terms.job}, not {hello.job}")
        if not hmac.compare_digest(hello.token_sha256, terms.token_sha256):
            return frames.Refused(reason="the agent's token is not the job's; give it that one")
        if hello.replica in self._peers:
            reason = f"replica {hello.replica} is connected already"
            return frames.Refused(reason=reason, final=False)
        return None

    def _returned(self, peer: Peer) -> None:
        """Compare what an agent runs with the world that should be."""
        hello, watch = peer.hello, self._watch
        self._gone.discard(hello.replica)
        if watch is not None and hello.epoch == watch.document.epoch:
            watch.started(hello.replica)
            for exit in hello.exits:
                watch.exited(hello.replica, exit)
            return
        if hello.epoch:
            peer.connection.send(frames.Halt(epoch=hello.epoch, grace_seconds=0))
        if watch is not None and hello.replica in watch.still:
            watch.without(hello.replica)

    def _hear(self, peer: Peer, frame: frames.Frame) -> None:
        peer.heard_at = now = self._clock()
        watch, replica = self._watch, peer.hello.replica
        epoch = watch.document.epoch if watch is not None else 0
        match frame:
            case frames.Heartbeat():
                self._beat(peer, frame)
                return
            case frames.Leave() if peer.leaving_since is None:
                peer.leaving_since = now
            case frames.Started(epoch=at) if watch is not None and at == epoch:
                watch.started(replica)
            case frames.Exited(epoch=at, exit=exit) if watch is not None and at == epoch:
                watch.exited(replica, exit)
            case frames.Said(event=event) if watch is not None and event.epoch == epoch:
                watch.heard(event, now)
            case frames.Stopped(epoch=at) if watch is not None and at == epoch:
                peer.port = frame.port
                watch.went(frame.progress, self._offset(peer, frame.now_ns))
                watch.stopped(replica)
            case frames.Unusable(epoch=at) if at == epoch:
                self._end(sight.End(ReplicaExit.FAILED, 1, frame.reason))
        self._changed.set()

    def _beat(self, peer: Peer, beat: frames.Heartbeat) -> None:
        watch = self._watch
        if watch is None or beat.epoch != watch.document.epoch:
            return
        watch.went(beat.progress, self._offset(peer, beat.now_ns))
        members = watch.replicas
        if may_form(members, self._peers, self._gone, lease_expired=False):
            seconds = self._terms.lease_seconds
            lease = frames.Lease(epoch=beat.epoch, sent_ns=beat.now_ns, seconds=seconds)
            peer.connection.send(lease)
        if watch.stepping and any(each.rank == 0 for each in beat.progress):
            self._note(durable=False, past=watch.past)

    def _offset(self, peer: Peer, now_ns: int) -> float:
        """Seconds between an agent's clock and this one; one machine has one clock."""
        near = peer.hello.node == self._terms.node
        return 0.0 if near else self._clock() - now_ns / 1e9

    def _left(self, peer: Peer, *, proved: bool = True) -> None:
        """An agent's connection ended (its process did) or it has been silent beyond its lease."""
        replica = peer.hello.replica
        if self._peers.get(replica) is not peer:
            return
        del self._peers[replica]
        if proved:
            self._gone.add(replica)
        if self._watch is not None:
            self._watch.stopped(replica)
        self._changed.set()

    async def _listen_for_silence(self) -> None:
        limit = self._terms.lease_seconds + HEARTBEAT_SECONDS
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            for peer in list(self._peers.values()):
                if self._clock() - peer.heard_at > limit:
                    self._say(f"replica {peer.hello.replica} is silent, its lease has run out")
                    self._left(peer, proved=False)
                    await peer.connection.close()

    def _wished(self, wish: WorldWish) -> None:
        before = self._wish
        if before is None or before.generation != wish.generation:
            self._wished_since = self._clock()
        self._wish = wish
        self._changed.set()

    # --- deciding and acting ---------------------------------------------------------------

    async def _turn(self) -> None:
        self._changed.clear()
        await self._prove()
        self._observe()
        action = decide(self._sight(), self._clock())
        match action:
            case sight.Stay():
                await self._pause(None)
            case sight.Wait(until=until):
                await self._pause(until)
            case _:
                await self._carry_out(action)

    async def _pause(self, until: float | None) -> None:
        seconds = None if until is None else max(0.0, until - self._clock())
        if self._missing():
            seconds = min(_PROOF_SECONDS, seconds or _PROOF_SECONDS)
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return

    async def _carry_out(self, action: sight.Action) -> None:
        match action:
            case sight.Park():
                self._park(Mode.AT_SAVE)
            case sight.Unpark():
                self._park(Mode.RUN)
            case sight.Hold(reason=reason):
                self._hold(reason)
            case sight.Swap(planned=planned):
                await self._swap(planned)
            case sight.Stop(cause=cause):
                self._stop(cause)
            case sight.Form():
                await self._form(action)
            case sight.Relabel(generation=generation, goal=goal):
                self._relabel(generation, goal)
            case sight.Release(replicas=replicas):
                self._release(replicas)
            case sight.Revert(reason=reason):
                self._revert(reason)
            case sight.End():
                self._end(action)
            case sight.Stay() | sight.Wait():
                return
            case _:
                assert_never(action)

    def _park(self, mode: Mode) -> None:
        watch = self._running()
        watch.unpark() if mode is Mode.RUN else watch.park(self._clock())
        for peer in self._members():
            peer.connection.send(frames.Parked(epoch=watch.document.epoch, mode=mode))

    def _hold(self, reason: str) -> None:
        watch, wish = self._running(), self._wish
        assert wish is not None
        self._park(Mode.RUN)
        saves = watch.seen().saves.count
        self._note(held=sight.Held(generation=wish.generation, saves=saves))
        self._report(WorldEvent.HELD, generation=wish.generation, detail=reason)

    async def _swap(self, planned: bool) -> None:
        """The safe point: keep the checkpoint, then stop."""
        watch, wish = self._running(), self._wish
        taken: list[pins.Pin] = []
        try:
            for path, replaced in watch.checkpoints().items():
                taken.append(
                    await asyncio.to_thread(pins.pin, path, job=self._terms.job, replaced=replaced)
                )
        except pins.CannotPin as cannot:
            for pin in taken:
                pins.unpin(pin)
            self._hold(f"I will not resize this job now: {cannot}")
            return
        change = sight.Change(
            from_goal=len(watch.document.members) if planned else watch.goal,
            from_generation=watch.generation,
            to_generation=wish.generation if wish is not None else watch.generation,
        )
        watch.change = change
        self._note(change=change, pins=tuple(taken))
        self._stop(Cause.PLAN if planned else Cause.MEMBERSHIP, quietly=True)

    def _stop(self, cause: Cause | None, *, quietly: bool = False) -> None:
        watch = self._running()
        watch.phase, watch.ended_by = sight.Phase.STOPPING, cause
        if cause is Cause.FAILURE:
            self._note(failures=self._ledger.failures + 1)
        if cause in (Cause.FAILURE, Cause.MEMBERSHIP) and not quietly:
            self._report(WorldEvent.LOST, cause=cause, detail=self._loss(cause))
        grace = self._terms.grace_seconds
        for replica in watch.still:
            if peer := self._peers.get(replica):
                halt = frames.Halt(epoch=watch.document.epoch, grace_seconds=grace)
                peer.connection.send(halt)
            else:
                watch.stopped(replica)

    async def _form(self, form: sight.Form) -> None:
        if not await self._put_back(form.cause is Cause.REVERT):
            return
        epochs = (peer.hello.last_epoch for peer in self._peers.values())
        first = self._peers[form.members[0].replica]
        host = form.members[0].address.rpartition(":")[0]
        document = WorldDocument(
            job=self._terms.job,
            epoch=next_epoch([self._ledger.epoch, *epochs]),
            generation=form.generation,
            cause=form.cause,
            members=form.members,
            master_addr=self._terms.master_addr or host.strip("[]"),
            master_port=self._terms.master_port or first.port,
            run_id=self._terms.run_id,
            coordinator=self._terms.address,
            lease_seconds=self._terms.lease_seconds,
            restart_count=self._ledger.failures,
            max_restarts=self._wish.restart_limit if self._wish is not None else 0,
        )
        self._watch = self._watching(document, form.goal)
        self._gone.clear()
        self._note(
            epoch=document.epoch,
            goal=form.goal,
            ended=False,
            ended_by=None,
            formed=False,
            stepped=False,
        )
        self._place.keep("world", document)
        for peer in self._members():
            peer.connection.send(frames.Run(world=document))
        self._say(f"world {document.epoch} of {len(form.members)} replicas, {form.cause}")

    async def _put_back(self, revert: bool) -> bool:
        """Make sure that the next world finds the checkpoint that was kept for it."""
        try:
            for pin in self._ledger.pins:
                if await asyncio.to_thread(pins.restore, pin) and not revert:
                    await asyncio.to_thread(pins.pin, pin.path, job=self._terms.job, replaced=True)
        except pins.CannotPin as cannot:
            self._say(str(cannot))
            await asyncio.sleep(HEARTBEAT_SECONDS)
            return False
        if revert:
            self._confirmed()
        return True

    def _confirmed(self) -> None:
        """The change is behind us, one way or the other."""
        for pin in self._ledger.pins:
            pins.unpin(pin)
        self._note(pins=(), change=None)
        if self._watch is not None:
            self._watch.change, self._watch.pins = None, ()

    def _relabel(self, generation: int, goal: int) -> None:
        watch = self._running()
        watch.generation, watch.goal = generation, goal
        watch.document = replace(watch.document, generation=generation)
        self._place.keep("world", watch.document)
        self._note(goal=goal)
        if watch.stepping:
            self._report(WorldEvent.STEPPING, detail="the world already had this size")

    def _release(self, replicas: tuple[int, ...]) -> None:
        for replica in replicas:
            if peer := self._peers.get(replica):
                why = "let go by the coordinator"
                peer.connection.send(frames.Bye(exit=ReplicaExit.LEFT, exit_code=0, detail=why))
                # It is no more part of anything; its connection ends when it has ended.
                del self._peers[replica]

    def _revert(self, reason: str) -> None:
        watch = self._running()
        assert watch.change is not None
        generation = watch.change.to_generation
        self._note(held=sight.Held(generation=generation, saves=0))
        self._report(WorldEvent.CHANGE_FAILED, generation=generation, detail=reason)
        failed = watch.seen().failed is not None
        self._note(failures=self._ledger.failures + failed)
        self._stop(Cause.REVERT)

    def _end(self, end: sight.End) -> None:
        events = {
            ReplicaExit.SUCCEEDED: WorldEvent.FINISHED,
            ReplicaExit.FAILED: WorldEvent.LOST,
        }
        event = events.get(end.exit, WorldEvent.STOPPED)
        final = end.exit is not ReplicaExit.LEFT
        cause, reason = None, end.reason
        if event is WorldEvent.LOST:
            cause = Cause.FAILURE
            reason = "; ".join(filter(None, (self._loss(cause), reason)))
        self._report(event, cause=cause, exit_code=end.exit_code, final=final, detail=reason)
        self._confirmed()
        self._note(
            over=end.exit,
            exit_code=end.exit_code,
            reason=reason,
            ended=True,
            ended_by=None,
        )

    async def _finish(self) -> None:
        """Tell all agents, and Brain; then let the own agent go."""
        for peer in self._peers.values():
            peer.connection.send(self._bye())
        while self._peers:
            self._changed.clear()
            await self._changed.wait()
        try:
            await asyncio.wait_for(self._reports.drained(), self._terms.linger_seconds)
        except TimeoutError:
            self._say("Brain is away; the next agent of this job will tell it the rest")
        self.done.set()

    def _bye(self) -> frames.Bye:
        over = self._ledger.over
        assert over is not None
        return frames.Bye(exit=over, exit_code=self._ledger.exit_code, detail=self._ledger.reason)

    # --- facts -----------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Begin where the coordinator before stopped."""
        self._ledger = self._place.find("ledger", Ledger) or Ledger()
        document = self._place.find("world", WorldDocument) or self._last
        if self._ledger.over is ReplicaExit.LEFT:
            self._note(over=None, ended=True)
        if document is None or self.over:
            return
        self._watch = watch = self._watching(document, self._ledger.goal or len(document.members))
        if self._ledger.past is not None:
            watch.inherit(self._ledger.past)
        if self._ledger.epoch < document.epoch:
            failures = max(self._ledger.failures, document.restart_count)
            self._note(epoch=document.epoch, goal=watch.goal, failures=failures, ended=False)
        self._lease_until = self._clock() + self._terms.lease_seconds
        if self._ledger.ended:
            watch.phase, watch.ended_by = sight.Phase.ENDED, self._ledger.ended_by
            self._gone |= watch.replicas
        if self._ledger.stepped:
            watch.first_step()
        folders = {pin.path.rpartition("/")[0] for pin in self._ledger.pins}
        pins.sweep(folders, job=self._terms.job, keep=self._ledger.pins)

    def _watching(self, document: WorldDocument, goal: int) -> Watch:
        terms = self._terms
        watch = Watch(
            document, goal=goal, since=self._clock(), declared=terms.declared, blind=terms.blind
        )
        watch.change, watch.pins = self._ledger.change, self._ledger.pins
        return watch

    def _missing(self) -> set[int]:
        """Members whose workers may run although their agents are not connected."""
        watch = self._watch
        if watch is None or watch.phase is sight.Phase.ENDED:
            return set()
        return watch.replicas - self._peers.keys() - self._gone

    async def _prove(self) -> None:
        if missing := self._missing():
            watch = self._running()
            members = [m for m in watch.document.members if m.replica in missing]
            for replica in await self._seat.gone(members):
                self._gone.add(replica)
                watch.stopped(replica)

    def _observe(self) -> None:
        """Note and tell what has become true."""
        watch = self._watch
        if watch is None:
            return
        if watch.phase is sight.Phase.STOPPING and not watch.still:
            watch.phase = sight.Phase.ENDED
            self._gone |= watch.replicas
            past = watch.past if watch.stepping else self._ledger.past
            self._note(ended=True, ended_by=watch.ended_by, past=past)
        if watch.phase is not sight.Phase.RUNNING:
            return
        if watch.formed and not self._ledger.formed:
            self._note(formed=True)
            self._report(WorldEvent.FORMED)
        if watch.stepping and watch.formed and not self._ledger.stepped and not watch.unloaded:
            self._stepping(watch)

    def _stepping(self, watch: Watch) -> None:
        past, first = self._ledger.past, watch.first_step_at
        downtime = (
            max(0.0, first - past.last_step_at)
            if past is not None and past.last_step_at is not None and first is not None
            else None
        )
        self._report(
            WorldEvent.STEPPING,
            downtime_seconds=downtime,
            steps_redone=None if past is None else past.redone(watch.loaded),
            loaded=watch.loaded[-1] if watch.loaded else None,
        )
        self._note(stepped=True)
        self._confirmed()

    def _sight(self) -> sight.Sight:
        return sight.Sight(
            wish=self._wish,
            wished_since=self._wished_since,
            agents=tuple(_seen(self._peers[replica]) for replica in sorted(self._peers)),
            world=None if self._watch is None else self._watch.seen(),
            gone=frozenset(self._gone),
            lease_until=self._lease_until,
            # The failure that is being looked at counts already.
            failures=self._ledger.failures + 1,
            held=self._ledger.held,
            rules=self._terms.rules,
        )

    def _running(self) -> Watch:
        assert self._watch is not None
        return self._watch

    def _members(self) -> list[Peer]:
        replicas = self._running().replicas
        return [peer for replica, peer in self._peers.items() if replica in replicas]

    def _loss(self, cause: Cause) -> str:
        watch = self._watch
        if watch is None:
            return ""
        if cause is Cause.MEMBERSHIP:
            lost = sorted(watch.replicas & self._gone)
            return f"replicas {', '.join(map(str, lost))} are gone" if lost else "a replica left"
        first = next((exit for exit in watch.exits if exit.code), None)
        if first is None:
            return ""
        return f"rank {first.rank} ended with {first.exit_code}: {first.message}".strip(": ")

    def _note(self, *, durable: bool = True, **changes: Any) -> None:
        self._ledger = replace(self._ledger, **changes)
        self._place.keep("ledger", self._ledger, durable=durable)

    def _report(
        self,
        event: WorldEvent,
        *,
        cause: Cause | None = None,
        generation: int | None = None,
        **more: Any,
    ) -> None:
        watch, wish = self._watch, self._wish
        wished = 0 if wish is None else wish.generation
        report = WorldReport(
            job=self._terms.job,  # type: ignore[arg-type]
            event=event,
            epoch=self._ledger.epoch,
            generation=generation
            if generation is not None
            else (watch.generation if watch is not None else wished),
            cause=cause or (watch.document.cause if watch is not None else Cause.START),
            members=watch.document.members if watch is not None else (),
            at=datetime.now(UTC),
            **more,
        )
        self._reports.put(report)
        if report.detail:
            self._say(f"{event}: {report.detail}")


def _seen(peer: Peer) -> sight.AgentSeen:
    hello = peer.hello
    return sight.AgentSeen(
        replica=hello.replica,
        node=hello.node,
        address=hello.address,
        processes=hello.processes,
        generation=hello.generation,
        rank=hello.rank,
        leaving_since=peer.leaving_since,
    )


def replace_hello(hello: frames.Hello, replica: int) -> frames.Hello:
    """The same agent under the id that it was given."""
    import msgspec

    return msgspec.structs.replace(hello, replica=replica)
