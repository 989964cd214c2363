"""The state of a coordinator: messages, observations, and the facts that it wrote to disk."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace

from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.world import Cause, DesiredWorld, Member, WorldEvent
from launcher.coordinator import pins
from launcher.coordinator.topology import choose, layout
from launcher.coordinator.witness_file import WitnessFile
from launcher.coordinator.world.journal import Journal
from launcher.coordinator.world.ledger import WorldPast
from launcher.coordinator.world.monitor import exits
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.coordinator.world.peers import Peer, Peers
from launcher.coordinator.world.preparation import Preparation
from launcher.coordinator.world.terms import CoordinatorTerms
from launcher.values.config import WorldDocument
from launcher.values.console import say
from launcher.values.diagnosis.first import diagnose, first, then
from launcher.values.diagnosis.policy import GO_BACK, GO_ON, REMEMBERED, consequence, occurrence
from launcher.values.observation import JobObserved, WorldObserved, WorldPhase
from launcher.values.witness import WitnessObserved

#: Seconds that the end of a worker which failed may take to be heard, before its loss is told.
_FALLEN_SECONDS = 2.0
#: Seconds in which members of a world that was taken over find the one who did.
_RETURN_SECONDS = 1.0
_NOT_DISTRIBUTED = (
    "not-distributed: the %d workers are copies of one program, because each has saved and none "
    "has met another (no process group, no session, no data shard, no MPI or Horovod peer). Each "
    "does all the work and writes the same files. Let the script join a process group "
    "(torch.distributed, accelerate, Lightning …), or start one worker; if you want copies, "
    "ignore this"
)


class CoordinatorState:
    """The state of a coordinator, which ``actions``, ``in_process`` and ``Coordinator`` change."""

    def __init__(
        self,
        terms: CoordinatorTerms,
        journal: Journal,
        peers: Peers,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        witness: WitnessFile | None = None,
    ) -> None:
        self.terms, self.journal, self.peers = terms, journal, peers
        #: The agent's own; it outlives this time as coordinator.
        self.witness = witness or WitnessFile()
        self.say, self.clock = say, clock
        self.desired: DesiredWorld | None = None
        self.desired_since = clock()
        self.monitor: WorldMonitor | None = None
        self.preparation: Preparation | None = None
        #: Time before which no world is built in process, because the last attempt failed.
        self.build_after = -math.inf
        #: Epoch of the last prepared world; no other world may use it.
        self.prepared_epoch = 0
        #: Agents that have yet to report a later world -> its epoch.
        self.behind: dict[int, int] = {}
        #: When an agent last came, became ready or was lost.
        self.stirred_at = -math.inf
        #: Members of the latest world that are proved to be gone.
        self.gone: set[int] = set()
        #: Time by which members that follow another coordinator have ended their workers.
        self.turned_until = 0.0
        #: The world before this one, whose loss is not reported yet; and the time until which the
        #: report waits for exits of its workers.
        self.fallen: WorldMonitor | None = None
        self.fallen_until = math.inf
        #: Time at which another coordinator's world was taken over; None for this one's own world.
        self.recovered_at: float | None = None
        self._told_copies = False

    @property
    def lease_until(self) -> float:
        """Time by which the workers of silent members will have ended themselves.

        The last coordinator's leases are counted from the time at which most members last received
        its messages; at least one of these members is connected here.
        """
        if self.recovered_at is None:
            return self.turned_until
        heard = max((peer.followed_until for peer in self.members), default=self.recovered_at)
        until = heard + self.terms.lease_seconds
        # It is known of the one that coordinated alone that it does not answer; others look for us.
        late = any(member.replica != self.running.coordinated for member in self.missing)
        return max(until, self.recovered_at + _RETURN_SECONDS) if late else until

    @property
    def in_touch(self) -> bool:
        """True if no newer world can have formed elsewhere, because a member here still has a lease
        of the latest world.
        """
        if self.recovered_at is None:
            return True
        followed = max((peer.followed_until for peer in self.members), default=-math.inf)
        return self.clock() < followed + self.terms.lease_seconds

    @property
    def running(self) -> WorldMonitor:
        """Return the monitor of the latest world; there must be one."""
        assert self.monitor is not None
        return self.monitor

    @property
    def members(self) -> list[Peer]:
        """Return the connected members of the latest world."""
        found = (self.peers.get(member.replica) for member in self.running.document.members)
        return [peer for peer in found if peer is not None]

    @property
    def missing(self) -> list[Member]:
        """Members of the latest world that are neither connected nor proved to be gone."""
        monitor = self.monitor
        if monitor is None:
            return []
        here, gone = self.peers.replicas, self.gone
        members = monitor.document.members
        return [m for m in members if m.replica not in here and m.replica not in gone]

    @property
    def witness_seen(self) -> WitnessObserved:
        """Return the most certain knowledge that any connected agent has of the latest world's
        witness.
        """
        epoch = 0 if self.monitor is None else self.monitor.document.epoch
        told = [self.witness.seen, *(peer.hello.witness for peer in self.peers)]
        known = [each for each in told if each.path and each.epoch == epoch]
        if not known:
            return WitnessObserved(epoch=epoch)
        best = max(known, key=lambda each: each.in_force)
        holders = [each.holder for each in known if each.path == best.path]
        held = next((holder for holder in holders if holder is not None), None)
        best = told[0] if told[0].path == best.path and told[0].epoch == epoch else best
        return replace(best, holder=held, in_force=any(each.in_force for each in known))

    def desire(self, desired: DesiredWorld) -> None:
        """Store a new desired world."""
        if self.desired is None or self.desired.generation != desired.generation:
            self.desired_since = self.clock()
        self.desired = desired

    def recover(self, last: WorldDocument | None) -> None:
        """Continue from the files of the last coordinator."""
        document = self.journal.open(last)
        ledger = self.journal.ledger
        if document is None or ledger.over is not None:
            return
        self.monitor = monitor = self.watching(document, ledger.goal)
        if ledger.past is not None:
            monitor.saves.inherit(ledger.past)
        if ledger.stepped:
            monitor.first_step()
        self.recovered_at = self.clock()
        if ledger.ended:
            monitor.phase, monitor.ended_by = WorldPhase.ENDED, ledger.ended_by
        folders = {os.path.dirname(each) for each in ledger.folders}
        pins.sweep(folders, job=self.terms.job, keep=ledger.pins)

    def learn(self, world: WorldDocument) -> bool:
        """Take over a world that the last coordinator formed and this agent did not know; return
        True if it is new.

        The leases of its workers may last for a full lease time from now.
        """
        known = 0 if self.monitor is None else self.monitor.document.epoch
        self.behind = {who: epoch for who, epoch in self.behind.items() if epoch > world.epoch}
        if world.epoch <= known:
            return False
        self.journal.learn(world)
        self.monitor = self.watching(world, len(world.members))
        self.gone.clear()
        self.recovered_at = self.clock()
        return True

    def begin(self, document: WorldDocument, goal: int, *, past: WorldPast | None = None) -> None:
        """Make another world the present one, for a desired world of ``goal`` replicas.

        ``past`` is the progress of the previous world; None if the ledger has this progress.
        """
        self.journal.note(
            epoch=document.epoch,
            hopeless="",
            goal=goal,
            ended=False,
            ended_by=None,
            formed=False,
            stepped=False,
            past=past or self.journal.ledger.past,
        )
        self.journal.world(document)
        self.monitor = self.watching(document, goal)
        self.gone.clear()

    def watching(self, document: WorldDocument, goal: int) -> WorldMonitor:
        """Return the monitor for a world that belongs to a desired world of ``goal`` replicas."""
        terms, ledger = self.terms, self.journal.ledger
        monitor = WorldMonitor(
            document, goal=goal, since=self.clock(), declared=terms.declared, blind=terms.blind
        )
        monitor.change, monitor.pins = ledger.change, ledger.pins
        return monitor

    def observe(self) -> None:
        """Find out if the world has ended, has formed or has made its first step; store and report
        this.
        """
        monitor, journal = self.monitor, self.journal
        if monitor is None:
            return
        self._observe_fallen()
        if monitor.phase is WorldPhase.STOPPING and not monitor.still:
            monitor.phase = WorldPhase.ENDED
            past = monitor.past if monitor.stepping and monitor.past.steps else journal.ledger.past
            journal.note(ended=True, ended_by=monitor.ended_by, past=past)
            self.tell_lost(monitor)
        if monitor.phase is not WorldPhase.RUNNING or not monitor.formed or self.fallen is not None:
            return
        if not journal.ledger.formed:
            journal.note(formed=True)
            if (
                monitor.in_process
            ):  # what its workers told as they came is how far the last one went
                journal.note(past=monitor.past)
            journal.tell(WorldEvent.FORMED, monitor, detail=self._layout(monitor))
        if monitor.stepping and not journal.ledger.stepped and not monitor.unloaded:
            journal.tell_stepping(monitor)
            if monitor.pins:  # and it was loaded
                journal.note(unchecked=False)
            self.confirm()
        if monitor.copies and self.terms.rules.by_hand and not self._told_copies:
            self._told_copies = True
            say(_NOT_DISTRIBUTED % monitor.processes)

    def fell(self, monitor: WorldMonitor) -> None:
        """Store that a world was lost and its remaining members continue.

        The loss is reported once the exits of its failed workers are known.
        """
        if self.fallen is not None:
            self.tell_lost(self.fallen)
        self.fallen, self.fallen_until = monitor, self.clock() + _FALLEN_SECONDS
        monitor.gone, monitor.left_behind = frozenset(self.gone), True
        self._observe_fallen()

    def _observe_fallen(self) -> None:
        fallen = self.fallen
        if fallen is not None and (not fallen.awaited or self.clock() >= self.fallen_until):
            self.fallen, self.fallen_until = None, math.inf
            self.tell_lost(fallen)

    def tell_lost(self, monitor: WorldMonitor) -> None:
        """Report a lost world with its first failure and the reason."""
        cause, monitor.untold = monitor.untold, None
        if cause is None:
            return
        found, detail = self.found(cause, monitor), self.loss(cause, monitor)
        if found is not None and cause is Cause.FAILURE:
            found = self.follow(found, monitor)
        elif found is not None:
            found = then(found, GO_ON if monitor.left_behind else GO_BACK)
        if not self.journal.ledger.hopeless:  # else the job's end is told, with the same
            epoch = monitor.document.epoch
            self.journal.tell(
                WorldEvent.LOST, monitor, cause=cause, epoch=epoch, detail=detail, diagnosis=found
            )

    def _layout(self, monitor: WorldMonitor) -> str:
        desired, rules, members = self.desired, self.terms.rules, monitor.document.members
        stay = rules.spares or (desired is not None and len(members) < desired.replicas)
        agents = [peer.seen() for peer in self.peers] if stay else []
        said = layout(members, agents, 1 if desired is None else desired.unit, rules)
        return "; ".join(filter(None, ("in process" if monitor.in_process else "", said)))

    def confirm(self) -> None:
        """Store that the change is finished or undone."""
        for pin in self.journal.ledger.pins:
            pins.unpin(pin)
        self.journal.note(pins=(), change=None)
        if self.monitor is not None:
            self.monitor.change, self.monitor.pins = None, ()

    def observation(self) -> JobObserved:
        """Build the observation that ``membership.decide`` needs."""
        world = None if self.monitor is None else self.monitor.seen()
        if world is not None and self.preparation is not None:
            world = replace(world, preparing=self.preparation.seen())
        return JobObserved(
            desired=self.desired,
            desired_since=self.desired_since,
            agents=tuple(peer.seen() for peer in self.peers),
            world=world,
            gone=frozenset(self.gone),
            stirred_at=self.stirred_at,
            lease_until=self.lease_until,
            witness=self.witness_seen,
            behind=bool(self.behind),
            # One that is being looked at counts already.
            failures=self.journal.ledger.failures + 1,
            barren=self._barren(world),
            hopeless=self.journal.ledger.hopeless,
            held=self.journal.ledger.held,
            build_after=self.build_after,
            rules=self.terms.rules,
        )

    def _barren(self, world: WorldObserved | None) -> tuple[int, ...]:
        ledger = self.journal.ledger
        if world is None or world.failed is None or world.stepping or ledger.past is not None:
            return ()
        return (*ledger.barren, world.failed)

    def loss(self, cause: Cause, monitor: WorldMonitor | None = None) -> str:
        """Return a sentence that says why the world of ``monitor``, or by default the latest world,
        was lost; empty if unknown.
        """
        monitor = monitor or self.monitor
        if monitor is None:
            return ""
        if monitor.port_taken:
            port = monitor.document.master_port
            return f"another program took port {port}, at which the workers rendezvous"
        found = self.found(cause, monitor)
        if found is not None:
            return found.sentence
        if monitor.torn_because:
            return f"workers could not reach each other: {monitor.torn_because}"
        if monitor.in_process and not monitor.formed:
            return "members did not move to the new world in time"
        return "a replica left" if cause is Cause.MEMBERSHIP else ""

    def found(self, cause: Cause, monitor: WorldMonitor | None = None) -> Diagnosis | None:
        """Diagnose the first failure of the world of ``monitor``, or by default of the latest
        world.

        Return None if nothing shows which rank failed first.
        """
        monitor = monitor or self.monitor
        if monitor is None or monitor.port_taken:
            return None
        if monitor.hung is not None:
            return monitor.hung
        step = self.journal.ledger.begun + monitor.past.steps if monitor.past.steps else None
        members, heard = monitor.document.members, monitor.heard_exits
        return diagnose(
            [] if cause is Cause.MEMBERSHIP else exits.failed(members, heard),
            gone=exits.lost(members, monitor.gone or self.gone),
            finished=exits.succeeded(members, heard),
            step=step,
        )

    def follow(self, found: Diagnosis, monitor: WorldMonitor) -> Diagnosis:
        """Store a failure, and carry out the consequence that ``values.diagnosis.policy`` chooses.
        Return the diagnosis with a sentence about this consequence.
        """
        ledger = self.journal.ledger
        failed = exits.failed(monitor.document.members, monitor.heard_exits)
        root = first(failed) if found.kind is not FailureKind.HANG else None
        signature = root[1].signature if root is not None else ""
        history = (*ledger.failed, occurrence(found, signature))[-REMEMBERED:]
        spare = self._can_spare(found.replica)
        what = consequence(history, spare=spare, staying=monitor.left_behind)
        self.journal.note(failed=history, hopeless=what.give_up)
        for replica in what.leave:
            if peer := self.peers.get(replica):
                peer.leaving_since, peer.unfit = self.clock(), what.told
        return then(found, what.told)

    def _can_spare(self, replica: int | None) -> bool:
        """True if a world can be formed without ``replica``."""
        desired = self.desired
        if desired is None or replica is None:
            return False
        others = [each.seen() for each in self.peers if each.replica != replica]
        rest = [each for each in others if each.ready and each.leaving_since is None]
        need = max(desired.minimum, desired.unit)
        return bool(choose((), rest, desired.replicas, desired.unit, need, self.terms.rules.shape))
