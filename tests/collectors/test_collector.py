"""The collector process: nothing taken is lost, whatever dies, and all that is lost is told."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from brain.types.telemetry import HostSample, LossSample, Sample, ThroughputSample
from collectors.loop import remove
from tests.collectors.serviced import JOB, Service, machine, service, window


def test_only_the_socket_that_was_bound_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "short" / "probe.sock"
    with listening(path):
        mine = path.stat()
        path.unlink()
        with listening(path):
            remove(path, mine)
            assert path.exists()
            remove(path, path.stat())
            assert not path.parent.exists()


@contextmanager
def listening(path: Path) -> Iterator[None]:
    path.parent.mkdir(exist_ok=True)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as bound:
        bound.bind(str(path))
        yield


def test_samples_reach_the_service_with_the_jobs_token(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        here.collect("--url", brain.url)
        here.send(*(window(index) for index in range(20)))
        here.until(lambda: len(brain.kept) == 20, "all are delivered")
        assert brain.of(ThroughputSample) == [window(index) for index in range(20)]
        assert brain.tokens == {"Bearer secret-of-the-job"}


def test_what_a_dead_service_missed_is_delivered_to_the_next_on_another_port(
    tmp_path: Path,
) -> None:
    with machine(tmp_path) as here:
        with service() as first:
            here.serve(first.url)
            here.collect()
            here.send(window(0))
            here.until(lambda: first.kept, "the first is delivered")
        here.send(*(window(index) for index in range(1, 40)))
        here.until(lambda: here.status()["spooled"] == 39, "the others are kept")
        here.until(
            lambda: "cannot be reached" in here.status()["undelivered"].get(JOB, ""), "it says why"
        )
        with service() as second:
            here.serve(second.url)
            here.until(lambda: len(second.kept) == 39, "the others are delivered")
            here.until(lambda: not here.status()["last_error"], "the silence is over")


def test_a_killed_collector_loses_nothing_that_it_took(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        killed = here.collect()
        here.send(*(window(index) for index in range(300)))
        here.until(lambda: here.status()["spooled"] == 300, "all are taken")
        killed.kill()
        killed.wait()
        with service() as brain:
            here.collect("--url", brain.url)
            here.until(lambda: len(brain.kept) == 300, "all are delivered")
            assert brain.of(ThroughputSample) == [window(index) for index in range(300)]


def test_killed_in_the_middle_of_deliveries_it_loses_nothing(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        for life in range(3):
            collector = here.collect("--url", brain.url)
            here.send(*(window(index) for index in range(40 * life, 40 * life + 40)))
            here.until(lambda: here.status()["received"] == 40, "all are taken")
            collector.kill()
            collector.wait()
        here.collect("--url", brain.url)
        here.until(lambda: len(brain.kept) == 120, "all are delivered")


def test_garbage_is_counted_and_harms_no_other(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        here.collect("--url", brain.url)
        for bad in (b"", b"{", b"\xff" * 100, b'{"kind": "dream"}', b'{"kind": "save"}', b"null"):
            here.send_bytes(bad)
        here.send(window(1))
        here.until(lambda: brain.kept, "the good one is delivered")
        here.until(lambda: here.status()["garbage"] == 6, "the bad ones are counted")


def test_a_job_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    with machine(tmp_path / "deep" / "home") as here, service() as brain:
        here.collect("--url", brain.url)
        here.send(window(0, job="../../../escaped"), window(1))
        here.until(lambda: brain.kept, "the good one is delivered")
        assert not [path for path in tmp_path.rglob("*escaped*")]


def test_a_rejected_sample_is_not_sent_again(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        brain.reject = lambda sample: "too old" if sample.sequence == 1 else None
        here.collect("--url", brain.url)
        here.send(window(0), window(1), window(2))
        here.until(lambda: here.status()["rejected"] == 1, "the rejection is counted")
        here.until(lambda: here.status()["delivered"] == 2, "the others are delivered")
        assert len(brain.kept) == 2
        assert here.status()["spooled"] == 0
        assert "too old" in here.status()["last_error"]


def test_one_sample_that_spoils_its_batch_is_found_and_dropped(tmp_path: Path) -> None:
    def refuse(samples: list[Sample]) -> tuple[int, str, dict[str, str]] | None:
        spoiled = any(sample.sequence == 13 for sample in samples)
        return (422, "BadInput", {}) if spoiled else None

    with machine(tmp_path) as here, service() as brain:
        here.collect()
        here.send(*(window(index) for index in range(40)))
        brain.answer = refuse
        here.serve(brain.url)
        here.until(lambda: len(brain.kept) == 39, "the others are delivered")
        assert 13 not in {sample.sequence for sample in brain.of(ThroughputSample)}


def test_a_batch_that_a_proxy_finds_too_large_is_sent_in_parts(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        here.collect()
        here.send(*(window(index) for index in range(40)))
        brain.answer = lambda samples: (413, "", {}) if len(samples) > 7 else None
        here.serve(brain.url)
        here.until(lambda: len(brain.kept) == 40, "all are delivered")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "NotSignedIn"), (403, "NotAllowed"), (426, "UnknownVersion"), (503, "Unavailable")],
)
def test_a_refusal_is_said_and_the_samples_are_kept(tmp_path: Path, status: int, kind: str) -> None:
    with machine(tmp_path) as here, service() as brain:
        brain.answer = lambda samples: (status, kind, {})
        collector = here.collect("--url", brain.url)
        here.send(window(0), window(1))
        here.until(lambda: here.status()["spooled"] == 2, "both are kept")
        here.until(lambda: kind in here.status()["undelivered"].get(JOB, ""), "it says so")
        assert here.status()["spooled"] == 2
        brain.answer = lambda samples: None
        assert here.stop(collector) == 0
        assert len(brain.kept) == 2, "the last attempt before its end delivers"


def test_an_overloaded_service_is_left_alone_as_long_as_it_says(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        brain.answer = lambda samples: (429, "Overloaded", {"Retry-After": "600"})
        here.collect("--url", brain.url)
        here.send(window(0))
        here.until(lambda: brain.batches, "it is asked")
        here.send(*(window(index) for index in range(1, 20)))
        here.until(lambda: here.status()["spooled"] == 20, "the others are kept")
        assert brain.batches == [1]


def test_only_one_collector_runs_on_a_machine(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.collect()
        assert here.collect().wait(60) == 75


def test_it_ends_by_itself_when_the_last_agent_is_gone(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        agent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        here.agent(agent.pid)
        collector = here.collect("--url", brain.url, "--linger", "1")
        here.send(window(0))
        here.until(lambda: brain.kept, "the sample is delivered")
        here.until(lambda: here.status()["live_jobs"] == [JOB], "the agent is seen")
        assert collector.poll() is None
        agent.kill()
        agent.wait()
        assert collector.wait(60) == 0
        assert not list((tmp_path / "collector" / "spool").rglob("*.ndjson"))
        assert not Path(here.socket_path).exists()


def test_what_cannot_be_delivered_stays_on_disk_for_the_next_collector(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        agent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        here.processes.append(agent)
        here.agent(agent.pid)
        collector = here.collect("--linger", "1", "--patience", "2")
        here.send(window(0), window(1))
        here.until(lambda: here.status()["spooled"] == 2, "both are taken")
        agent.kill()
        agent.wait()
        assert collector.wait(60) == 0
        here.collect("--url", brain.url)
        here.until(lambda: len(brain.kept) == 2, "both are delivered")


def test_a_living_job_gets_readings_of_its_machine(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            here.agent(busy.pid)
            here.collect("--url", brain.url, "--every", "1")
            here.until(lambda: len(brain.of(HostSample)) >= 2, "two readings are delivered")
            reading = brain.of(HostSample)[-1]
        finally:
            busy.kill()
            busy.wait()
        assert (reading.job, reading.node) == (JOB, "left-rack-3")
        assert 10 < reading.job_cpu_millis <= 1000 * (os.cpu_count() or 1)
        assert 0 < reading.job_memory_bytes < reading.memory_capacity_bytes
        assert any(why.startswith("gpu:") for why in reading.unavailable) or reading.gpus


def test_a_full_disk_is_said_and_losses_are_told(tmp_path: Path) -> None:
    with machine(tmp_path) as here, service() as brain:
        # The kernel refuses to let a file of this process grow beyond so many bytes.
        limit = "import resource,runpy,signal;signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000));import sys;"
        limit += f"sys.argv[1:] = ['--home', {str(here.home)!r}];"
        limit += "runpy.run_module('collectors.loop', run_name='__main__')"
        process = subprocess.Popen([sys.executable, "-c", limit], stderr=subprocess.DEVNULL)
        here.processes.append(process)
        here.until(lambda: (tmp_path / "collector" / "status.json").exists(), "it listens")
        here.send(*(window(index) for index in range(30)))
        here.until(lambda: here.status()["dropped"] > 0, "it says that it drops")
        kept = here.status()["spooled"]
        here.serve(brain.url)
        here.until(lambda: told(brain) and accounted(brain) >= 30, "each is there or told as lost")
        assert accounted(brain) == 30
        assert kept <= 30


def told(brain: Service) -> int:
    """Samples that were told as lost."""
    return sum(loss.dropped for loss in brain.of(LossSample))


def accounted(brain: Service) -> int:
    """The same, and those that are there."""
    return told(brain) + len(brain.of(ThroughputSample))


def test_a_long_home_has_its_socket_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 15) / ("longer" * 10)
    with machine(home) as here, service() as brain:
        collector = here.collect("--url", brain.url)
        here.send(window(0))
        here.until(lambda: brain.kept, "the sample is delivered")
        assert here.socket_path.startswith("/tmp/brain-")
        assert here.stop(collector) == 0
        assert not Path(here.socket_path).parent.exists()
