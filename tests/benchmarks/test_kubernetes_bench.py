"""``make bench-kubernetes`` ends with the last lines of a program that ended, and waits no more."""

import pytest

from benchmarks.kubernetes.births import begin
from benchmarks.kubernetes.programs import product, server


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
