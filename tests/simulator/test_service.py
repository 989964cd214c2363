"""Brain's own loop decides in virtual time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brain.lifecycle.work import earlier_runs, promised_work
from brain.simulator.applications import DeviceKind
from brain.simulator.service import Service
from brain.simulator.spec import NodeTrouble
from brain.simulator.submitted import document_of, steps_of
from brain.simulator.telling import exchange_wait_share
from brain.simulator.world import SimulatedCluster
from brain.types.job import OptimizeMode
from brain.types.sharing import ProjectShare
from tests.simulator import building

ROOT = Path(__file__).parents[2]


def test_brain_finds_out_that_a_job_scales_and_gives_it_more():
    job = building.arrival(application="perfect", scale=3, batch=1000)
    (result,) = building.simulated([job]).jobs
    sizes = [len(stay.placement) for stay in result.stays]
    assert sizes[0] < max(sizes)
    assert max(sizes) >= 4


def test_brain_leaves_a_job_alone_that_does_not_scale():
    job = building.arrival(scale=0.3, batch=64)
    (result,) = building.simulated([job]).jobs
    tried = [stay for stay in result.stays if len(stay.placement) > 4]
    assert len(result.stays[-1].placement) <= 4
    assert sum(stay.ended - stay.stepped for stay in tried) < 60


def test_what_is_not_measured_yet_is_looked_at_long_before_the_next_turn():
    hourly = building.spec(turn_seconds=3600.0)
    asked = building.simulated([building.arrival(scale=0.2)], "brain", hourly).time.rounds
    assert asked >= 4


def test_probes_tell_what_of_a_step_waits_for_gradients():
    profile, device = building.APPLICATIONS["perfect"], DeviceKind(name="t4")
    alone, (one, two) = (1,), (profile.seconds(device, (1, 1), 100, n) for n in (1, 2))

    share = exchange_wait_share(profile, device, (1, 1), 100, 2)

    assert share == pytest.approx((one - (two - one)) / two)
    assert exchange_wait_share(profile, device, alone, 100, 1) == pytest.approx(0.0, abs=1e-9)


def test_a_project_never_has_more_than_its_limit():
    jobs = [
        building.arrival("held", application="perfect", scale=3, project="small"),
        building.arrival("free", application="perfect", scale=3),
    ]
    limited = building.spec(projects={"small": ProjectShare(limit=2)})
    held, free = building.simulated(jobs, "brain", limited).jobs
    assert max(len(stay.placement) for stay in held.stays) <= 2
    assert max(len(stay.placement) for stay in free.stays) > 2


def test_every_job_of_brain_ends_although_nodes_fail():
    jobs = [building.arrival(f"job-{index}", 100 * index, wanted=2) for index in range(6)]
    troubled = building.spec(failures=NodeTrouble(per_node_day=200, minutes=5))
    outcome = building.simulated(jobs, "brain", troubled)
    assert len(outcome.jobs) == 6
    assert outcome.summary.lost > 0


def test_the_same_seed_gives_brain_the_same_world_and_another_seed_another():
    jobs = [building.arrival(f"job-{index}", 200 * index, wanted=2) for index in range(4)]
    troubled = building.spec(stragglers=NodeTrouble(per_node_day=50, minutes=30))
    one, same, other = (
        building.simulated(jobs, "brain", troubled, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same
    assert one.jobs != other.jobs


def test_runs_of_one_name_learn_whether_declarations_are_true():
    jobs = [
        building.arrival(
            f"run-{index}", 9000 * index, declared=True, submitted_as="nightly", scale=8
        )
        for index in range(3)
    ]
    world = SimulatedCluster(building.spec(), jobs, building.APPLICATIONS)
    service = Service(world, building.AUTO, mode=OptimizeMode.CLUSTER, seed=0, noise=0.02)
    upcoming = 1.0
    while not world.over:
        service.govern(world.advance(upcoming), lambda: 0.0)
        upcoming = max(world.now + 60.0, 0.0 if world.present else world.next_arrival or 0.0)
    with service.stores.transaction(read_only=True) as tx:
        last = tx.jobs.get("nightly")
        said = promised_work(last, earlier_runs(tx, last))
    assert said is not None
    assert said.ratios == pytest.approx((1.0, 1.0), rel=0.2)


def test_two_runs_at_once_have_names_of_their_own():
    jobs = [building.arrival(f"run-{index}", index, submitted_as="nightly") for index in range(2)]
    assert len(building.simulated(jobs).jobs) == 2


def test_declared_steps_are_those_that_the_work_takes():
    world = SimulatedCluster(
        building.spec(), [building.arrival(declared=True)], building.APPLICATIONS
    )
    world.advance(1.0)
    run = world.present[0]
    worth = (500 + 64) / (500 + 256)
    assert steps_of(run) == pytest.approx(run.work / 256 / worth, rel=1e-3)
    assert document_of(run, OptimizeMode.CLUSTER, {"gpu": 256}).steps == steps_of(run)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_order_of_sets_changes_nothing(tmp_path: Path):
    """Hashes of strings differ from process to process."""
    workload, answers = tmp_path / "workload.csv", []
    rows = (ROOT / "examples" / "workload.csv").read_text().splitlines()
    few = ("name", "digits", "clicks", "leaves")
    workload.write_text("\n".join(row for row in rows if row.startswith(few)))
    for hashes in ("1", "2"):
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "brain.cli", "simulate", str(workload)),
                *("--cluster", "examples/cluster.yaml", "-o", "json"),
                *("--report", str(tmp_path / "page.html")),
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(ran.stdout.partition('"policy_seconds"')[0])
    assert answers[0] == answers[1]


def test_a_script_that_is_told_its_batch_begins_with_the_first_and_is_told_larger_ones():
    asks = building.arrival(tunes=True, batch=256)
    world = SimulatedCluster(building.spec(), [asks], building.APPLICATIONS)
    governor = Service(world, building.AUTO, mode=OptimizeMode.CLUSTER, seed=0, noise=0.0)
    batches = []
    while not world.over:
        governor.govern(world.advance(world.now + 60.0), lambda: 0.0)
        batches += [run.batch for run in world.present]

    assert batches[0] == 64
    assert max(batches) > 256


def test_a_script_that_is_told_its_batch_is_done_sooner():
    at = {"application": "usual", "batch": 64, "scale": 8.0}
    told, keeps = (
        building.simulated([building.arrival(tunes=tunes, **at)]).summary.jct_mean
        for tunes in (True, False)
    )

    assert told < keeps


def test_a_batch_that_a_script_keeps_stays_what_its_row_says():
    job = building.arrival(batch=256, scale=4)
    world = SimulatedCluster(building.spec(), [job], building.APPLICATIONS)
    governor = Service(world, building.AUTO, mode=OptimizeMode.CLUSTER, seed=0, noise=0.0)
    for _ in range(5):
        governor.govern(world.advance(world.now + 60.0), lambda: 0.0)

    assert [(run.batch, run.most_local) for run in world.present] == [(256, None)]
