"""The cluster's autoscalers that target a job. Brain changes nothing that an autoscaler changes.

A HorizontalPodAutoscaler changes the size of its job, so Brain only advises on this job. A
VerticalPodAutoscaler changes the amounts that replicas reserve, so Brain changes no amounts.
"""

from collections.abc import Iterable, Mapping

from scaler.kubernetes.kinds import GROUP, Reason
from scaler.kubernetes.runtime import StoreChange
from scaler.kubernetes.runtime.cluster import HPA, VPA, Key, Kind, Object, key_of
from scaler.kubernetes.runtime.store import Store

#: The field of an autoscaler that names its target.
_TARGETS: Mapping[Kind, str] = {HPA: "scaleTargetRef", VPA: "targetRef"}


class Autoscalers:
    """The autoscalers in the operator's stores.

    If the cluster does not serve a kind of autoscaler, there are none of this kind.
    """

    def __init__(self) -> None:
        self._stores: dict[Kind, Store] = {}

    def follow(self, kind: Kind, store: Store) -> None:
        store.index("job", lambda obj: tuple(map(str, targets(kind, obj))))
        self._stores[kind] = store

    def of(self, job: Key) -> dict[Reason, str]:
        """Return a sentence about each autoscaler that targets the job, by the reason for the job's
        condition.
        """
        found = {kind: self._first(kind, job) for kind in self._stores}
        said: dict[Reason, str] = {}
        if name := found.get(HPA):
            said[Reason.AUTOSCALER] = (
                f"HorizontalPodAutoscaler {name} sets the size of this job, so Brain only "
                "advises; delete the autoscaler to let Brain resize the job"
            )
        if name := found.get(VPA):
            said[Reason.VERTICAL] = (
                f"VerticalPodAutoscaler {name} sets the amounts of replicas, so Brain does not "
                "change them; set its updateMode to Off to let Brain change them"
            )
        return said

    def _first(self, kind: Kind, job: Key) -> str:
        return min(
            (str(key_of(each).name) for each in self._stores[kind].by("job", str(job))), default=""
        )


def targets(kind: Kind, obj: Object) -> Iterable[Key]:
    """Return the job that an autoscaler targets, if it targets one."""
    spec = obj.get("spec") or {}
    target = spec.get(_TARGETS[kind]) or {}
    group = str(target.get("apiVersion", "")).rpartition("/")[0]
    advises = (spec.get("updatePolicy") or {}).get("updateMode") == "Off"
    if (group, target.get("kind")) == (GROUP, "ElasticJob") and not advises:
        yield Key(obj["metadata"].get("namespace", ""), str(target.get("name", "")))


def concerned(kind: Kind, change: StoreChange) -> list[Key]:
    """Return the jobs that a change to an autoscaler affects."""
    sides = [each for each in (change.old, change.new) if each is not None]
    return [job for each in sides for job in targets(kind, each)]
