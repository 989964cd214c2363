"""The record of the replicas that Brain requested from another project's controller, and of their
ends.

Controllers number pods by position, and reuse positions; Brain numbers replicas by ids, which are
never reused. The record maps positions to ids. It is stored in a Secret that the scaler creates and
the job owns. ``matched`` compares the record with the pods. All functions are pure.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from brain.types.resources import NodeName, Resources
from brain.types.world import ReplicaExit
from scaler.adapters.training import Training
from scaler.kubernetes.kinds.documents import reserved
from scaler.kubernetes.pods.failures import Remedy, failure
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.ports import ReplicaPhase, ReplicaSeen

#: Number of ended replicas that are remembered: a Secret holds 1 MiB, an entry takes 200 bytes.
ENDED_KEPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEntry:
    """One replica that Brain requested, or that it adopted because its pod existed."""

    id: int
    #: The pod's place (``place_of``); another replica may have it after this one has ended.
    pod: str
    #: uid of the replica's pod, once the pod was seen.
    uid: str | None = None
    generation: int
    started_at: datetime
    asked_at: datetime | None = None
    ended_at: datetime | None = None
    exit: ReplicaExit | None = None
    exit_code: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """The value of a job's ``suspend`` that Brain wrote, or of which Brain has been informed."""

    suspended: bool
    #: Generation of the object that was read before: a write that never came leaves it as it was.
    generation: int
    #: Version of the desired world that followed a suspension by somebody else: an older desired
    #: world resumes nothing.
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job's replicas, lowest id first, without those that ended long ago."""

    entries: tuple[RecordEntry, ...] = ()
    #: Greater than every id of a forgotten replica.
    forgotten: int = 0
    #: None before the first look at the job.
    suspension: Suspension | None = None

    @property
    def next_id(self) -> int:
        """Return an id greater than every id that was ever used."""
        return max(self.forgotten, max((each.id for each in self.entries), default=-1) + 1)

    @property
    def open(self) -> tuple[RecordEntry, ...]:
        """Return the entries whose end is not recorded."""
        return tuple(each for each in self.entries if each.exit is None)

    def entry(self, id: int) -> RecordEntry | None:
        return next((each for each in self.entries if each.id == id), None)

    def put(self, entry: RecordEntry) -> "JobRecord":
        """Return the record with this entry in place of the entry with the same id."""
        others = [each for each in self.entries if each.id != entry.id]
        return replace(self, entries=tuple(sorted((*others, entry), key=lambda each: each.id)))

    def bounded(self, present: Collection[str], count: int = ENDED_KEPT) -> "JobRecord":
        """Return the record without its oldest ended entries.

        Entries whose uid is in ``present`` stay.
        """
        ended = [each for each in self.entries if each.exit is not None]
        going = {each.id for each in ended[: max(0, len(ended) - count)]}
        going -= {each.id for each in ended if each.uid in present}
        if not going:
            return self
        kept = tuple(each for each in self.entries if each.id not in going)
        return replace(self, entries=kept, forgotten=max(self.forgotten, max(going) + 1))


def place_of(pod: Object) -> str:
    """Return the name under which a controller recreates the same pod.

    The name of an indexed Job's pod ends in random letters; its labels have the index.
    """
    labels = pod["metadata"].get("labels") or {}
    index = labels.get("batch.kubernetes.io/job-completion-index")
    name = pod["metadata"]["name"]
    return str(name) if index is None else f"{labels['batch.kubernetes.io/job-name']}-{index}"


def changed_elsewhere(record: JobRecord, training: Training) -> bool | None:
    """Return the value of ``suspend`` that another program wrote and of which Brain has not been
    informed.

    None if there is no such value.
    """
    known = record.suspension
    if known is None or training.over or training.generation <= known.generation:
        return None
    return None if training.suspended is known.suspended else training.suspended


def matched(
    record: JobRecord, training: Training, pods: Sequence[Object], now: datetime
) -> JobRecord:
    """Return the record, updated from the pods of the job: new pods are assigned or adopted, and
    ends are recorded.

    A pod that the controller recreated is a new replica: the processes of the old pod are gone.
    """
    by_uid = {pod["metadata"]["uid"]: pod for pod in sorted(pods, key=_born)}
    known = {each.uid for each in record.entries}
    new = {place_of(pod): uid for uid, pod in by_uid.items() if uid not in known}
    for entry in record.open:
        if entry.uid is None and entry.pod in new:
            record = record.put(replace(entry, uid=new[entry.pod]))
        elif entry.uid is not None and entry.uid not in by_uid:
            record = record.put(_parted(entry, training, now))
    known = {each.uid for each in record.entries}
    for uid, pod in by_uid.items():
        if uid not in known:
            record = record.put(_adopted(record, pod, now))
    return _with_ends(record, by_uid, now).bounded(by_uid.keys())


def _parted(entry: RecordEntry, training: Training, now: datetime) -> RecordEntry:
    """Return the entry of a vanished pod, with its end if somebody asked for that."""
    if entry.asked_at is not None:
        detail = "its pod was deleted, as Brain asked"
    elif training.suspended:
        detail = f"its pod was deleted, because {training.kind.kind} {training.name} was suspended"
    else:
        return entry
    return replace(entry, exit=ReplicaExit.LEFT, ended_at=now, detail=detail)


def sights(
    record: JobRecord,
    training: Training,
    pods: Sequence[Object],
    amounts: Resources | None = None,
) -> tuple[ReplicaSeen, ...]:
    """Return the present state of every replica, lowest id first.

    ``amounts`` are the amounts that a plan wants each replica to reserve. If they differ from the
    template's amounts, ``unenforced`` of each replica says that the template's amounts stay in
    force.
    """
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    wanted = {training.pod_name(position) for position in range(training.replicas)}
    return tuple(
        _told(
            _sight(entry, by_uid.get(entry.uid or ""), entry.pod in wanted, training.resources),
            training,
            amounts,
        )
        for entry in record.entries
    )


def _told(seen: ReplicaSeen, training: Training, amounts: Resources | None) -> ReplicaSeen:
    kept = amounts is not None and amounts != seen.resources
    why = (
        f"Brain does not change the amounts of a {training.kind.kind}; to change them, edit the "
        "template"
    )
    return replace(seen, unenforced=why if kept else "")


def asked(record: JobRecord, training: Training) -> int:
    """Return the smallest size that keeps every replica that should not leave.

    A job of n replicas has the positions 0 to n - 1.
    """
    kept = {each.pod for each in record.open if each.asked_at is None}
    positions = [p for p in range(training.replicas) if training.pod_name(p) in kept]
    return max(positions, default=-1) + 1


def free_position(record: JobRecord, training: Training) -> int:
    """Return the first position that no replica has."""
    taken = {each.pod for each in record.open}
    position = 0
    while training.pod_name(position) in taken:
        position += 1
    return position


def _sight(
    entry: RecordEntry, pod: Object | None, wanted: bool, resources: Resources
) -> ReplicaSeen:
    phase, detail = _phase(entry, pod, wanted)
    node = ((pod or {}).get("spec") or {}).get("nodeName")
    return ReplicaSeen(
        id=entry.id,
        phase=phase,
        generation=entry.generation,
        resources=reserved(pod) if pod is not None else resources,
        started_at=entry.started_at,
        ended_at=entry.ended_at,
        exit=entry.exit,
        exit_code=entry.exit_code,
        detail=detail,
        asked_at=entry.asked_at,
        node=NodeName(node) if node else None,
    )


def _phase(entry: RecordEntry, pod: Object | None, wanted: bool) -> tuple[ReplicaPhase, str]:
    if entry.exit is not None:
        return ReplicaPhase.ENDED, entry.detail
    if pod is None:
        if entry.uid is not None:
            return ReplicaPhase.GONE, "its pod was deleted"
        return (ReplicaPhase.STARTING if wanted else ReplicaPhase.INTENDED), ""
    match (pod.get("status") or {}).get("phase"):
        case "Running":
            return ReplicaPhase.RUNNING, ""
        case "Failed":
            return ReplicaPhase.GONE, failure(pod).detail
        case _:
            return ReplicaPhase.STARTING, ""


def _adopted(record: JobRecord, pod: Object, now: datetime) -> RecordEntry:
    generation = max((each.generation for each in record.entries), default=0)
    return RecordEntry(
        id=record.next_id,
        pod=place_of(pod),
        uid=pod["metadata"]["uid"],
        generation=generation,
        started_at=_created(pod) or now,
    )


def _with_ends(record: JobRecord, by_uid: Mapping[str, Object], now: datetime) -> JobRecord:
    """Record final ends: a pod succeeded, or failed in a way that another pod would repeat."""
    for entry in record.open:
        pod = by_uid.get(entry.uid or "")
        match ((pod or {}).get("status") or {}).get("phase"):
            case "Succeeded":
                ended = replace(entry, exit=ReplicaExit.SUCCEEDED, exit_code=0, ended_at=now)
                record = record.put(ended)
            case "Failed" if pod and (why := failure(pod)).remedy is Remedy.FATAL:
                ended = replace(
                    entry,
                    exit=ReplicaExit.FAILED,
                    exit_code=why.exit_code,
                    detail=why.detail,
                    ended_at=now,
                )
                record = record.put(ended)
    return record


def _born(pod: Object) -> tuple[str, bool, int]:
    """Order by age; at equal age the Master first, then by index."""
    meta = pod["metadata"]
    role, _, index = place_of(pod).rpartition("-")
    number = int(index) if index.isdecimal() else 0
    return str(meta.get("creationTimestamp", "")), not role.endswith("-master"), number


def _created(pod: Object) -> datetime | None:
    text = pod["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(text) if isinstance(text, str) else None
