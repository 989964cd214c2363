"""A bug that one job brings out keeps that job from being decided about, and nobody else."""

from dataclasses import replace

import pytest

from brain.errors import BadInput
from brain.lifecycle.observed import KIND
from brain.pool.rounds import Memo, share
from brain.ports import StoredFit
from brain.types.allocation import Bounds
from brain.types.job import OptimizeMode
from tests.pool.rounds.fleet import POOL, Fleet, scaling_by


def poisoned(**document: object) -> Fleet:
    """Two jobs that train; what is kept of one of them cannot be read any more."""
    fleet = Fleet({"a": 4})
    for name in ("sick", "well"):
        fleet.submit(name, scaling_by(0.9), replicas=Bounds(min=1, max=2), **document)
    fleet.turn_with_bugs()
    fleet.settle()
    fleet.train(10)
    with fleet.stores.transaction() as tx:
        broken = StoredFit(
            job=fleet.jobs["sick"].id, kind=KIND, parameters="[1", fitted_at=fleet.now
        )
        tx.fits.put(broken)
    return fleet


def test_one_broken_job_does_not_end_the_turn_of_its_pool():
    fleet = poisoned(optimize_mode=OptimizeMode.SINGLE_JOB)

    turn = fleet.turn_with_bugs()

    assert list(turn.undecided) == [fleet.jobs["sick"].id]
    assert fleet.decision("well").explanation.code in ("exploring", "scales-well")


def test_a_job_that_is_not_being_decided_about_says_so_and_stays():
    fleet = poisoned()

    fleet.turn_with_bugs()

    found = fleet.decision("sick")
    assert (found.explanation.code, found.hold) == ("undecided", True)
    assert "Brain failed while deciding about this job" in found.explanation.reason


def test_those_that_share_with_a_broken_job_are_decided_about():
    fleet = poisoned()

    turn = fleet.turn_with_bugs()

    assert turn.round is not None
    assert [share.name for share in turn.round.shares] == ["well"]


def test_a_job_that_is_mended_is_decided_about_again():
    fleet = poisoned()
    fleet.turn_with_bugs()
    with fleet.stores.transaction() as tx:
        tx.fits.put(
            StoredFit(job=fleet.jobs["sick"].id, kind=KIND, parameters="[]", fitted_at=fleet.now)
        )

    fleet.train(2)

    assert not fleet.turn_with_bugs().undecided
    assert fleet.decision("sick").explanation.code != "undecided"


def test_a_member_that_a_pool_cannot_be_divided_with_is_set_aside():
    fleet = Fleet({"a": 4})
    fleet.memo = Memo(POOL)
    for name in ("sick", "well"):
        fleet.submit(name, scaling_by(0.9), replicas=Bounds(min=1, max=2))
    fleet.live(20)
    looked = fleet.memo.looked[fleet.jobs["sick"].id]
    assert looked.member is not None
    broken = replace(looked.member, attained_seconds="a day")
    fleet.memo.looked[looked.member.job.id] = replace(looked, member=broken)
    fleet.memo.round_at = None

    done = share(fleet.stores, fleet.memo, fleet.settings, fleet.now)

    assert list(done.undecided) == [fleet.jobs["sick"].id]
    assert done.round is not None
    assert [one.name for one in done.round.shares] == ["well"]


def test_simulations_and_tests_stop_at_a_bug():
    with pytest.raises(BadInput):
        poisoned().turn_with_bugs().checked()
