"""Recorded decisions are taken again on the past as it was, and what cannot be told is said."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from brain import errors, lifecycle
from brain.cli import cli
from brain.cli.replay import span
from brain.db import SqlStores, prepare
from brain.pool.rounds import Memo
from brain.settings import settings_from
from brain.simulator import replay as again
from brain.simulator.replay import Recording, Replayed, ReplayVerdict
from brain.simulator.replay.past import Cut, PastEvidence, job_then, replicas_then
from brain.types.allocation import Bounds
from brain.types.explanation import Explanation
from brain.types.job import ApprovalPolicy, Checkpoint, PolicyMode
from brain.types.resources import Resources
from tests import builders
from tests.pool.rounds.fleet import POOL, Fleet
from tests.pool.rounds.fleet import QUICK as SHARED
from tests.virtual import QUICK, Laptop, scaling_by


@pytest.fixture(scope="module")
def laptop() -> Laptop:
    """A job that grew from one replica to four within two minutes."""
    lived = Laptop(scaling_by(0.9), cpus=4).start()
    lived.live(200)
    return lived


def recording(laptop: Laptop, *, seconds: float = 1000) -> Recording:
    with laptop.stores.transaction(read_only=True) as tx:
        return again.recorded(tx, since=laptop.now - timedelta(seconds=seconds), now=laptop.now)


def replayed(laptop: Laptop, policy: str = "brain", **settings: object) -> tuple[Replayed, ...]:
    fields = {name: getattr(QUICK, name) for name in QUICK.__slots__}
    return again.replay(
        laptop.stores,
        recording(laptop),
        policy=policy,
        settings=settings_from(fields, settings),
        recorded_settings=QUICK,
    )


def test_under_the_same_settings_every_decision_is_the_same(laptop: Laptop):
    found = replayed(laptop)
    assert len(found) >= 6
    assert {one.verdict for one in found} == {ReplayVerdict.SAME}
    assert all(one.evidence is PastEvidence.SAMPLES for one in found[1:])


def test_another_setting_decides_otherwise_where_it_matters(laptop: Laptop):
    found = replayed(laptop, minimum_gain=2.0)
    grew = [one for one in found if one.decision.generation is not None]
    assert [one.verdict for one in grew] == [ReplayVerdict.DIFFERENT] * 2
    assert [one.replicas for one in grew] == [1, 2]


def test_a_difference_comes_with_its_band_and_the_worlds_that_support_it(laptop: Laptop):
    first = next(one for one in replayed(laptop, minimum_gain=2.0) if one.decision.generation == 1)
    assert first.gain is not None
    center, low, high = first.gain
    assert low < 2**-0.9 - 1 < high
    assert low < center < high < 0
    assert {support.replicas: support.worlds for support in first.supports} == {1: (1,), 2: (2,)}


def test_a_policy_of_fixed_sizes_stays_at_what_was_asked_for(laptop: Laptop):
    found = replayed(laptop, "fifo")
    assert {one.replicas for one in found} == {1}
    assert again.tally(found).replica_hours < 0


def test_time_that_several_decisions_speak_of_counts_once(laptop: Laptop):
    total = again.tally(replayed(laptop, "fifo"))
    trained = (laptop.now - recording(laptop).jobs[0].worlds[-1].formed_at).total_seconds()
    assert -3 * trained / 3600 < total.replica_hours < 0


def test_where_samples_are_gone_the_points_of_worlds_stand_for_them(laptop: Laptop):
    lived = Laptop(scaling_by(0.9), cpus=4).start()
    lived.live(200)
    with lived.stores.transaction() as tx:
        tx.telemetry.retire(raw_before=lived.now, means_before=lived.now, hours_before=lived.now)
    found = replayed(lived, minimum_gain=2.0)
    assert {one.evidence for one in found} <= {PastEvidence.POINTS, PastEvidence.NOTHING}
    assert any(one.verdict is ReplayVerdict.DIFFERENT for one in found)


def test_a_job_reserves_in_the_past_what_it_did_then():
    before = Resources(cpu_millis=1000, memory_bytes=2**30)
    more, why = replace(before, memory_bytes=2**31), Explanation(code="", reason="", next_step="")
    auto = {"replicas": Bounds(min=1, max=1), "policy": ApprovalPolicy(mode=PolicyMode.AUTO)}
    lived = Laptop(scaling_by(0.9), resources=before, **auto).start()
    lived.observe(builders.replica(resources=before))
    lived.live(60)
    with lived.transaction() as (tx, job):
        aim, given = lifecycle.standing([], job)[1], {"settings": QUICK, "now": lived.now}
        lifecycle.propose_amounts(tx, job, replace(aim, resources=more), why, None, **given)
        cut = Cut(before=tx.events.last_id() + 1, at=lived.now)
    lived.observe(builders.replica(resources=more))
    lived.live(10)
    record = recording(lived).jobs[0]
    assert (job_then(record, cut).resources, record.job.resources) == (before, more)
    assert [one.resources for one in replicas_then(record, cut)] == [before]
    now = replace(cut, before=cut.before + 10_000, at=lived.now)
    assert job_then(record, now).resources == more
    assert [one.resources for one in replicas_then(record, now)] == [more]


def test_checkpoints_that_were_seen_are_seen_again():
    """Without a save nothing would have been resized."""
    lived = Laptop(scaling_by(0.9), checkpoint=Checkpoint()).start()
    lived.live(16)
    with lived.stores.transaction() as tx:
        saved = builders.save(measured_at=lived.now)
        tx.telemetry.add([saved], received_at=lived.now)
    lived.live(60)
    found = replayed(lived)
    assert any(one.decision.generation is not None for one in found)
    assert {one.verdict for one in found} == {ReplayVerdict.SAME}


def test_every_decision_about_jobs_that_share_a_pool_is_the_same():
    """Plans that wait for others', also for those of a job that has ended since."""
    fleet = Fleet({"a": 8})
    fleet.memo = Memo(POOL)
    fleet.submit("flat", scaling_by(-0.1), replicas=Bounds(min=1, max=8, start=6))
    fleet.live(40)
    fleet.submit("scales", scaling_by(0.9), replicas=Bounds(min=1, max=8))
    fleet.live(120)
    fleet.finish("flat")
    fleet.live(60)
    with fleet.stores.transaction(read_only=True) as tx:
        past = again.recorded(tx, since=fleet.now - timedelta(hours=1), now=fleet.now)
        waited = [plan for plan in tx.plans.of(fleet.jobs["scales"].id) if plan.after]
    found = again.replay(
        fleet.stores, past, policy="brain", settings=SHARED, recorded_settings=SHARED
    )

    assert waited
    assert any(one.decision.code == "plan-active" for one in found)
    assert {one.verdict for one in found} == {ReplayVerdict.SAME}


def test_what_is_gone_is_not_guessed():
    """A world of which neither samples nor a point are left."""
    lived = Laptop(scaling_by(0.9), cpus=4).start()
    lived.live(60)
    record = recording(lived).jobs[0]
    bare = Recording(
        since=record.job.created_at,
        now=lived.now,
        nodes=(),
        jobs=(type(record)(job=record.job, plans=record.plans, worlds=record.worlds,
                           replicas=(), events=record.events, points=()),),
    )  # fmt: skip
    with lived.stores.transaction() as tx:
        tx.telemetry.retire(raw_before=lived.now, means_before=lived.now, hours_before=lived.now)
    found = again.replay(
        lived.stores, bare, policy="brain", settings=QUICK, recorded_settings=QUICK
    )
    grew = next(one for one in found if one.decision.generation == 1)
    assert grew.verdict is ReplayVerdict.UNTOLD
    assert "some data is gone" in grew.untold


def test_a_job_that_never_ran_is_refused_by_name(laptop: Laptop):
    with pytest.raises(errors.UnknownJob, match="no job letters has run since"):
        recording(laptop).only("letters")


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "0h", "7 fortnights"])
def test_a_stretch_of_time_that_is_none_is_refused(text: str):
    with pytest.raises(errors.BadInput, match="write 90m, 12h or 7d"):
        span(text)


def test_a_stretch_of_time_beyond_a_century_is_refused():
    with pytest.raises(errors.BadInput, match="more than a century; give a shorter duration"):
        span("99999999999w")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BRAIN_HOME", str(tmp_path))
    return tmp_path


def test_the_command_says_that_nothing_is_recorded(home: Path):
    with pytest.raises(
        errors.Unavailable, match=r"no decisions are recorded in .*brain.db, which is missing"
    ):
        CliRunner().invoke(cli, ["replay"], catch_exceptions=False)


def test_the_command_replays_what_is_recorded_in_the_database(home: Path):
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    stores = SqlStores(url)
    lived = Laptop(scaling_by(0.9), stores=stores).start()
    lived.live(60)
    stores.close()
    same = [f"{name}={getattr(QUICK, name)}" for name in ("dwell_seconds", "restart_seconds")]
    (home / "brain.toml").write_text(
        "policy_mode = 'auto'\nverify_seconds = 120\n" + "\n".join(same) + "\n"
    )
    words = ["replay", "--since", "500w", "--set", "minimum_gain=1"]
    said = CliRunner().invoke(cli, words, catch_exceptions=False).output
    assert "digits: 1 → 2 replicas" in said
    assert "measured in world 2" in said
    told = CliRunner().invoke(cli, [*words, "-o", "json"], catch_exceptions=False).output
    assert json.loads(told)["summary"]["different"] == 1
