"""The benchmark of advice on resources asks the service, and its traces are what they say."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.resources import warnings
from benchmarks.resources.dlrm import GIB, Size, jobs
from benchmarks.resources.governed import Governed
from benchmarks.resources.known import Known
from benchmarks.resources.leaks import LIMIT_BYTES, traces
from benchmarks.resources.playing import Reading, play
from benchmarks.resources.requests import OURS, judge, rules
from benchmarks.resources.rules import History, Rules, Static
from brain.models.resources import cpu
from brain.models.resources.servers import EASY
from collectors.loop import CollectorOptions
from collectors.paths import Home


def test_traces_follow_from_their_seed():
    one, again, other = (traces(seed, 3, leaks=True)[0].minutes for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one[:30], other[:30])


@pytest.mark.parametrize("seed", [1, 7])
def test_only_traces_that_leak_reach_the_limit(seed: int):
    assert all(trace.minutes[-1] >= LIMIT_BYTES for trace in traces(seed, 20, leaks=True))
    assert all(trace.minutes.max() < LIMIT_BYTES for trace in traces(seed, 20, leaks=False))


def test_a_leak_is_warned_of_by_the_service():
    short = min(traces(1, 20, leaks=True), key=lambda trace: len(trace.minutes))
    assert warnings.judge(short).warned is not None


def test_a_steady_series_is_given_what_it_uses_with_a_margin():
    hours = [(3600.0 * hour, 1000.0) for hour in range(60)]
    found = judge(rules()[OURS], hours)
    assert found.over == 0
    assert found.slack == pytest.approx(1 - 1 / 1.15, abs=0.05)
    assert found.changes_a_day == 0


def test_made_up_jobs_follow_from_their_seed_and_are_played_alike():
    one, again = (jobs(3, 2)[1] for _ in range(2))
    assert one.declared == again.declared
    assert np.array_equal(one.memory(one.steps / 2, 3), again.memory(one.steps / 2, 3))
    assert play(one, Static(), 5) == play(again, Static(), 5)


def short_job():
    """Half an hour of training with servers that are far too small by the end."""
    job = jobs(3, 1)[0]
    size = job.declared
    job = replace(job, steps=1800 * job.pace(size).steps_per_second, rows_bytes=8 * GIB)
    most = float(job.memory(0.9 * job.steps, size.servers).max())
    return replace(job, declared=replace(size, server=replace(size.server, memory_bytes=most)))


def test_the_service_gets_readings_as_often_as_collectors_send_them():
    assert Governed.reads_seconds == CollectorOptions(home=Home.at("/home")).host_seconds


class Noting(Governed):
    """A service that notes when it first changed the number of workers."""

    changed_at = math.inf

    def see(self, reading: Reading) -> Size:
        size = super().see(reading)
        if size.workers != len(reading.worker_cpus):
            self.changed_at = min(self.changed_at, reading.at)
        return size


def test_the_service_grows_a_job_in_its_first_minute():
    job = short_job()
    play(job, service := Noting(job.steps), 1)
    assert service.changed_at <= 60


def test_the_service_grows_a_job_and_gives_its_servers_memory_in_time():
    job = short_job()
    static, ours = play(job, Static(), 1), play(job, Governed(job.steps), 1)

    assert static.kills == 1
    assert ours.kills == 0
    assert ours.seconds < static.seconds


def test_the_oracle_reserves_the_need_of_each_replica_with_headroom():
    job = short_job()
    ours, known = play(job, Governed(job.steps), 1), play(job, Known(job), 1)
    assert known.kills == 0
    assert known.bytes / known.reserved_bytes > ours.bytes / ours.reserved_bytes

    size = Known(job).begin(job.declared)
    pace = job.pace(size)
    assert pace.worker_cpus.max() / size.worker.cpus == pytest.approx(1 / cpu.MARGIN, rel=0.01)
    assert pace.server_cpus.max() / size.server.cpus == pytest.approx(EASY, rel=0.01)


def test_the_rules_begin_anew_with_more_memory_where_a_server_ran_out():
    job, rules = short_job(), Rules(History())
    size = rules.begin(job.declared)
    assert (size.workers, size.servers) == (1, 4)

    more, waits = rules.killed(30.0, 0)
    assert more.server.memory_bytes == 2 * size.server.memory_bytes
    assert waits == 0
