"""Observations of one world's workers."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from brain.types.diagnosis import Diagnosis
from brain.types.roles import leading
from brain.types.world import Cause, Member, MemoryCheckpoint
from launcher.coordinator.pins import Pin, loads
from launcher.coordinator.world.ledger import WorldPast
from launcher.coordinator.world.monitor.exits import Exits
from launcher.coordinator.world.monitor.saves import WorldSaves
from launcher.values.config import WorldDocument
from launcher.values.observation import WorldChange, WorldObserved, WorldPhase
from launcher.values.ram_checkpoint import links
from launcher.values.ram_checkpoint.ages import worth_telling
from launcher.values.workers import ProbeEvent, Progress, WorkerExit

#: Steps after which a worker that has met no other worker is expected to meet none.
_LEAST_STEPS = 10


class WorldMonitor:
    """Observations of one world, from messages. Times are seconds of the coordinator's clock."""

    def __init__(
        self, document: WorldDocument, *, goal: int, since: float, declared: bool, blind: bool
    ) -> None:
        self.document = document
        by = (m.replica for m in document.members if m.address == document.coordinator)
        #: Member that coordinated when it was formed; None if a non-member did.
        self.coordinated = next(by, None)
        #: WORLD_SIZE.
        self.processes = document.processes
        #: Members with whose end the job is over, and their processes.
        self._leaders = frozenset(each.replica for each in leading(document.members))
        self._leading = sum(each.processes for each in leading(document.members))
        #: Replicas desired by the generation that it answers.
        self.goal = goal
        self.generation = document.generation
        self.change: WorldChange | None = None
        self.pins: tuple[Pin, ...] = ()
        self.loaded: list[str] = []
        self.ended_by: Cause | None = None
        #: The cause of its end, if that has not been reported yet.
        self.untold: Cause | None = None
        #: The finding while it stood still; None if there was none.
        self.hung: Diagnosis | None = None
        self.phase = WorldPhase.RUNNING
        self.unloaded = False
        #: True if another program has the port at which the workers should meet.
        self.port_taken = False
        #: Replicas whose workers all have a session, and whether they came over in process.
        self.elastic: set[int] = set()
        self.in_process = False
        #: Those of its members that had the state as they came over.
        self._stayed: frozenset[int] = frozenset()
        #: Replica -> world of its workers, which have no place here and are to end.
        self.parting: dict[int, int] = {}
        #: The same for workers that were asked to end, and have their grace.
        self.parted: dict[int, int] = {}
        #: Its members that were gone when others went on from it in process, as they did.
        self.gone: frozenset[int] = frozenset()
        self.left_behind = False
        #: Members of which a worker has failed and may not have ended yet.
        self.failing: set[int] = set()
        #: Time since which workers cannot reach each other, and True if they have never met.
        self.torn_at: float | None = None
        self.torn_because = ""
        self.unbuilt = False
        self._since, self._declared, self._blind = since, declared, blind
        self._dispersed = False
        self._members = frozenset(member.replica for member in document.members)
        self._unstarted: set[int] = set(self._members)
        self._running: set[int] = set(self._members)
        #: When each was heard, in that order; telling it twice is once.
        self._exits: dict[tuple[int, WorkerExit], float] = {}
        self._failed: int | None = None
        self._done = 0
        self._asked_ends = self._lease_ends = False
        self._stepping = False
        self._pinned_loaded = False
        self._progress: dict[int, tuple[Progress, float]] = {}
        self.saves = WorldSaves(self._leading)
        #: A worker met another one; ranks that had not when they saved, and had made some steps.
        self._met = False
        self._alone: set[int] = set()
        #: How far each member's memory is ahead of storage, and the last report of it.
        self._memory: dict[int, MemoryCheckpoint] = {}
        self._memory_told: dict[int, MemoryCheckpoint] = {}

    @property
    def formed(self) -> bool:
        """True if all workers have started."""
        return not self._unstarted

    @property
    def stepping(self) -> bool:
        """True if a first step was observed, or cannot be observed."""
        return self._stepping or (self._blind and self.formed)

    @property
    def replicas(self) -> frozenset[int]:
        """Replicas of this world's members."""
        return self._members

    def follow(self, before: "WorldMonitor") -> None:
        """Take over the last world's workers and their saved checkpoints."""
        self.in_process, self.elastic = True, set(self._members)
        self._stayed = self._members & before.replicas
        self.parting = {r: e for r, e in before.parting.items() if r not in self._members}
        self.parted = {r: e for r, e in before.parted.items() if r not in self._members}
        self.saves.follow(before.saves)
        self.loaded = list(before.loaded)

    def ending(self, replica: int) -> set[int | None]:
        """Return the epochs of a replica's workers that still run and are not in this world; None
        stands for a missing epoch.
        """
        return {self.parting.get(replica), self.parted.get(replica)}

    def fails(self, replica: int) -> None:
        """Store that a member's worker is failing; its exit code comes later."""
        self.failing.add(replica)

    @property
    def awaited(self) -> bool:
        """True if the exit of a failing worker has not been reported yet."""
        return bool(self.failing - {replica for replica, _ in self._exits})

    def torn(self, reason: str, *, unbuilt: bool, now: float) -> None:
        """Store that workers cannot reach each other."""
        self.torn_because = self.torn_because or reason
        self.torn_at = now if self.torn_at is None else self.torn_at
        self.unbuilt |= unbuilt

    def remembers(
        self, replica: int, memory: MemoryCheckpoint, now: datetime
    ) -> tuple[Member, ...] | None:
        """Store how far a member's checkpoints in memory are ahead of storage.

        Return the members to report, or None if nothing new is worth reporting.
        """
        self._memory[replica] = memory
        told = worth_telling(self._memory, now)
        if told == self._memory_told:
            return None
        self._memory_told = told
        return tuple(replace(m, memory=told.get(m.replica)) for m in self.document.members)

    def started(self, replica: int) -> bool:
        """Store that all workers of a member have started; return True if this was the last member
        to start.
        """
        self._unstarted.discard(replica)
        return self.formed

    def heard(self, event: ProbeEvent, now: float) -> bool:
        """Store a probe's event; return True if it may change a decision."""
        path = links.real(event.path) if event.path else None
        self._met |= bool(event.met)
        match event.event:
            case "saved" if path:
                if event.met is False and (event.step or 0) >= _LEAST_STEPS:
                    self._alone.add(event.rank)
                return self.saves.save(event, path, now, stepping=self._stepping) or self.copies
            case "loaded" if path and not self._stepping:
                self.loaded.append(path)
                self._pinned_loaded |= any(loads(pin, path, event.inode) for pin in self.pins)
            case "parked":
                self.saves.parked(event.rank, path)
                return self.saves.reached(stepping=self._stepping)
            case "stepping" if event.rank == 0:
                self.first_step()
                return True
        return False

    @property
    def copies(self) -> bool:
        """True if several workers run independent copies: each has saved before it met another."""
        return self.processes > 1 and not self._met and len(self._alone) == self.processes

    def first_step(self) -> None:
        """Store that rank 0 completed a step."""
        if not self._stepping:
            self._stepping = True
            self.unloaded = bool(self.pins) and not self._pinned_loaded

    def went(self, progress: Iterable[Progress], offset: float) -> None:
        """Store the progress; the workers' clock plus ``offset`` seconds is the coordinator's
        clock.
        """
        for each in progress:
            self._progress[each.rank] = (each, offset)

    def exited(self, replica: int, exit: WorkerExit, now: float = 0.0) -> bool:
        """Store a worker's exit; return True if it may change a decision."""
        if (replica, exit) in self._exits:
            return False
        self._exits[replica, exit] = now
        self._done += replica in self._leaders and exit.code == 0 and not exit.stopped
        self._asked_ends |= exit.stopped
        self._lease_ends |= exit.lapsed
        if exit.stopped:
            self.saves.ended(exit.rank)
        if exit.code == 0 or exit.lapsed or exit.stopped:
            return exit.code != 0 or exit.stopped or self.finished
        self._failed = exit.exit_code if self._failed is None else self._failed
        return True

    @property
    def finished(self) -> bool:
        """True if all workers exited with 0, or if all workers with the training state exited with
        0 before newcomers could receive this state.
        """
        return self._done == self._leading or (not self.formed and self._ended_before_it)

    @property
    def _ended_before_it(self) -> bool:
        """True if the training was over before its workers went over into this world."""
        members = [m for m in self.document.members if m.replica in self._stayed]
        well = [r for r, exit in self._exits if exit.code == 0 and not exit.stopped]
        ended = sum(replica in self._stayed for replica in well)
        return bool(members) and ended == sum(member.processes for member in members)

    def stopped(self, replica: int) -> bool:
        """Store that a member has no more workers; return True if it was the last member with
        workers.
        """
        self._running.discard(replica)
        return not self._running

    def again(self, replica: int) -> None:
        """Store that a lost member came back with its workers."""
        self._running.add(replica)

    def without(self, replica: int) -> None:
        """Store that a member is connected but has no workers of this world."""
        self._dispersed = True
        self.stopped(replica)

    @property
    def still(self) -> set[int]:
        """Members whose workers may still run."""
        return set(self._running)

    @property
    def past(self) -> WorldPast:
        """Progress of this world so far, in the form that its successor needs."""
        if not self._progress:
            return WorldPast()
        first = self._progress.get(0)
        steps = first[0].steps if first else max(p.steps for p, _ in self._progress.values())
        last = [p.last_step_ns / 1e9 + offset for p, offset in self._progress.values() if p.steps]
        return WorldPast(
            steps=steps,
            last_step_at=max(last, default=None),
            saved=self.saves.steps,
        )

    @property
    def first_step_at(self) -> float | None:
        """Time of the first completed step, in seconds of the coordinator's clock; None before that
        step.
        """
        steps = [p.first_step_ns / 1e9 + o for p, o in self._progress.values() if p.first_step_ns]
        return min(steps, default=None)

    def stands_still(self, found: Diagnosis, code: int | None) -> None:
        """Store a hang; with a ``code`` it counts as a failure with that exit code."""
        self.hung = found
        if code is not None and self._failed is None:
            self._failed = code

    @property
    def progress(self) -> list[tuple[Progress, float]]:
        """Progress of each worker, with the seconds between its clock and the coordinator's."""
        return list(self._progress.values())

    def member_of(self, rank: int) -> Member | None:
        """Return the member that runs ``rank``; None if there is no such rank."""
        first = 0
        for member in self.document.members:
            if rank < first + member.processes:
                return member
            first += member.processes
        return None

    @property
    def heard_exits(self) -> Exits:
        """Exits of workers with their replicas, in the order of the reports, each with the time of
        its report.
        """
        return self._exits

    @property
    def exits(self) -> list[WorkerExit]:
        """Exits of workers, without times and replicas."""
        return [exit for _, exit in self._exits]

    def seen(self) -> WorldObserved:
        """Return the observations in the form that ``membership.decide`` needs."""
        return WorldObserved(
            epoch=self.document.epoch,
            generation=self.generation,
            goal=self.goal,
            members=self.document.members,
            phase=self.phase,
            since=self._since,
            formed=self.formed,
            stepping=self.stepping,
            failed=1 if self._failed is None and self.failing else self._failed,
            sessions=frozenset(self.elastic),
            was_elastic=self.document.elastic,
            in_process=self.in_process,
            broken=self._broken(),
            torn_since=self.torn_at,
            unbuilt=self.unbuilt,
            dispersed=self._scattered(),
            port_taken=self.port_taken,
            finished=self.finished,
            unloaded=self.unloaded,
            change=self.change,
            # A world that loaded a checkpoint is one of a script that saves.
            saves=self.saves.seen(
                declared=self._declared or bool(self.loaded),
                told=any(p.saved_step for p, _ in self._progress.values()),
            ),
            parking=self.saves.seen_parking(stepping=self._stepping),
            coordinated=self.coordinated,
            ended_by=self.ended_by,
        )

    def _scattered(self) -> bool:
        """True if workers ended for reasons outside the script."""
        late = not self.saves.parks and self._asked_ends
        return self._dispersed or late or self._lease_ends

    def _broken(self) -> frozenset[int]:
        """Return members with a failed or ended worker."""
        ended = {replica for replica, _ in self._exits}
        return frozenset(ended | self.failing | (self._members - self._running))
