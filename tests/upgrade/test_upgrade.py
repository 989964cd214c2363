"""A release follows another while a job trains, one program after the other."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.soak.changes import Records, astray, disagreements, undisturbed
from tests.upgrade.releases import SCRIPT, TODAY, House, Training, house, previous

pytestmark = pytest.mark.upgrade


def job_of(made: House) -> dict[str, object]:
    """The job as today's API shows it."""
    (found,) = json.loads(made.brain(TODAY, "jobs", "-o", "json"))
    return dict(found)


def test_no_job_notices_that_service_and_scaler_then_agents_are_replaced(tmp_path: Path):
    old = previous()
    with house(tmp_path / "home") as made:
        made.service(old)
        made.scaler(old)
        made.submit(old)
        training = Training(made, Records(made.work / "records"))
        training.steps(60, size=1)
        made.brain(old, "resize", "job", "2")
        training.steps(60, size=2)
        epoch, workers = training.epoch, training.workers

        made.stop("service")
        made.service(TODAY)
        training.steps(60)
        assert json.loads(made.brain(TODAY, "plans", "-o", "json"))[0]["plan"]["generation"] == 1
        made.stop("scaler")
        made.scaler(TODAY)
        training.steps(60)
        assert (training.epoch, training.workers) == (epoch, workers)
        assert job_of(made)["losses"] == {"gaps": 0, "dropped": 0}

        # An agent of today joins two of the previous release, and outlives them.
        made.brain(TODAY, "resize", "job", "3")
        training.steps(60, size=3)
        for replica in (0, 1):
            os.kill(made.agents()[replica], signal.SIGKILL)
            training.until(lambda gone=replica: gone not in made.agents(), "the end of an agent")
            training.steps(60, size=3)
        assert min(made.agents()) == 2
        made.brain(TODAY, "cancel", "job")
        training.until(lambda: not made.agents(), "the end of the job")
        found = list(training.found)
    assert disagreements(found) == []
    assert astray(found, undisturbed(tmp_path, SCRIPT, max(each.step for each in found))) == []


def test_in_another_order_the_job_trains_on_until_the_service_follows(tmp_path: Path):
    old = previous()
    with house(tmp_path / "home") as made:
        made.service(old)
        made.scaler(old)
        made.submit(old)
        training = Training(made, Records(made.work / "records"))
        training.steps(60, size=1)
        workers = training.workers

        made.stop("scaler")
        made.scaler(TODAY)
        training.steps(60)
        os.kill(made.agents()[0], signal.SIGKILL)
        training.until(lambda: training.workers != workers, "another replica")
        training.steps(60)
        made.stop("service")
        training.steps(60)
        made.service(TODAY)
        training.steps(60)
        last = max(each.step for each in training.found)
        training.until(lambda: int(str(job_of(made)["step"])) >= last, "telemetry")
        assert job_of(made)["losses"] == {"gaps": 0, "dropped": 0}


def test_a_service_of_the_previous_release_refuses_a_newer_database(tmp_path: Path):
    old = previous()
    with house(tmp_path / "home") as made:
        made.service(TODAY)
        made.stop("service")
        with pytest.raises(AssertionError, match="run the newer Brain, or put back the copy"):
            made.service(old)
