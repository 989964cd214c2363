"""Pods that were paused with their machines: they go on once the cluster says that they stay."""

import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.hosts.worlds import BEATING, Life, eventually, overlaps
from tests.kubernetes import jobs
from tests.kubernetes.test_acceptance import NAMESPACE, Cluster, cluster, rights
from tests.scripts.beating import BEAT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
    pytest.mark.timeout(900),
]

#: What a lease of these jobs lasts; a pause that none survives; one of the nightly kind, seconds.
LEASE, PAUSE, LONG_PAUSE = 3.0, 6.0, 62.0
PAUSES = [
    pytest.param(PAUSE, id="pause"),
    pytest.param(LONG_PAUSE, id="long pause", marks=pytest.mark.chaos),
]


def address() -> str:
    """An address of this machine that is not on loopback, if it has one: networks lie between
    machines, and agents treat silence on loopback as proof."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("203.0.113.1", 9))
        return str(asked.getsockname()[0])
    return "127.0.0.1"


@dataclass
class Pods:
    """A job of two pods in a cluster, and what its workers wrote down."""

    cluster: Cluster
    work: Path

    def lives(self) -> list[Life]:
        """What every worker did so far."""
        found = []
        for file in (self.work / "records").iterdir():
            content = file.read_bytes()
            if len(content) == BEAT.size:
                epoch, rank, size, first, last, step = BEAT.unpack(content)
                found.append(
                    Life(
                        epoch=epoch,
                        rank=rank,
                        size=size,
                        first=first / 1e9,
                        last=last / 1e9,
                        step=step,
                        host=file.name,
                    )
                )
        return found

    def trains(self, *, after: int = 0) -> list[Life]:
        """Wait for two workers of a world later than ``after`` that step, and have saved."""

        def look() -> list[Life]:
            lives = [life for life in self.lives() if life.epoch > after]
            newest = max((life.epoch for life in lives), default=0)
            there = [life for life in lives if life.epoch == newest]
            fresh = time.monotonic() - 0.5
            steps = len(there) == 2 and all(life.last > fresh for life in there)
            return there if steps and (self.work / "step.txt").exists() else []

        return eventually(look, f"a world after {after}", 120, self.cluster.logs)

    def names(self) -> list[str]:
        """Names of the pods that run."""
        return [f"digits-edljob-{name}" for name in self.cluster.pods()]

    def said(self, name: str) -> str:
        """What the agent and the worker of a pod printed."""
        return self.cluster.kubelet.log(name, NAMESPACE)

    def pause(self, names: list[str]) -> None:
        for name in names:
            self.cluster.kubelet.pause(name, NAMESPACE)

    def resume(self, names: list[str]) -> None:
        for name in names:
            self.cluster.kubelet.resume(name, NAMESPACE)

    def same(self, before: list[Life]) -> bool:
        """Whether the very workers of ``before`` have stepped on, and no others were started."""
        known = {life.host: life.step for life in before}
        now = self.lives()
        return len(now) == len(before) and all(life.step > known[life.host] for life in now)

    def stood(self, before: list[Life]) -> bool:
        """Whether the workers of ``before`` took no step since, but one that was about to be
        counted: for some milliseconds one may be quicker than the watch over its lease."""
        now = {life.host: life.step for life in self.lives()}
        return all(now[life.host] <= life.step + 1 for life in before)


@contextmanager
def job(directory: Path, *, network: bool = True, hang_seconds: int = 300) -> Iterator[Pods]:
    """Two pods of a job that Brain only observes; there never were two worlds of it at a time.

    With ``network`` their addresses are not on loopback, but all the same, so that a pod cannot
    have the port of one that was deleted and runs on.
    """
    work = directory / "work"
    (work / "records").mkdir(parents=True)
    with cluster(directory, host_address=address()) as it:
        it.start_brain()
        it.kubectl("create", "namespace", NAMESPACE)
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights()))
        it.start_operator()
        words = (f"--records={work}/records", f"--checkpoint={work}/step.txt", "--pace=0.05")
        made = jobs.job(
            "brain-run", str(BEATING), *words, replicas=2, spec={"optimizeMode": "manual"}
        )
        made["metadata"]["namespace"] = NAMESPACE
        template = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        template["hostNetwork"] = network
        container = template["containers"][0]
        told = {"BRAIN_TEST_HOST": "pod", "BRAIN_HANG_SECONDS": str(hang_seconds)}
        container["env"] = [{"name": name, "value": value} for name, value in told.items()]
        container["command"][0] = f"{Path(sys.executable).parent}/brain-run"
        it.create(made)
        pods = Pods(it, work)
        pods.trains()
        # Else pods that start anew would count epochs from 1 again.
        it.until("the operator knows its world", lambda: it.status().get("worldEpoch", 0) > 0)
        yield pods
        assert overlaps(pods.lives(), slack=0.2) == [], it.logs()


@pytest.mark.parametrize("seconds", PAUSES)
def test_paused_pods_that_the_cluster_kept_go_on_without_losing_a_step(
    seconds: float, tmp_path: Path
) -> None:
    with job(tmp_path) as it:
        names = it.names()
        it.pause(names)
        time.sleep(seconds)
        before = it.lives()
        it.resume(names)

        eventually(lambda: it.same(before), "further steps", 60, it.cluster.logs)
        time.sleep(3 * LEASE)  # nothing was only put off
        assert it.same(before), it.cluster.logs()
        assert "no other agent took its place: its world goes on" in "".join(map(it.said, names))


def test_paused_pods_wait_until_somebody_can_say_that_they_stay(tmp_path: Path) -> None:
    with job(tmp_path, hang_seconds=8) as it:
        names = it.names()
        it.pause(names)
        assert it.cluster.brain is not None
        it.cluster.brain.kill()
        it.cluster.brain.wait()
        it.cluster.brain = None
        time.sleep(PAUSE)
        before = it.lives()
        it.resume(names)
        time.sleep(4 * LEASE)

        assert it.stood(before), it.cluster.logs()
        told = "held: this agent was paused; workers wait for proof that no other world was begun"
        assert told in "".join(map(it.said, names))
        it.cluster.start_brain()
        eventually(lambda: it.same(before), "further steps", 60, it.cluster.logs)
        time.sleep(2 * LEASE)
        assert it.same(before), it.cluster.logs()  # to be held is not to hang


@pytest.mark.parametrize("seconds", PAUSES)
def test_paused_pods_whose_job_went_on_in_others_never_step_or_save_again(
    seconds: float, tmp_path: Path
) -> None:
    with job(tmp_path, network=False) as it:
        names = it.names()
        it.pause(names)
        began = time.monotonic()
        it.cluster.kubectl("delete", "pod", *names, "--grace-period=0", "--force", "--wait=false")
        before = it.lives()
        it.trains(after=max(life.epoch for life in before))
        time.sleep(max(PAUSE, seconds - (time.monotonic() - began)))
        it.resume(names)
        time.sleep(4 * LEASE)

        assert it.stood(before), it.cluster.logs()
        assert all(not it.cluster.kubelet.processes(name, NAMESPACE) for name in names)
        assert "other agents may run in its place: its pod was deleted" in "".join(
            map(it.said, names)
        )
        it.trains(after=max(life.epoch for life in before))
