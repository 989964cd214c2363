"""The output of pods on its way to its reader. Streams of the API server are played."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from brain.errors import UnknownReplica
from brain.types.job import JobId
from brain.views import LogsRequest
from scaler.kubernetes.operator import logs, relay
from scaler.kubernetes.pods import identity
from tests.kubernetes.operating import until

Json = dict[str, Any]


class Played:
    """A cluster whose pods print what they are told."""

    def __init__(self, *chunks: bytes, pause: float = 0.0, go: threading.Event | None = None):
        self.printed, self.pause = chunks, pause
        #: Once it is set, last words follow and the end; without one the end follows at once.
        self.go, self.waits = go or threading.Event(), go is not None
        self.open = self.most = 0
        self.counting = threading.Lock()

    def log(self, *_: object, **__: object) -> "Played":
        with self.counting:
            self.open += 1
            self.most = max(self.most, self.open)
        return self

    def chunks(self) -> Iterator[bytes]:
        for chunk in self.printed:
            time.sleep(self.pause)
            yield chunk
        if self.waits:
            self.go.wait(60)
            yield b"last words\n"

    def interrupt(self) -> None:
        """It ends by itself."""

    def close(self) -> None:
        with self.counting:
            self.open -= 1


def pod(id: int) -> Json:
    labels = identity.labels("digits", "uid", "worker", id, rank=id, relaunches=0)
    spec = {"containers": [{"name": "main"}]}
    metadata = {"name": f"p{id}", "namespace": "team", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def read(
    cluster: Played,
    pods: list[Json],
    *,
    over: Callable[[], bool] = lambda: True,
    sent: list[str] | None = None,
    way_seconds: float = 0.0,
    **asked: Any,
) -> list[str]:
    """Everything that is sent, by piece, each of which is on its way for so long."""
    found = [] if sent is None else sent

    def send(text: str, more: bool) -> None:
        found.append(text)
        time.sleep(way_seconds)

    logs.send_logs(
        cast(Any, cluster),
        LogsRequest(job=JobId("uid"), tail=100, **asked),
        pods=lambda: list(pods),
        over=over,
        send=send,
    )
    return found


@contextmanager
def following(cluster: Played, pods: list[Json], **asked: Any) -> Iterator[list[str]]:
    """What is sent while the block runs, and all of it behind."""
    sent: list[str] = []
    asked |= {"sent": sent, "follow": True}
    thread = threading.Thread(target=lambda: read(cluster, pods, **asked))
    thread.start()
    try:
        yield sent
    finally:
        cluster.go.set()
        thread.join(60)


def test_a_printer_of_no_line_ends_is_sent_on_while_it_prints() -> None:
    cluster = Played(*[b"\r50 %" * 10_000] * 20, go=threading.Event())
    with following(cluster, [pod(0)], over=cluster.go.is_set) as sent:
        until("some of it came", lambda: any(sent))
    assert "".join(sent).count("\r50 %") >= 200_000 - 20


def test_lines_that_come_one_by_one_are_sent_together() -> None:
    sent = read(Played(*[b"step\n"] * 300, pause=0.002), [pod(0)], way_seconds=0.005)
    assert "".join(sent) == "step\n" * 300
    assert len(sent) < 40


def test_the_last_words_of_a_pod_that_is_gone_are_read() -> None:
    pods = [pod(3)]
    cluster = Played(b"first\n", go=threading.Event())
    with following(cluster, pods, over=lambda: False, replica=3) as sent:
        until("it is read", lambda: "first\n" in sent)
        pods.clear()
        time.sleep(3 * logs._PAUSE_SECONDS)
    assert "".join(sent) == "first\nlast words\n"


def test_a_replica_whose_pod_was_gone_before_is_said_to_be() -> None:
    with pytest.raises(
        UnknownReplica, match="replica 3 has no output any more, because its pod was deleted"
    ):
        read(Played(), [pod(0)], replica=3)


def test_a_job_of_many_pods_is_read_a_few_at_a_time_and_whole() -> None:
    cluster = Played(b"a line\n", pause=0.05)
    sent = read(cluster, [pod(id) for id in range(150)])
    assert "".join(sent).count("a line") == 150
    assert cluster.most <= 64


def test_whatever_goes_wrong_requests_are_taken_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_RETRY_SECONDS", 0.0)
    stop, asked = threading.Event(), list[object]()

    class Failing:
        def send(self, call: object) -> object:
            asked.append(call)
            if len(asked) == 3:
                stop.set()
            raise ValueError("an answer that nobody reads")

    never = cast(Any, None)
    relay.RelayedRequests(
        cast(Any, Failing()), "kubernetes", submit=never, logs=never, pod=never
    ).follow(stop)
    assert len(asked) == 3
