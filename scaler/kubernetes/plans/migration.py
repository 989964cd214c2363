"""Moves pods: a replacement becomes ready elsewhere, then the old pod leaves.

A ScalePlan names some pods under ``migratePods``, and a plan of Brain names nodes. The pods that
must leave carry the plan's name as an annotation, so the next operator continues. Pods on a
cordoned node move, too. The scaler sees a pod that moves as *leaving*: it starts another replica in
its place, on another node. Once as many replicas run as are desired, the operator evicts the old
pod within the limits of disruption budgets, and the pod's agent hands over at a safe point.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import replace

from brain.errors import BadInput, BrainError, NotFound, Overloaded, Unavailable
from brain.types.plan import PlanState
from brain.types.plan import ScalePlan as BrainsPlan
from scaler.kubernetes.kinds import ElasticJob, ScalePlan
from scaler.kubernetes.pods import gang, identity
from scaler.kubernetes.pods.failures import unschedulable
from scaler.kubernetes.pods.placement import Capacity, placed
from scaler.kubernetes.pods.sight import node_of
from scaler.kubernetes.runtime.cluster import POD, Cluster, Object
from scaler.kubernetes.runtime.store import Store
from scaler.ports import ReplicaPhase, ReplicaSeen

log = logging.getLogger(__name__)

_OVER = ("Succeeded", "Failed")
#: Begins the annotation of a pod that a plan of Brain moves; no object has a name with a slash.
_BRAINS = "brain/"


class Migrations:
    """Marks pods that should move, and evicts them when their replacements run."""

    def __init__(self, cluster: Cluster, pods: Store) -> None:
        self._cluster, self._pods = cluster, pods
        self._pods.index("job", identity.job_index)

    def begin(self, plan: ScalePlan, job: ElasticJob) -> list[str]:
        """Mark every pod that the plan names, and return the names.

        Raises:
            BadInput: a named pod is not a replica that the job may move.
        """
        mine = {pod["metadata"]["name"]: pod for pod in self._pods.by("job", job.metadata.uid)}
        found = [
            movable(each.name, mine, index) for index, each in enumerate(plan.spec.migrate_pods)
        ]
        for pod in found:
            self._mark(pod, plan.metadata.name)
        return [str(pod["metadata"]["name"]) for pod in found]

    def left(self, plan: ScalePlan, job: ElasticJob) -> list[str]:
        """Return the names of marked pods that still exist."""
        return [
            str(pod["metadata"]["name"])
            for pod in self._pods.by("job", job.metadata.uid)
            if marked(pod) == plan.metadata.name and alive(pod)
        ]

    def stop(self, plan: ScalePlan, job: ElasticJob) -> None:
        """Stop moving pods; those that still exist stay."""
        names = self.left(plan, job)
        for pod in self._pods.by("job", job.metadata.uid):
            if pod["metadata"]["name"] in names:
                self._mark(pod, None)

    def follow(self, plan: BrainsPlan | None, mine: Sequence[Object]) -> None:
        """Mark the pods that a plan of Brain moves, and unmark those of an abandoned plan.

        Marks of ScalePlans stay, because their pods leave in any case.

        ``plan`` is Brain's newest plan; ``mine`` are the job's pods.
        """
        moves: dict[str, str] = {}
        if plan is not None:
            name = f"{_BRAINS}{plan.generation}"
            moves = {str(pod["metadata"]["name"]): name for pod in surplus(plan, mine)}
        for pod in mine:
            wanted, mark = moves.get(pod["metadata"]["name"]), marked(pod)
            ours = not mark or mark.startswith(_BRAINS)
            if ours and mark != (wanted or "") and gang.stays(pod):
                self._mark(pod, wanted)

    def carry_out(
        self,
        moving: Sequence[Object],
        seen: Sequence[ReplicaSeen],
        wished: int,
        *,
        at_once: Callable[[Object], bool],
    ) -> str:
        """Evict marked pods once other pods run in their place. Return why some marked pods stay
        for now, or an empty text.

        ``at_once`` are pods that do not wait for a replacement, because two pods of one rank would
        disturb each other, or because no replacement came in time.
        """
        ready = sum(one.alive and one.phase is ReplicaPhase.RUNNING for one in seen)
        due = [pod for pod in moving if ready >= wished or at_once(pod)]
        kept = {pod["metadata"]["name"]: why for pod in due if (why := self._evict(pod))}
        if failed := {name: why for name, why in kept.items() if isinstance(why, Unavailable)}:
            words = next(iter(failed.values()))
            return f"the API server does not evict {', '.join(failed)} now: {words}"
        if kept:
            return f"a disruption budget keeps {', '.join(kept)} in place for now"
        if len(due) < len(moving):
            waiting = len(moving) - len(due)
            return f"{waiting} pods move once {wished - ready} replacements run elsewhere"
        return ""

    def _evict(self, pod: Object) -> BrainError | None:
        """Evict a pod; return the reason if the API server does not evict it now.

        The server fails if several disruption budgets select the pod, until one of them is gone.
        """
        metadata = pod["metadata"]
        try:
            self._cluster.evict(metadata["namespace"], metadata["name"], uid=metadata.get("uid"))
        except NotFound:
            log.debug("%s is gone already", metadata["name"])
        except (Overloaded, Unavailable) as why:
            log.info("%s: %s", metadata["name"], why)
            return why
        return None

    def _mark(self, pod: Object, plan: str | None) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"annotations": {identity.MOVES: plan}}}
        try:
            self._pods.learn(
                self._cluster.merge(POD, metadata["namespace"], metadata["name"], patch)
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])


def movable(name: str, mine: dict[str, Object], index: int) -> Object:
    """Return the pod of this name, if it may move. ``index`` is its position in
    ``spec.migratePods``.

    Raises:
        BadInput: none of the living pods in ``mine`` has this name.
    """
    pod = mine.get(name)
    if pod is None or not alive(pod):
        running = ", ".join(sorted(each for each, pod in mine.items() if alive(pod)))
        raise BadInput(
            f"spec.migratePods.{index}.name {name!r} is not the pod of a running replica that "
            f"can move; these can move: {running or 'none'}",
            field=f"spec.migratePods.{index}.name",
        )
    return pod


def marked(pod: Object) -> str:
    """Return the name of the plan that moves a pod; empty if no plan does."""
    return str((pod["metadata"].get("annotations") or {}).get(identity.MOVES) or "")


def under_way(plan: BrainsPlan) -> bool:
    """True if a plan of Brain that only moves replicas is being applied."""
    return plan.only_moves and plan.state in (PlanState.APPLYING, PlanState.APPLIED)


def surplus(plan: BrainsPlan, pods: Iterable[Object]) -> list[Object]:
    """Return the pods that a plan of Brain moves: those beyond the planned number on their nodes.

    There are such pods only while a plan that merely moves replicas is being applied. Pods that
    were created for this plan stay.
    """
    if not under_way(plan):
        return []
    room, going = Counter(dict(plan.target.nodes)), []
    placed = [(pod, node) for pod in pods if gang.stays(pod) and (node := node_of(pod))]
    placed.sort(key=lambda each: -identity.generation_of(each[0]))
    for pod, node in placed:
        if room[node] <= 0 and identity.generation_of(pod) < plan.generation:
            going.append(pod)
        room[node] -= 1
    return going


def lacking(plan: BrainsPlan, like: Object, pods: Sequence[Object], capacity: Capacity) -> str:
    """Return why a node of a plan that moves replicas lacks capacity; empty if every node has it.

    ``like`` is the pod of a replica that moves, without its node; ``pods`` are the job's pods.
    While the scheduler has not examined a new pod yet, the result is empty, because the pod may
    still be placed.
    """
    waiting = [pod for pod in pods if gang.stays(pod) and not _node(pod)]
    if any(not gang.gated(pod) and not unschedulable(pod) for pod in waiting):
        return ""
    # Pods that end there make room for others of their job.
    there = Counter(_node(pod) for pod in pods if alive(pod))
    for name, count in plan.target.nodes:
        free = {each: amounts for each, amounts in capacity.free.items() if each == name}
        more = [like] * max(0, count - there[name])
        found = placed(more, replace(capacity, free=free))
        if found.refusals is not None:
            why = "; ".join(found.refusals.values()) or "is not there"
            return f"replicas move to node {name} once the node has room; at present the node {why}"
    return ""


def stranded(pods: Iterable[Object], nodes: Container[str]) -> list[Object]:
    """Return pods that wait for a node to which no plan moves replicas any more.

    ``nodes`` are the nodes that the plan names.
    """
    return [
        pod
        for pod in pods
        if (to := (pod["metadata"].get("annotations") or {}).get(identity.MOVES_TO))
        and to not in nodes
        and gang.stays(pod)
        and not _node(pod)
    ]


def left_by(pods: Iterable[Object]) -> Collection[str]:
    """Return the nodes that pods must leave; no replacement starts there."""
    return {_node(pod) for pod in pods if marked(pod) and _node(pod)}


def alive(pod: Object) -> bool:
    """True if the pod has not ended."""
    return (pod.get("status") or {}).get("phase") not in _OVER


def _node(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
