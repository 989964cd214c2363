"""What a main container is to reserve, and what a pod holds of it: pure."""

from typing import Any

import pytest

from brain.types.resources import Resources
from scaler.kubernetes.kinds.documents import reserved
from scaler.kubernetes.pods import amounts, bounds, identity
from scaler.kubernetes.pods.amounts import AmountsHeld

Json = dict[str, Any]
GIB = 2**30
SMALL = {"cpu": "500m", "memory": "1Gi"}


def template(*beside: Json, **spec: Any) -> Json:
    main = {"name": "main", "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}
    return {"spec": {"containers": [main, *beside], **spec}}


def a_container(requests: Json, **more: Any) -> Json:
    return {"name": "other", "resources": {"requests": requests}, **more}


def want(cpu: float, memory: float) -> Resources:
    return Resources(cpu_millis=int(cpu * 1000), memory_bytes=int(memory * GIB))


def test_other_containers_keep_what_they_have():
    made = template(a_container(SMALL))
    assert amounts.of_main(made, want(2.5, 4)) == {"cpu": "2", "memory": "3Gi"}


@pytest.mark.parametrize("restart", [None, "Always"])
def test_containers_before_it_count_where_they_stay_beside_it(restart: str | None):
    init = a_container({"cpu": "4"}, **({"restartPolicy": restart} if restart else {}))
    made = template(initContainers=[init])
    same = amounts.of_main(made, reserved(made))
    more = amounts.of_main(made, want(7, 2))
    assert (same["cpu"], more["cpu"]) == ("2", "3" if restart else "7")


def test_what_the_template_does_not_request_is_not_added():
    made = template()
    del made["spec"]["containers"][0]["resources"]["requests"]["memory"]
    assert amounts.of_main(made, want(3, 4)) == {"cpu": "3"}
    why = amounts.unserved(made, reserved(made), want(2, 4))
    assert why.startswith("Brain cannot change memory of its main container")


def test_amounts_of_a_whole_pod_and_accelerators_stay():
    made = template(resources={"requests": {"cpu": "4", "memory": "4Gi"}})
    assert amounts.of_main(made, want(8, 8)) == {}
    more = Resources(cpu_millis=2000, memory_bytes=2 * GIB, gpus=2)
    assert "plans cannot change accelerators" in amounts.unserved(
        template(), reserved(template()), more
    )


def pod(asked: Resources, told: Json | None = None, *conditions: Json) -> Json:
    made = template(a_container(SMALL))
    statuses = [{"name": "main", "resources": told}] if told else []
    note = {"elastic.iml.github.io/reserves": amounts.written(asked)}
    status = {"containerStatuses": statuses, "conditions": list(conditions)}
    return made | {"metadata": {"annotations": note}, "status": status}


def test_a_replica_reserves_what_was_asked_whatever_the_cluster_adds_to_its_pod():
    asked = want(2, 2)
    assert reserved(pod(asked)) != asked
    assert amounts.reserved_by(pod(asked)) == asked


def test_until_the_kubelet_holds_it_a_replica_reserves_what_the_kubelet_says():
    found = pod(want(2, 4), {"requests": {"cpu": "1500m", "memory": "1Gi"}})
    assert amounts.held(found)[0] is AmountsHeld.COMING
    assert amounts.reserved_by(found) == want(2, 2)


@pytest.mark.parametrize(
    ("reason", "state"),
    [("Infeasible", AmountsHeld.INFEASIBLE), ("Deferred", AmountsHeld.DEFERRED)],
)
def test_a_kubelet_that_puts_a_resize_off_is_believed(reason: str, state: AmountsHeld):
    said = {"type": "PodResizePending", "status": "True", "reason": reason, "message": "no"}
    assert amounts.held(pod(want(2, 4), None, said)) == (state, "no")


def test_a_quota_counts_all_containers_that_change():
    spec = {"hard": {"limits.cpu": "8", "memory": "6Gi", "pods": "1"}}
    used = {"limits.cpu": "8", "memory": "4Gi", "pods": "9"}
    quota = {"metadata": {"name": "q"}, "spec": spec, "status": {"used": used}}
    change = ({"requests": {"memory": "1Gi"}}, {"requests": {"memory": "2Gi"}})
    assert bounds.beyond_quota([quota], [change] * 2) == ""
    assert bounds.beyond_quota([quota], [change] * 3) == (
        "ResourceQuota q has 2Gi of memory 6Gi left, but the change needs 3Gi more; "
        "raise the quota, or ask for less"
    )
    scoped = quota | {"spec": spec | {"scopes": ["BestEffort"]}}
    assert bounds.beyond_quota([scoped], [change] * 3) == ""


def test_a_range_has_a_least_and_a_most():
    item = {"type": "Container", "min": {"cpu": "1"}, "max": {"memory": "2Gi"}}
    found = {"metadata": {"name": "l"}, "spec": {"limits": [item, {"type": "Pod"}]}}
    assert bounds.beyond_range([found], {"requests": {"cpu": "1"}}) == ""
    assert "less than 1" in bounds.beyond_range([found], {"requests": {"cpu": "500m"}})
    assert "more than 2Gi" in bounds.beyond_range([found], {"limits": {"memory": "3Gi"}})


@pytest.mark.parametrize("record", ["", "2 CPUs", "[]", '{"gpus": -1.5}', '{"a": ' + "[" * 2000])
def test_a_record_of_amounts_that_somebody_edited_counts_as_none(record: str):
    pod = template()
    pod["metadata"] = {"name": "p", "annotations": {identity.RESERVES: record}}
    pod["status"] = {"phase": "Running"}
    assert amounts.asked(pod) is None
    assert amounts.reserved_by(pod) == want(2, 2)
