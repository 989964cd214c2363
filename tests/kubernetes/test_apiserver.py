"""What the emulator keeps beyond the recording: deletion, rights, faults, disruption, restarts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.eventually import eventually
from tests.kubernetes.kubelet import FakeKubelet

Json = dict[str, Any]

DEFAULT = "/api/v1/namespaces/default"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}


class Client:
    """Plain HTTP to a server, as its admin or somebody."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http = httpx2.Client(base_url=server.url, timeout=60)

    def post(self, path: str, body: Json, status: int = 201) -> Json:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        found: Json = answer.json()
        return found

    def get(self, path: str) -> Json | None:
        answer = self.http.get(path)
        found: Json = answer.json()
        return found if answer.status_code == 200 else None

    def names(self, plural: str) -> list[str]:
        found = self.http.get(f"{DEFAULT}/{plural}").json()
        return [item["metadata"]["name"] for item in found["items"]]

    def settings(self, name: str, **metadata: Any) -> Json:
        """Make a ConfigMap."""
        return self.post(f"{DEFAULT}/configmaps", {"metadata": {"name": name, **metadata}})

    def owned(self, name: str, owner: Json, **more: Any) -> Json:
        """Make a ConfigMap that another owns."""
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **more,
        }
        return self.settings(name, ownerReferences=[reference])

    def delete(self, path: str, **options: Any) -> int:
        answer = self.http.request("DELETE", f"{DEFAULT}/{path}", json=options)
        return answer.status_code

    def watch(self, plural: str, **query: Any) -> list[Json]:
        """Return everything that a watch tells until it ends."""
        params = {"watch": "1", "timeoutSeconds": "60", **query}
        with self.http.stream("GET", f"{DEFAULT}/{plural}", params=params) as answer:
            return [json.loads(line) for line in answer.iter_lines()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, definitions=[]) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server)
    yield made
    made.http.close()


def pod(name: str = "p", **spec: Any) -> Json:
    container = {"name": "main", "image": "image:1"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


# Owners.


def test_dependents_go_with_their_owner(client: Client) -> None:
    client.owned("child", client.settings("owner"))
    client.delete("configmaps/owner")
    assert client.names("configmaps") == []


def test_orphans_stay_and_forget_their_owner(client: Client) -> None:
    client.owned("child", client.settings("owner"))
    client.delete("configmaps/owner", propagationPolicy="Orphan")
    child = client.get(f"{DEFAULT}/configmaps/child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]


def test_a_dependent_of_two_stays_with_the_other(client: Client) -> None:
    one, two = client.settings("one"), client.settings("two")
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"],
         "uid": o["metadata"]["uid"]}
        for o in (one, two)
    ]  # fmt: skip
    client.settings("child", ownerReferences=references)
    client.delete("configmaps/one")
    assert client.names("configmaps") == ["child", "two"]


def test_an_owner_waits_for_what_blocks_it_in_the_foreground(client: Client) -> None:
    owner = client.settings("owner")
    child = client.owned("child", owner, blockOwnerDeletion=True)
    client.http.patch(
        f"{DEFAULT}/configmaps/child", headers=MERGE, json={"metadata": {"finalizers": ["a/b"]}}
    )
    client.delete("configmaps/owner", propagationPolicy="Foreground")
    meanwhile = client.names("configmaps")
    client.http.patch(
        f"{DEFAULT}/configmaps/child", headers=MERGE, json={"metadata": {"finalizers": None}}
    )
    assert (meanwhile, client.names("configmaps")) == (["child", "owner"], [])
    assert child["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]


def test_a_namespace_takes_what_is_inside_with_it(client: Client) -> None:
    client.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    client.post("/api/v1/namespaces/team/configmaps", {"metadata": {"name": "a"}})
    client.http.delete("/api/v1/namespaces/team")
    assert client.get("/api/v1/namespaces/team") is None


# Pods.


def test_a_number_in_a_variable_is_refused_as_go_refuses_it(client: Client) -> None:
    container = {"name": "main", "image": "i", "env": [{"name": "A", "value": 1}]}
    told = client.post(f"{DEFAULT}/pods", pod(containers=[container]), 400)
    assert "cannot unmarshal number into Go struct field" in told["message"]


def test_an_unknown_field_of_a_pod_is_dropped(client: Client) -> None:
    made = client.post(f"{DEFAULT}/pods", pod(nosuch=1))
    assert "nosuch" not in made["spec"]


def test_a_pod_s_command_cannot_change(client: Client) -> None:
    client.post(f"{DEFAULT}/pods", pod())
    change = [{"op": "add", "path": "/spec/containers/0/command", "value": ["x"]}]
    answer = client.http.patch(
        f"{DEFAULT}/pods/p", headers={"Content-Type": "application/json-patch+json"}, json=change
    )
    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")


def test_a_label_that_is_too_long_is_refused(client: Client) -> None:
    made = pod()
    made["metadata"]["labels"] = {"job": "j" * 64}
    told = client.post(f"{DEFAULT}/pods", made, 422)
    assert told["details"]["causes"][0]["field"] == "metadata.labels"


def test_quantities_are_kept_as_the_server_writes_them(client: Client) -> None:
    resources = {"limits": {"cpu": 2, "memory": "1024Mi"}}
    container = {"name": "main", "image": "i", "resources": resources}
    made = client.post(f"{DEFAULT}/pods", pod(containers=[container]))
    kept = made["spec"]["containers"][0]["resources"]
    assert kept["limits"] == kept["requests"] == {"cpu": "2", "memory": "1Gi"}


def test_applying_the_same_pod_twice_writes_once(client: Client) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod(restartPolicy="Never")})
    made = [
        client.http.patch(
            f"{DEFAULT}/pods/p?fieldManager=brain&force=true", headers=APPLY, content=body
        ).json()
        for _ in range(2)
    ]
    assert made[0]["metadata"]["resourceVersion"] == made[1]["metadata"]["resourceVersion"]


def test_a_disruption_budget_stops_an_eviction(server: Server, client: Client) -> None:
    kubelet = FakeKubelet(server)
    kubelet.add_nodes("n0")
    made = pod(nodeName="n0")
    made["metadata"]["labels"] = {"app": "a"}
    client.post(f"{DEFAULT}/pods", made)
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    client.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    eventually(lambda: kubelet.pods()[0]["status"]["phase"] == "Running")
    told = client.post(f"{DEFAULT}/pods/p/eviction", {"metadata": {"name": "p"}}, 429)
    assert told["details"]["causes"][0]["reason"] == "DisruptionBudget"


def test_a_running_pod_is_given_its_grace(server: Server, client: Client) -> None:
    kubelet = FakeKubelet(server, end_seconds=600)
    kubelet.add_nodes("n0")
    client.post(f"{DEFAULT}/pods", pod(nodeName="n0", terminationGracePeriodSeconds=700))
    eventually(lambda: kubelet.pods()[0]["status"]["phase"] == "Running")
    client.delete("pods/p")
    left = client.get(f"{DEFAULT}/pods/p")
    assert left is not None
    assert left["metadata"]["deletionGracePeriodSeconds"] == 700


def test_who_confirms_an_end_brings_the_time_of_the_deletion_forward(
    server: Server, client: Client
) -> None:
    # Seen on Kubernetes 1.36.2: a change with the time of the last request, then the end.
    kubelet = FakeKubelet(server, end_seconds=600)
    kubelet.add_nodes("n0")
    client.post(f"{DEFAULT}/pods", pod(nodeName="n0", terminationGracePeriodSeconds=700))
    eventually(lambda: kubelet.pods()[0]["status"]["phase"] == "Running")
    client.delete("pods/p")
    asked = client.get(f"{DEFAULT}/pods/p")
    assert asked is not None
    told = []
    unlisten = server.hands.listen(lambda heard: told.append(heard))
    server.hands.delete(("", "pods"), ("default", "p"), grace_seconds=0)
    eventually(lambda: any(heard.gone for heard in told))
    unlisten()
    # What it was, the change, the end.
    confirmed = [heard.obj["metadata"] for heard in told if heard.resource == ("", "pods")]
    assert [each["deletionGracePeriodSeconds"] for each in confirmed] == [700, 0, 0]
    assert confirmed[1]["deletionTimestamp"] < asked["metadata"]["deletionTimestamp"]


# Lists and watches.


def test_pages_show_the_state_at_the_first_one(client: Client) -> None:
    for name in "abc":
        client.settings(name)
    first = client.http.get(f"{DEFAULT}/configmaps", params={"limit": 2}).json()
    client.settings("bb")
    token = {"limit": 2, "continue": first["metadata"]["continue"]}
    second = client.http.get(f"{DEFAULT}/configmaps", params=token).json()
    assert [item["metadata"]["name"] for item in second["items"]] == ["c"]


def test_a_page_after_the_history_was_forgotten_is_410(server: Server, client: Client) -> None:
    for name in "abc":
        client.settings(name)
    first = client.http.get(f"{DEFAULT}/configmaps", params={"limit": 2}).json()
    server.expire()
    token = {"limit": 2, "continue": first["metadata"]["continue"]}
    assert client.http.get(f"{DEFAULT}/configmaps", params=token).status_code == 410


def test_items_of_a_list_do_not_tell_their_kind(client: Client) -> None:
    client.settings("a")
    assert "kind" not in client.http.get(f"{DEFAULT}/configmaps").json()["items"][0]


def test_an_unknown_field_selector_is_refused(client: Client) -> None:
    answer = client.http.get(f"{DEFAULT}/pods", params={"fieldSelector": "spec.nosuch=1"})
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")


def test_a_version_of_the_future_is_told_to_come_later(client: Client) -> None:
    answer = client.http.get(f"{DEFAULT}/pods", params={"resourceVersion": "999999"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (504, "1")


def test_bookmarks_come_where_they_are_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, definitions=[], bookmark_seconds=0.01) as server:
        client = Client(server)
        seen = client.watch("configmaps", timeoutSeconds="1", allowWatchBookmarks="true")
        client.http.close()
    assert {event["type"] for event in seen} == {"BOOKMARK"}


def test_events_of_both_groups_are_the_same(client: Client) -> None:
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
        "reason": "Said",
        "type": "Normal",
        "eventTime": "2026-11-21T10:00:00.000000Z",
    }
    client.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    core = client.get(f"{DEFAULT}/events/e")
    assert core is not None
    assert (core["message"], core["involvedObject"]["name"]) == ("hello", "p")


# Rights.


def test_a_service_account_may_what_its_role_says(server: Server, client: Client) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    client.post(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "scaler", "namespace": "brain"}],
    }
    client.post(f"{rbac}/rolebindings", binding)
    server.kubeconfig_for("system:serviceaccount:brain:scaler")
    token = {"Authorization": "Bearer token-of-system:serviceaccount:brain:scaler"}
    answers = [
        client.http.get(f"{DEFAULT}/{plural}", headers=token).status_code
        for plural in ("pods", "secrets")
    ]
    assert answers == [200, 403]


def test_a_review_says_what_was_denied(server: Server, client: Client) -> None:
    server.access.deny("create", "pods/eviction")
    attributes = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    told = client.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
    )
    assert told["status"] == {"allowed": False}


# Faults.


def test_an_answer_may_be_a_fault_so_many_times(server: Server, client: Client) -> None:
    server.faults.answer(429, times=2, path="configmaps", retry_after_seconds=3)
    answers = [client.http.get(f"{DEFAULT}/configmaps") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["Retry-After"] == "3"


def test_a_watch_may_be_cut_in_the_middle_of_a_line(server: Server, client: Client) -> None:
    client.settings("a")
    server.faults.cut(path="configmaps")
    with pytest.raises(httpx2.TransportError):
        client.watch("configmaps")


def test_watches_end_with_410_when_history_is_forgotten(server: Server, client: Client) -> None:
    params = {"watch": "1", "timeoutSeconds": "60"}
    with client.http.stream("GET", f"{DEFAULT}/configmaps", params=params) as answer:
        server.expire()
        events = [json.loads(line) for line in answer.iter_lines()]
    assert [(e["type"], e["object"]["code"]) for e in events] == [("ERROR", 410)]


def test_an_outage_refuses_connections_and_keeps_everything(server: Server, client: Client) -> None:
    client.settings("a")
    with server.outage(), pytest.raises(httpx2.TransportError):
        client.names("configmaps")
    assert client.names("configmaps") == ["a"]


def test_requests_are_counted_by_what_they_wrote(server: Server, client: Client) -> None:
    client.settings("a")
    client.names("configmaps")
    assert server.traffic.writes("configmaps") == 1
