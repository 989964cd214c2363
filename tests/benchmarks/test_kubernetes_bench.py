"""``make bench-kubernetes`` ends with the last lines of a program that ended, and waits no more."""

from pathlib import Path

import pytest

from benchmarks.kubernetes.births import begin
from benchmarks.kubernetes.faults import survived
from benchmarks.kubernetes.programs import product, server
from tests.kubernetes.apiserver import serving
from tests.kubernetes.scheduling import Scheduler

pytestmark = pytest.mark.slow


def test_a_dead_operator_ends_the_benchmark_with_its_last_lines() -> None:
    with server() as api, product(api, lease_seconds=0.001) as it:
        it.operators[0].process.wait(60)
        with pytest.raises(SystemExit, match=r"(?s)scaler\.cli ended with \d+; .*lease"):
            begin(api)


def test_a_killed_program_is_named_and_one_that_was_to_end_is_not() -> None:
    with server() as api, product(api) as it:
        it.start_operator()
        it.kill_leader()
        begin(api)
        it.brain.process.kill()
        it.brain.process.wait(60)
        with pytest.raises(SystemExit, match=r"brain\.service ended with -9"):
            api.until("running", 2, 600)


def test_an_operator_outlives_an_outage_that_outlasts_its_lease() -> None:
    with server() as api, product(api, lease_seconds=3.0):
        begin(api)
        api.ask("outage", seconds=6.0)
        api.ask("jobs", first=0, count=1)
        # ``until`` raises SystemExit if the operator ends.
        assert api.until("running", 2, 300)


def test_another_cluster_is_broken_by_a_proxy_before_it(tmp_path: Path) -> None:
    # An emulator in place of the other cluster: the way there is the same.
    with serving(tmp_path) as cluster:
        scheduler = Scheduler(cluster)
        rows = list(survived(1, 0.5, str(cluster.kubeconfig)))
        scheduler.close()
    assert [row.metric.partition(": ")[2] for row in rows] == [
        "1 jobs while nothing is broken",
        "1 jobs after all connections broke",
        "1 jobs in a storm of 410",
        "1 jobs after an outage of 0.5 s",
    ]
    assert all(row.value is not None for row in rows)
    assert {row.peer_value for row in rows[1:]} == {rows[0].value}
