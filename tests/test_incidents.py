"""The loop in virtual time through what once went wrong elsewhere; see also the tests of guards."""

import json
from dataclasses import replace

from brain.lifecycle.observed import KIND
from brain.models.fitting import Point
from brain.models.job_fit import forget_every_fit
from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, PolicyMode
from tests.virtual import Laptop, scaling_by


def test_after_an_outage_the_first_look_decides_nothing_and_the_second_does():
    laptop = (
        Laptop(scaling_by(0.9), policy=ApprovalPolicy(mode=PolicyMode.APPROVE)).start().train(6)
    )
    laptop.turn()
    laptop.train(120)

    codes = []
    for _ in range(2):
        laptop.train(2).turn()
        codes.append(laptop.decision.explanation.code)

    assert codes == ["returned", "exploring"]


def test_redeploy_changes_nothing():
    laptop = Laptop(scaling_by(0.9), cpus=4, noise=0.01).start()
    laptop.live(120)
    before, plans = laptop.decision, laptop.plans
    forget_every_fit()

    laptop.turn()

    assert laptop.decision == replace(before, decided_at=laptop.now)
    assert laptop.plans == plans


def test_upgrade_forgets_nothing_points_of_an_earlier_release_are_read_on():
    laptop = Laptop(scaling_by(0.9), cpus=2).start()
    laptop.live(60)
    gained = ("nodes", "accumulation", "compute_seconds", "noise_scale", "foretold")
    with laptop.transaction() as (tx, job):
        stored = tx.fits.get(job.id, KIND)
        assert stored is not None
        points = json.loads(stored.parameters)
        old = [{k: v for k, v in point.items() if k not in gained} for point in points]
        tx.fits.put(replace(stored, parameters=json.dumps(old)))

    known = laptop.sight

    assert [point.replicas for point in known.earlier] == [1]
    assert known.predict(1).exploring is False


def test_forecasts_are_kept_from_before_their_world_was_measured():
    laptop = Laptop(scaling_by(0.9)).start()
    laptop.live(60)

    present = laptop.sight.present
    assert isinstance(present, Point)
    assert present.foretold is not None
    assert present.foretold.exploring
    assert present.foretold.low < present.rate < present.foretold.high


def test_a_job_larger_than_the_pool_stays_where_it_is_and_says_why():
    laptop = Laptop(scaling_by(0.9), cpus=1, replicas=Bounds(min=1, max=64)).start()

    laptop.live(40)

    reasons = {a.replicas: a.why_not for a in laptop.decision.explanation.alternatives}
    assert laptop.size == 1
    assert "the pool has room for" in reasons[64]
