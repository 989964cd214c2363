"""The emulator answers as a real server did: a recorded conversation, played to it in order."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.clusters import client, real_kubeconfig
from tests.kubernetes.real.cluster import controlled
from tests.kubernetes.replaying import Replay

Json = dict[str, Any]
Events = list[tuple[str, str]]

TRANSCRIPT = Path(__file__).with_name("apiserver-1.36-transcript.json")


def _exchanges() -> list[Json]:
    exchanges: list[Json] = json.loads(TRANSCRIPT.read_bytes())["exchanges"]
    return exchanges


CHECKS = list(dict.fromkeys(exchange["check"] for exchange in _exchanges()))
LEFT_BEHIND = (
    "/api/v1/namespaces/conf",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.conf.brain.io",
)
#: The exchange before which the recorded cluster's scheduler had looked at the pod.
SCHEDULED_BEFORE = 48


def _no_node_fits(server: Server) -> None:
    """Tell of a pod what the recorded cluster's scheduler told: it had no nodes."""
    condition = {
        "type": "PodScheduled",
        "observedGeneration": 1,
        "status": "False",
        "lastTransitionTime": server.api.timestamp(),
        "reason": "Unschedulable",
        "message": "no nodes available to schedule pods",
    }
    server.patch_status("pods", "conf", "sp", {"conditions": [condition]}, "kube-scheduler")


AGENT = "python-httpx/0.28.1"


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    """The whole conversation, played to the emulator, or to ``BRAIN_TEST_KUBECONFIG``'s cluster."""
    kubeconfig = real_kubeconfig()
    if kubeconfig is not None:
        played = Replay(lambda: client(kubeconfig, AGENT), patience_seconds=30)
        played.run(_exchanges())
        yield played
        with client(kubeconfig, AGENT) as http:
            for path in LEFT_BEHIND:
                http.delete(path)
        return
    with serving(tmp_path_factory.mktemp("server"), definitions=[]) as server:
        server.api.warmup_requests = 1
        played = Replay(
            lambda: client(server.kubeconfig, AGENT),
            between={SCHEDULED_BEFORE: lambda: _no_node_fits(server)},
            end_watches=server.drop_watches,
        )
        played.run(_exchanges())
        yield played


#: What the recorded cluster's scheduler had said of a pod: that there was no node.
OF_THE_SCHEDULER = "strategic merge patch on a Pod merges containers by name"
#: What its controllers had done.
OF_CONTROLLERS = (
    "setup",
    "ownerReferences: background GC deletes dependents",
    "Table output (kubectl get) with printer columns",
)


@pytest.mark.parametrize("check", CHECKS)
def test_a_behaviour_agrees_with_the_recording(replay: Replay, check: str) -> None:
    real = real_kubeconfig()
    if real is not None and check == OF_THE_SCHEDULER:
        pytest.skip("the recorded cluster had a scheduler and no nodes; this one may differ")
    if real is not None and check in OF_CONTROLLERS and not controlled(real):
        pytest.skip("no controllers run beside this server")
    assert replay.differences[check] == []


def _seen(replay: Replay, check: str) -> Events:
    found = next(events for name, events in replay.events.items() if name.startswith(check))
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in found]


def test_a_watch_tells_what_follows_the_list_in_order(replay: Replay) -> None:
    assert _seen(replay, "watch from list's")[:3] == [
        ("ADDED", "w1"),
        ("MODIFIED", "w1"),
        ("DELETED", "w1"),
    ]


def test_a_watch_replays_what_happened_before_it_began(replay: Replay) -> None:
    assert _seen(replay, "watch replays")[:2] == [("ADDED", "w2"), ("DELETED", "w2")]


def test_what_leaves_a_selector_is_told_as_deleted(replay: Replay) -> None:
    assert _seen(replay, "watch with labelSelector")[0] == ("DELETED", "l2")


def test_a_watch_from_a_forgotten_version_is_told_410(replay: Replay) -> None:
    (event,) = replay.events[
        "watch from an expired resourceVersion: 410 Gone (HTTP or ERROR event)"
    ]
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_watch_list_ends_its_beginning_with_a_bookmark(replay: Replay) -> None:
    events = replay.events["bookmarks with allowWatchBookmarks+sendInitialEvents (WatchList)"]
    mark = next(event for event in events if event["type"] == "BOOKMARK")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
