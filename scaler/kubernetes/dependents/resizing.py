"""Carries out plans that change the amounts that running replicas reserve.

If the API server can resize pods, pods get their new amounts in place. A pod that cannot change in
place (the server is too old or refuses, or the pod's node has no capacity) gets the new amounts at
its next restart, whatever causes the restart. After a while the operator restarts the plan's
remaining pods, each at its safe point. A plan from Brain's own advice restarts no pod: if it cannot
be carried out in place, the plan fails and gives the reason.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from brain.errors import NotAllowed, NotFound
from brain.types.resources import Resources
from brain.views import JobView
from scaler.kubernetes.kinds import ElasticJob, Reason
from scaler.kubernetes.kinds.documents.templates import main_container, reserved
from scaler.kubernetes.kinds.quantities import quantity
from scaler.kubernetes.pods import amounts, bounds, identity
from scaler.kubernetes.pods.amounts import (
    AmountsHeld,
    amounts_alone,
    changing,
    wished,
    without_restart,
)
from scaler.kubernetes.pods.failures import over_quota
from scaler.kubernetes.pods.fitting import infeasible, said_bytes
from scaler.kubernetes.pods.orders import group_sizes, memory_after, past, specimen
from scaler.kubernetes.runtime.cluster import (
    LIMIT_RANGE,
    POD,
    QUOTA,
    Cluster,
    Conflict,
    Incapable,
    Invalid,
    Kind,
    Object,
)
from scaler.kubernetes.runtime.store import Store

#: Time after which a plan restarts pods that cannot be resized in place.
PATIENCE = timedelta(minutes=10)
_OVER = ("Succeeded", "Failed")


class Way(StrEnum):
    """The ways in which a pod can get its new amounts."""

    NOTHING = "nothing"
    #: Resize the pod in place.
    RESIZE = "resize"
    #: Wait for the kubelet, or for capacity on the node.
    WAIT = "wait"
    #: The pod has other amounts after its next restart.
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Next:
    """The next action on one pod, and its reason."""

    way: Way
    why: str = ""
    reason: Reason = Reason.RESIZING


@dataclass(frozen=True, slots=True)
class Resized:
    """The result of one check of the amounts of a job's pods."""

    reason: Reason = Reason.AS_PLANNED
    #: Why some pods do not hold the amounts that they should; empty if all do.
    message: str = ""


def following(pod: Object, document: Resources, wanted: Resources, *, offered: bool) -> Next:
    """Decide the next action on one living pod.

    ``document`` has the amounts that the template reserves. ``offered`` is True if the server
    resizes pods in place.
    """
    before = amounts.asked(pod)
    if before is None and wanted == document:
        # The pod is older than recorded amounts, or somebody else made it: it stays as it is.
        return Next(Way.NOTHING)
    if before != wanted:
        why = "" if offered else "the API server cannot resize pods in place"
        return Next(Way.RESIZE if offered else Way.RESTART, why)
    state, said = amounts.held(pod)
    match state:
        case AmountsHeld.HELD:
            return Next(Way.NOTHING)
        case AmountsHeld.COMING:
            return Next(Way.WAIT, said or "the kubelet is applying the change")
        case AmountsHeld.DEFERRED:
            return Next(Way.RESTART, f"the node has no room for the change now: {said}")
        case AmountsHeld.INFEASIBLE:
            return Next(Way.RESTART, f"the node cannot make the change: {said}")


def unenforced(view: JobView, found: Resized) -> str:
    """Return why the plan being applied must be abandoned; empty if it continues.

    A plan that needs another template is abandoned immediately. For any other obstacle, a person's
    plan waits until the obstacle is gone. Brain's own plan does not wait, because Brain will give
    its advice again.
    """
    plan, going = changing(view), found.reason in (Reason.AS_PLANNED, Reason.RESIZING)
    if plan is None or going or not (found.reason is Reason.IGNORED or without_restart(plan)):
        return ""
    return found.message


class Resizing:
    """Changes the amounts of running pods; repeated calls are harmless."""

    def __init__(
        self, cluster: Cluster, pods: Store, nodes: Store, *, patience: timedelta = PATIENCE
    ) -> None:
        self._cluster, self._pods, self._nodes = cluster, pods, nodes
        self.patience = patience
        #: Each job's pods whose resize the server refused, by uid: the amounts, and the server's
        #: words.
        self._refused: dict[str, dict[str, tuple[Resources, str]]] = {}
        #: The generation of each job's plan that changes amounts, and when it was first seen.
        self._plans: dict[str, tuple[int, datetime]] = {}
        #: True if the server resizes pods in place.
        self.offered = False

    def tend(
        self,
        job: ElasticJob,
        view: JobView,
        mine: Sequence[Object],
        end: Callable[[Object], None],
        now: datetime,
    ) -> Resized:
        """Bring every pod closer to its planned amounts: resize it, wait, or restart it.

        ``end`` ends a pod that must restart.

        Only a plan changes running pods; an edited template applies to new pods.

        Raises:
            BrainError: the API server is unreachable.
        """
        found = self._tend(job, view, mine, end, now)
        self.tell(mine, unenforced(view, found))
        return found

    def forget(self, job: str) -> None:
        """Forget a job that changes no amounts any more."""
        self._plans.pop(job, None)
        self._refused.pop(job, None)

    def tell(self, mine: Sequence[Object], why: str) -> None:
        """Annotate pods with the reason why they lack their plan's amounts.

        An empty reason removes the annotation.
        """
        for pod in mine:
            metadata = pod["metadata"]
            if (
                _stays(pod)
                and (metadata.get("annotations") or {}).get(identity.UNENFORCED, "") != why
            ):
                note = {"metadata": {"annotations": {identity.UNENFORCED: why or None}}}
                with suppress(Conflict, NotFound):
                    noted = self._cluster.merge(POD, metadata["namespace"], metadata["name"], note)
                    self._pods.learn(noted)

    def _tend(
        self,
        job: ElasticJob,
        view: JobView,
        mine: Sequence[Object],
        end: Callable[[Object], None],
        now: datetime,
    ) -> Resized:
        plan = changing(view)
        if plan is None:
            self.forget(view.id)
            return Resized()
        if self._plans.get(view.id, (None,))[0] != plan.generation:
            self._plans[view.id] = plan.generation, now
        alike: dict[str, list[Object]] = {}
        for pod in mine:
            alike.setdefault(identity.group_of(pod), []).append(pod)
        found = [
            self._tend_group(job, view, group, pods, end, now)
            for group, pods in sorted(alike.items())
        ]
        return max(found, key=_hindrance, default=Resized())

    def _tend_group(
        self,
        job: ElasticJob,
        view: JobView,
        group: str,
        mine: Sequence[Object],
        end: Callable[[Object], None],
        now: datetime,
    ) -> Resized:
        plan = changing(view)
        assert plan is not None, "the caller has looked"
        template, wanted = job.template_of(group), plan.target.of(group)
        document = reserved(template)
        refused = self._refused.get(view.id, {})
        found = {
            _uid(pod): self._way(pod, document, wanted, refused.get(_uid(pod)))
            for pod in mine
            if _stays(pod)
        }
        todo = [pod for pod in mine if found.get(_uid(pod), _NONE) != _NONE]
        if not todo:
            return Resized()
        if why := amounts.unserved(template, document, wanted):
            return Resized(Reason.IGNORED, why)
        requests = _not_below(amounts.of_main(template, wanted), template, mine)
        if refusal := self._beforehand(job, view, group, todo, requests):
            return refusal
        for pod in todo:
            if found[_uid(pod)].way is Way.RESIZE:
                found[_uid(pod)] = self._resize(pod, requests, view)
        left = [pod for pod in todo if found[_uid(pod)].way is Way.RESTART]
        due = None if without_restart(plan) else self._plans[view.id][1] + self.patience
        if left and due and now >= due:
            for pod in left:
                end(pod)
            return Resized(Reason.RESTARTS, f"{_named(left)} restart to get their new amounts")
        return _told(todo, found, due, bool(left))

    def _way(
        self,
        pod: Object,
        document: Resources,
        wanted: Resources,
        refused: tuple[Resources, str] | None,
    ) -> Next:
        if refused is not None and refused[0] == wanted:
            return Next(Way.RESTART, refused[1])
        return following(pod, document, wanted, offered=self.offered)

    def _beforehand(
        self,
        job: ElasticJob,
        view: JobView,
        group: str,
        todo: Sequence[Object],
        requests: Mapping[str, str],
    ) -> Resized | None:
        """Return why no pod is resized: no node holds such a pod, or the namespace forbids it."""
        fresh = [pod for pod in todo if amounts.asked(pod) != wished(view, group)]
        if not fresh:
            return None
        such = specimen(job, group)
        such = {**such, "spec": {**such["spec"], "containers": amounts.resized_pod(such, requests)}}
        sizes = group_sizes(job, view)
        size = sizes.get(group, view.replicas_wished - sum(sizes.values()))
        never = infeasible([such] * max(1, size), list(self._nodes))
        if never is not None:
            return Resized(Reason.NEVER_FITS, never)
        namespace = job.metadata.namespace
        more = [_change(pod, requests) for pod in fresh]
        if why := bounds.beyond_range(self._all(LIMIT_RANGE, namespace), more[0][1]):
            return Resized(Reason.FORBIDDEN, why)
        if why := bounds.beyond_quota(self._all(QUOTA, namespace), more):
            return Resized(Reason.NO_QUOTA, why)
        return None

    def _all(self, kind: Kind, namespace: str) -> Sequence[Object]:
        try:
            return self._cluster.list(kind, namespace).items
        except (NotAllowed, NotFound):
            # The server's answer to the resize says it.
            return ()

    def _resize(self, pod: Object, requests: Mapping[str, str], view: JobView) -> Next:
        """Have the server resize a pod; record the amounts and the plan."""
        metadata, wanted = pod["metadata"], wished(view, identity.group_of(pod))
        where = metadata["namespace"], metadata["name"]
        version = {"resourceVersion": metadata.get("resourceVersion")}
        patch = {"metadata": version, "spec": {"containers": amounts.resized_pod(pod, requests)}}
        note = {identity.RESERVES: amounts.written(wanted)}
        if amounts_alone(view):
            note[identity.GENERATION] = str(view.generation)
        try:
            self._cluster.merge(POD, *where, patch, sub="resize")
            noted = self._cluster.merge(POD, *where, {"metadata": {"annotations": note}})
        except (Conflict, NotFound) as why:
            return Next(Way.WAIT, str(why))
        except (Invalid, NotAllowed) as why:
            if isinstance(why, Incapable) or (isinstance(why, Invalid) and why.final):
                said = f"the API server refuses the change: {why}"
                self._refused.setdefault(view.id, {})[_uid(pod)] = wanted, said
                return Next(Way.RESTART, said)
            quota = over_quota(str(why))
            reason = Reason.FORBIDDEN if quota is None else Reason.NO_QUOTA
            return Next(Way.WAIT, f"the operator tries the change again: {why}", reason)
        self._pods.learn(noted)
        return Next(Way.WAIT, "the kubelet is applying the change")


_NONE = Next(Way.NOTHING)


def _not_below(
    requests: Mapping[str, str], template: Object, mine: Sequence[Object]
) -> dict[str, str]:
    """Return requests with no less memory than pods have got after OOM kills."""
    least = memory_after(template, past(mine).kills)
    if least is None or quantity(requests.get("memory", "0"), "memory") >= least:
        return dict(requests)
    return {**requests, "memory": said_bytes(least)}


def _change(pod: Object, requests: Mapping[str, str]) -> tuple[amounts.Amounts, amounts.Amounts]:
    before: amounts.Amounts = main_container(pod).get("resources") or {}
    return before, amounts.resized(before, requests)


def _told(
    todo: Sequence[Object], found: Mapping[str, Next], due: datetime | None, restarts: bool
) -> Resized:
    why = Counter(found[_uid(pod)].why for pod in todo)
    said = "; ".join(f"{count} of {len(todo)} pods: {each}" for each, count in why.most_common(3))
    if not restarts:
        return Resized(max((found[_uid(pod)].reason for pod in todo), key=_gravity), said)
    if due is None:
        return Resized(
            Reason.WAITS_FOR_RESTART,
            (
                f"{said}. These pods get their new amounts at their next restart, because Brain "
                "does not restart pods for its own advice"
            ),
        )
    return Resized(
        Reason.WAITS_FOR_RESTART,
        f"{said}. These pods get their new amounts at their next restart, by {due:%H:%M} UTC "
        "at the latest",
    )


def _hindrance(found: Resized) -> tuple[bool, bool]:
    """Order results by what keeps pods from their amounts."""
    going = found.reason in (Reason.AS_PLANNED, Reason.RESIZING)
    return not going, bool(found.message)


def _gravity(reason: Reason) -> bool:
    return reason is not Reason.RESIZING


def _named(pods: Sequence[Object]) -> str:
    return ", ".join(pod["metadata"]["name"] for pod in pods)


def _uid(pod: Object) -> str:
    return str(pod["metadata"].get("uid") or pod["metadata"]["name"])


def _stays(pod: Object) -> bool:
    over = (pod.get("status") or {}).get("phase") in _OVER
    return not over and "deletionTimestamp" not in pod["metadata"]
