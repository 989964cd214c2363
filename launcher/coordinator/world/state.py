"""How things stand for a coordinator: what it was told, what it sees, what it wrote down."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.grace import GRACE_SECONDS
from brain.types.world import Cause, Member, WorldEvent, WorldWish
from launcher.coordinator import pins
from launcher.coordinator.topology import choose, layout
from launcher.coordinator.witness_file import Witness
from launcher.coordinator.world import exits
from launcher.coordinator.world.journal import Books
from launcher.coordinator.world.ledger import Past
from launcher.coordinator.world.monitor import Watch
from launcher.coordinator.world.peers import Peer, Peers
from launcher.coordinator.world.preparation import Preparation
from launcher.values.config import WorldDocument
from launcher.values.console import say
from launcher.values.diagnosis.first import diagnose, first, then
from launcher.values.diagnosis.policy import GO_BACK, GO_ON, REMEMBERED, consequence, occurrence
from launcher.values.hang.terms import HangTerms
from launcher.values.network_check import CheckTerms
from launcher.values.observation import Phase, Rules, Sight, WorldSeen
from launcher.values.witness import WitnessSeen

#: Seconds that the end of a worker which failed may take to be heard, before its loss is told.
_FALLEN_SECONDS = 2.0
#: Seconds in which members of a world that was taken over find the one who did.
_RETURN_SECONDS = 1.0
_NOT_DISTRIBUTED = (
    "not-distributed: the %d workers are copies of one program, since each has saved and none has "
    "met another (no process group, no session, no data shard, no MPI or Horovod peer). Each does "
    "all the work and writes the same files. Let the script join a process group "
    "(torch.distributed, accelerate, Lightning …), or start one worker; where copies are meant, "
    "there is nothing to do"
)


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
    #: Seconds that an agent may be silent.
    lease_seconds: float = 3.0
    #: Another agent, or a scaler, could go on without these workers, which live by leases then.
    replaceable: bool = True
    #: Neither a scaler nor a manager of jobs starts its agents elsewhere.
    by_hand: bool = False
    grace_seconds: float = GRACE_SECONDS
    #: Name of what is run.
    program: str = ""
    #: A checkpoint was declared, and where it is, absolute; None: that was not said.
    declared: bool = False
    checkpoint: str | None = None
    #: Workers cannot be seen stepping.
    blind: bool = False
    rules: Rules = field(default_factory=Rules)
    #: Seconds to go on telling Brain of the end while it is away.
    linger_seconds: float = 10.0
    #: How nodes are checked before the first world; None: they are not.
    check: CheckTerms | None = None
    #: What is looked for while worlds run; None: nothing.
    hang: HangTerms | None = None


class Standing:
    """The facts; ``acts`` changes them by acting, ``Coordinator`` by listening."""

    def __init__(
        self,
        terms: Terms,
        books: Books,
        peers: Peers,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        witness: Witness | None = None,
    ) -> None:
        self.terms, self.books, self.peers = terms, books, peers
        #: The agent's own; it outlives this time as coordinator.
        self.witness = witness or Witness()
        self.say, self.clock = say, clock
        self.wish: WorldWish | None = None
        self.wished_since = clock()
        self.watch: Watch | None = None
        self.preparation: Preparation | None = None
        #: Until when no world is built in process: one could not be.
        self.build_after = -math.inf
        #: Epoch of the last world that was prepared; whatever became of it, it is used up.
        self.prepared_epoch = 0
        #: Agents that have still to tell of a later world, and its epoch.
        self.behind: dict[int, int] = {}
        #: When an agent last came, became ready or was lost.
        self.stirred_at = -math.inf
        #: Members of the latest world that are proved to be gone.
        self.gone: set[int] = set()
        #: By when members that turned away from here have ended their workers.
        self.turned_until = 0.0
        #: The world before this one, which was lost and of which that has still to be told; and
        #: until when it waits for the ends of its workers.
        self.fallen: Watch | None = None
        self.fallen_until = math.inf
        #: When a world of another coordinator was taken over; None: the world is our own.
        self.recovered_at: float | None = None
        self._told_copies = False

    @property
    def lease_until(self) -> float:
        """By when the workers of members that are not heard of have ended themselves.

        The coordinator before gave leases that count from when most members, so one of those that
        are here, had last heard it.
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
        """Whether no newer world can have been formed without us: a lease of the latest one that
        somebody here was given lasts."""
        if self.recovered_at is None:
            return True
        followed = max((peer.followed_until for peer in self.members), default=-math.inf)
        return self.clock() < followed + self.terms.lease_seconds

    @property
    def running(self) -> Watch:
        """The latest world, where there must be one."""
        assert self.watch is not None
        return self.watch

    @property
    def members(self) -> list[Peer]:
        """Connected members of the latest world."""
        found = (self.peers.get(member.replica) for member in self.running.document.members)
        return [peer for peer in found if peer is not None]

    @property
    def missing(self) -> list[Member]:
        """Members that may be in a world although they are neither here nor proved to be gone."""
        watch = self.watch
        if watch is None:
            return []
        here, gone = self.peers.replicas, self.gone
        members = watch.document.members
        return [m for m in members if m.replica not in here and m.replica not in gone]

    @property
    def witness_seen(self) -> WitnessSeen:
        """What anybody here knows of the witness of the latest world."""
        epoch = 0 if self.watch is None else self.watch.document.epoch
        told = [self.witness.seen, *(peer.hello.witness for peer in self.peers)]
        known = [each for each in told if each.path and each.epoch == epoch]
        if not known:
            return WitnessSeen(epoch=epoch)
        best = max(known, key=lambda each: each.in_force)
        holders = [each.holder for each in known if each.path == best.path]
        held = next((holder for holder in holders if holder is not None), None)
        best = told[0] if told[0].path == best.path and told[0].epoch == epoch else best
        return replace(best, holder=held, in_force=any(each.in_force for each in known))

    def wished(self, wish: WorldWish) -> None:
        """Take a new wish."""
        if self.wish is None or self.wish.generation != wish.generation:
            self.wished_since = self.clock()
        self.wish = wish

    def recover(self, last: WorldDocument | None) -> None:
        """Begin where the coordinator before stopped."""
        document = self.books.open(last)
        ledger = self.books.ledger
        if document is None or ledger.over is not None:
            return
        self.watch = watch = self.watching(document, ledger.goal)
        if ledger.past is not None:
            watch.inherit(ledger.past)
        if ledger.stepped:
            watch.first_step()
        self.recovered_at = self.clock()
        if ledger.ended:
            watch.phase, watch.ended_by = Phase.ENDED, ledger.ended_by
        folders = {os.path.dirname(each) for each in ledger.folders}
        pins.sweep(folders, job=self.terms.job, keep=ledger.pins)

    def learn(self, world: WorldDocument) -> bool:
        """Take over a world that the coordinator before formed unheard; returns whether it is new.

        Its workers were given leases that may last from now on.
        """
        known = 0 if self.watch is None else self.watch.document.epoch
        self.behind = {who: epoch for who, epoch in self.behind.items() if epoch > world.epoch}
        if world.epoch <= known:
            return False
        self.books.learn(world)
        self.watch = self.watching(world, len(world.members))
        self.gone.clear()
        self.recovered_at = self.clock()
        return True

    def begin(self, document: WorldDocument, goal: int, *, past: Past | None = None) -> None:
        """Another world is the present one, for a wish of ``goal`` replicas; ``past`` is how far
        the one before came, None where that is written down."""
        self.books.note(
            epoch=document.epoch,
            hopeless="",
            goal=goal,
            ended=False,
            ended_by=None,
            formed=False,
            stepped=False,
            past=past or self.books.ledger.past,
        )
        self.books.world(document)
        self.watch = self.watching(document, goal)
        self.gone.clear()

    def watching(self, document: WorldDocument, goal: int) -> Watch:
        """Watch a world that answers a wish of ``goal`` replicas."""
        terms, ledger = self.terms, self.books.ledger
        watch = Watch(
            document, goal=goal, since=self.clock(), declared=terms.declared, blind=terms.blind
        )
        watch.change, watch.pins = ledger.change, ledger.pins
        return watch

    def observe(self) -> None:
        """Note and tell what has become true of the world."""
        watch, books = self.watch, self.books
        if watch is None:
            return
        self._observe_fallen()
        if watch.phase is Phase.STOPPING and not watch.still:
            watch.phase = Phase.ENDED
            past = watch.past if watch.stepping and watch.past.steps else books.ledger.past
            books.note(ended=True, ended_by=watch.ended_by, past=past)
            self.tell_lost(watch)
        if watch.phase is not Phase.RUNNING or not watch.formed or self.fallen is not None:
            return
        if not books.ledger.formed:
            books.note(formed=True)
            if watch.in_process:  # what its workers told as they came is how far the last one went
                books.note(past=watch.past)
            books.tell(WorldEvent.FORMED, watch, detail=self._layout(watch))
        if watch.stepping and not books.ledger.stepped and not watch.unloaded:
            books.tell_stepping(watch)
            if watch.pins:  # and it was loaded
                books.note(unchecked=False)
            self.confirm()
        if watch.copies and self.terms.rules.by_hand and not self._told_copies:
            self._told_copies = True
            say(_NOT_DISTRIBUTED % watch.processes)

    def fell(self, watch: Watch) -> None:
        """Others go on from a world that was lost; it is told once the ends of those that failed
        are heard."""
        if self.fallen is not None:
            self.tell_lost(self.fallen)
        self.fallen, self.fallen_until = watch, self.clock() + _FALLEN_SECONDS
        watch.gone, watch.left_behind = frozenset(self.gone), True
        self._observe_fallen()

    def _observe_fallen(self) -> None:
        fallen = self.fallen
        if fallen is not None and (not fallen.awaited or self.clock() >= self.fallen_until):
            self.fallen, self.fallen_until = None, math.inf
            self.tell_lost(fallen)

    def tell_lost(self, watch: Watch) -> None:
        """A world was lost, and what can be known of it is: who failed first, and why."""
        cause, watch.untold = watch.untold, None
        if cause is None:
            return
        found, detail = self.found(cause, watch), self.loss(cause, watch)
        if found is not None and cause is Cause.FAILURE:
            found = self.follow(found, watch)
        elif found is not None:
            found = then(found, GO_ON if watch.left_behind else GO_BACK)
        if not self.books.ledger.hopeless:  # else the job's end is told, with the same
            epoch = watch.document.epoch
            self.books.tell(
                WorldEvent.LOST, watch, cause=cause, epoch=epoch, detail=detail, diagnosis=found
            )

    def _layout(self, watch: Watch) -> str:
        wish, rules, members = self.wish, self.terms.rules, watch.document.members
        stay = rules.spares or (wish is not None and len(members) < wish.replicas)
        agents = [peer.seen() for peer in self.peers] if stay else []
        said = layout(members, agents, 1 if wish is None else wish.unit, rules)
        return "; ".join(filter(None, ("in process" if watch.in_process else "", said)))

    def confirm(self) -> None:
        """The change is behind us, one way or the other."""
        for pin in self.books.ledger.pins:
            pins.unpin(pin)
        self.books.note(pins=(), change=None)
        if self.watch is not None:
            self.watch.change, self.watch.pins = None, ()

    def sight(self) -> Sight:
        """Everything, as ``membership.decide`` wants it."""
        world = None if self.watch is None else self.watch.seen()
        if world is not None and self.preparation is not None:
            world = replace(world, preparing=self.preparation.seen())
        return Sight(
            wish=self.wish,
            wished_since=self.wished_since,
            agents=tuple(peer.seen() for peer in self.peers),
            world=world,
            gone=frozenset(self.gone),
            stirred_at=self.stirred_at,
            lease_until=self.lease_until,
            witness=self.witness_seen,
            behind=bool(self.behind),
            # One that is being looked at counts already.
            failures=self.books.ledger.failures + 1,
            barren=self._barren(world),
            hopeless=self.books.ledger.hopeless,
            held=self.books.ledger.held,
            build_after=self.build_after,
            rules=self.terms.rules,
        )

    def _barren(self, world: WorldSeen | None) -> tuple[int, ...]:
        ledger = self.books.ledger
        if world is None or world.failed is None or world.stepping or ledger.past is not None:
            return ()
        return (*ledger.barren, world.failed)

    def loss(self, cause: Cause, watch: Watch | None = None) -> str:
        """Why the latest world, or this one, was lost, in one sentence; empty: nothing tells."""
        watch = watch or self.watch
        if watch is None:
            return ""
        if watch.port_taken:
            port = watch.document.master_port
            return f"another program took port {port}, where the workers were to meet"
        found = self.found(cause, watch)
        if found is not None:
            return found.sentence
        if watch.torn_because:
            return f"workers could not reach each other: {watch.torn_because}"
        if watch.in_process and not watch.formed:
            return "members did not go over into it in time"
        return "a replica left" if cause is Cause.MEMBERSHIP else ""

    def found(self, cause: Cause, watch: Watch | None = None) -> Diagnosis | None:
        """Who failed first in the latest world, or this one, and why; None where nothing tells."""
        watch = watch or self.watch
        if watch is None or watch.port_taken:
            return None
        if watch.hung is not None:
            return watch.hung
        step = self.books.ledger.begun + watch.past.steps if watch.past.steps else None
        members, heard = watch.document.members, watch.heard_exits
        return diagnose(
            [] if cause is Cause.MEMBERSHIP else exits.failed(members, heard),
            gone=exits.lost(members, watch.gone or self.gone),
            finished=exits.succeeded(members, heard),
            step=step,
        )

    def follow(self, found: Diagnosis, watch: Watch) -> Diagnosis:
        """Remember a failure, and see to what ``values.diagnosis.policy`` says follows from it."""
        ledger = self.books.ledger
        failed = exits.failed(watch.document.members, watch.heard_exits)
        root = first(failed) if found.kind is not FailureKind.HANG else None
        signature = root[1].signature if root is not None else ""
        history = (*ledger.failed, occurrence(found, signature))[-REMEMBERED:]
        spare = self._can_spare(found.replica)
        what = consequence(history, spare=spare, staying=watch.left_behind)
        self.books.note(failed=history, hopeless=what.give_up)
        for replica in what.leave:
            if peer := self.peers.get(replica):
                peer.leaving_since, peer.unfit = self.clock(), what.told
        return then(found, what.told)

    def _can_spare(self, replica: int | None) -> bool:
        """Whether a world can be formed without it."""
        wish = self.wish
        if wish is None or replica is None:
            return False
        others = [each.seen() for each in self.peers if each.replica != replica]
        rest = [each for each in others if each.ready and each.leaving_since is None]
        need = max(wish.minimum, wish.unit)
        return bool(choose((), rest, wish.replicas, wish.unit, need, self.terms.rules.shape))
