"""The coordinator's observations: the input of ``launcher.coordinator.membership``.

This module is pure and uses only values. Times are seconds of the coordinator's monotonic clock.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from brain.types.grace import SAFE_POINT_SECONDS
from brain.types.resources import NodeName
from brain.types.roles import WORKER, Roles
from brain.types.world import Cause, DesiredWorld, Member
from launcher.values.action import FormWorld
from launcher.values.witness import NO_WITNESS, WitnessObserved


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentObserved:
    """An agent that is connected to the coordinator."""

    replica: int
    node: NodeName
    address: str
    processes: int
    #: Group of its replica, or ``worker``.
    group: str = WORKER
    #: Generation that its replica was started for.
    generation: int = 0
    #: It can start workers quickly; until then it is counted, but not used.
    ready: bool = True
    #: When it said hello; only those that are not ready are waited for.
    since: float = 0.0
    #: GROUP_RANK that it asks for when it is new; None for any.
    rank: int | None = None
    #: Time of its notice to leave; None if it stays.
    leaving_since: float | None = None
    #: Where it is, outermost first: zone, spine, rack, switch; empty: not known.
    topology: tuple[str, ...] = ()
    #: A port free on its machine.
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A job that requests a number of processes (``--world``), not replicas of a fixed size.

    Its desired worlds count processes; agents of any size may be used if their processes add up.
    """

    #: Processes desired (WORLD_SIZE).
    processes: int
    #: Fewer will do while no more can be had.
    least: int
    #: Most processes that will do if the exact number cannot be met.
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """The known facts about the script's checkpoints."""

    #: The job document names one, or this world loaded one.
    declared: bool = False
    #: Completed saves seen in this world.
    count: int = 0
    #: Between the last two of them; None before two were seen.
    interval_seconds: float | None = None

    @property
    def known(self) -> bool:
        """True if a save can be awaited."""
        return self.declared or self.count > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldParking:
    """The wait for a safe point."""

    since: float
    reached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldChange:
    """A planned change that is not confirmed, because its world has not made a step from the
    checkpoint.
    """

    from_goal: int
    from_generation: int
    #: Roles of the world before, in order of rank.
    from_roles: Roles = ()
    to_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationObserved:
    """The next world's workers, started early and held before they run the script.

    The present world trains meanwhile.
    """

    form: FormWorld
    since: float
    #: All its agents said that their workers wait at the gate; or, in process, that they have
    #: built its group and change at one step.
    ready: bool = False
    #: Why it cannot be; the change takes the ordinary way.
    failed: str | None = None
    #: Its workers wait at no gate: those that train build its group.
    in_process: bool = False


class WorldPhase(StrEnum):
    #: Its workers run, or are being started.
    RUNNING = "running"
    STOPPING = "stopping"
    #: None of its workers runs any more.
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldObserved:
    """The latest world of the job."""

    epoch: int
    generation: int
    #: Replicas that were desired by that generation.
    goal: int
    #: In order of rank.
    members: tuple[Member, ...]
    phase: WorldPhase
    #: Time of the order to start its workers.
    since: float = 0.0
    #: All workers were started.
    formed: bool = True
    #: The first step was seen (or cannot be seen).
    stepping: bool = True
    #: Exit code of the worker that failed first; None if none did.
    failed: int | None = None
    #: A worker ended itself because its lease ran out.
    dispersed: bool = False
    #: Members all of whose workers can go over into another world without being ended.
    sessions: frozenset[int] = frozenset()
    #: True if all of them could, as known before a coordinator was lost.
    was_elastic: bool = False
    #: It was formed by workers that went over into it.
    in_process: bool = False
    #: Members some of whose workers have ended, or were never there.
    broken: frozenset[int] = frozenset()
    #: Time since which workers report that they cannot reach each other; None if they can.
    torn_since: float | None = None
    #: They say that they have never met.
    unbuilt: bool = False
    #: True if another program took the workers' port, which is no failure of theirs.
    port_taken: bool = False
    #: All workers ended with 0.
    finished: bool = False
    #: It stepped without loading the checkpoint that was pinned for it.
    unloaded: bool = False
    change: WorldChange | None = None
    saves: Saves = Saves()
    parking: WorldParking | None = None
    preparing: PreparationObserved | None = None
    #: Member that coordinated as it was formed; it decides between halves that see no other.
    coordinated: int | None = None
    #: Why it was ended; None while it runs, and after a stop that its owner asked for.
    ended_by: Cause | None = None

    @property
    def elastic(self) -> bool:
        """True if all workers of this world can change to another world without a restart."""
        return all(member.replica in self.sessions for member in self.members)

    @property
    def stopped(self) -> bool:
        """True if the owner stopped this world, so that Brain does not heal it."""
        return self.phase is WorldPhase.ENDED and self.ended_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWorld:
    """A change that was abandoned."""

    generation: int
    #: Saves that had been seen by then; with another one, healing is tried again.
    saves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRules:
    """The coordinator's time limits and rules, except those that the desired world gives."""

    #: Seconds to wait for a safe point before an interval was seen.
    safe_point_seconds: float = 120.0
    #: The same if the script gets a signal to save; None if it gets none.
    signal_seconds: float | None = None
    #: A world without checkpoints may be restarted while it is younger than so many seconds;
    #: more than 0 only where nobody asked for elasticity but by starting another agent.
    free_seconds: float = 0.0
    #: Seconds that a leaving member is kept for a safe point.
    leave_seconds: float = SAFE_POINT_SECONDS
    #: True to keep even the last agent of a job; False if a person ends it.
    last_waits: bool = True
    #: Agents that come and go within so many seconds of each other make one change.
    debounce_seconds: float = 0.05
    #: Seconds that a first world waits for an agent that is here, but not ready.
    ready_seconds: float = 10.0
    #: Seconds that a first world of fewer than all waits for unseen members of an earlier one.
    alone_seconds: float = 0.0
    #: Seconds after which a job ends if its first world cannot be formed.
    join_seconds: float = math.inf
    #: Seconds that the workers of a planned world may take to its gate; 0: none are started early.
    prepare_seconds: float = 60.0
    #: Seconds within which a desired change must find a world that steps.
    first_step_seconds: float = 120.0
    #: Number of failures with the same code, before any step, that end the job; None for no limit.
    barren_worlds: int | None = None
    #: Ranks of a tensor-parallel group, and pipeline stages; their product is one whole network.
    tensor: int = 1
    pipeline: int = 1
    #: The job asked for processes, and desired worlds count those; None: they count replicas.
    shape: Shape | None = None
    #: True: agents have roles from their start, as in pods; False: a rank has a role.
    fixed_roles: bool = False
    #: Agents beyond the desired world wait as warm spares until the job ends; else they are let go.
    spares: bool = False

    @property
    def by_hand(self) -> bool:
        """True if only a person at a terminal would see messages about problems."""
        return self.free_seconds > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObserved:
    """Everything that the coordinator knows about its job."""

    desired: DesiredWorld | None
    #: When the desired world's generation was first seen.
    desired_since: float = 0.0
    agents: tuple[AgentObserved, ...] = ()
    world: WorldObserved | None = None
    #: Members of the latest world that are proved to be gone.
    gone: frozenset[int] = frozenset()
    #: When an agent last came, became ready or was lost.
    stirred_at: float = -math.inf
    #: By when every worker that was not heard of has ended itself.
    lease_until: float = 0.0
    #: Of the latest world.
    witness: WitnessObserved = NO_WITNESS
    #: An agent that is here knows of a later world; what is known of the last one may be old.
    behind: bool = False
    failures: int = 0
    #: Exit codes of worlds that failed while no step of the job was ever seen.
    barren: tuple[int, ...] = ()
    #: Why the failure that ended the last world would only come again; empty: it may not.
    hopeless: str = ""
    held: HeldWorld | None = None
    #: Time before which no world is built in process, because the last attempt failed.
    build_after: float = -math.inf
    rules: WorldRules = WorldRules()
