"""The Secret of a job comes back after somebody deleted it."""

import base64
from datetime import timedelta
from random import Random
from typing import Any

from scaler.kubernetes.pods.identity import secret_name
from scaler.kubernetes.replicas.secrets import JobSecrets
from scaler.kubernetes.runtime.cluster import SECRET, ClientLimits, Cluster
from tests.kubernetes import jobs
from tests.kubernetes.shelf import Shelf, VirtualClock
from tests.scaler.wished import JOB, NOW

NAME = secret_name("digits")
WORDS = {"PASSWORD": "letmein"}


class Kept:
    """The Secret of a running job, and who keeps it."""

    def __init__(self) -> None:
        self.shelf, made = Shelf(), jobs.job("brain-run", "t.py")
        made["metadata"] |= {"namespace": "team", "uid": JOB}
        cluster = Cluster(self.shelf, ClientLimits(), clock=VirtualClock(), random=Random(1))
        self.secrets = JobSecrets(cluster, lambda job: made)
        self.secrets.put_token(JOB, "first")
        self.starts(0, seconds=0)

    def starts(self, replica: int, *, seconds: float) -> None:
        now = NOW + timedelta(seconds=seconds)
        self.secrets.set_aside(JOB, replica, 2, WORDS, now)

    def data(self) -> dict[str, str]:
        obj: dict[str, Any] = self.shelf.objects[SECRET.path("team", NAME)]
        return {name: base64.b64decode(value).decode() for name, value in obj["data"].items()}


def test_a_deleted_secret_is_there_for_the_next_replica_and_asks_for_a_token() -> None:
    kept = Kept()
    kept.shelf.drop("team", NAME, SECRET)

    kept.starts(1, seconds=100)

    assert kept.data() == {"env.PASSWORD": "letmein"}
    assert not kept.secrets.has_token(JOB)
    kept.secrets.put_token(JOB, "second")
    assert kept.data() == {"env.PASSWORD": "letmein", "token": "second"}
    assert kept.secrets.has_token(JOB)


def test_a_token_that_somebody_removed_is_asked_for_again() -> None:
    kept = Kept()
    del kept.shelf.objects[SECRET.path("team", NAME)]["data"]["token"]

    kept.starts(1, seconds=100)

    assert not kept.secrets.has_token(JOB)


def test_replicas_that_start_together_cost_one_write() -> None:
    kept = Kept()
    before = len(kept.shelf.requests)
    for replica in range(1, 10):
        kept.starts(replica, seconds=replica)
    assert len(kept.shelf.requests) == before
