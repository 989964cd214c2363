"""Whether a worker met another one, as the probe tells it along its steps."""

from pathlib import Path

import pytest

from tests.collectors.probed import NETWORK, worker

STEPS = "for (x,) in data():\n    learn(x); optimizer.step()\n"


def test_a_script_that_knows_no_other_worker_met_nobody(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.run(NETWORK + STEPS)
        assert {window.met for window in job.windows} == {False}


def test_a_process_group_of_one_is_nobody(tmp_path: Path) -> None:
    group = f"torch.distributed.init_process_group('gloo', init_method='file://{tmp_path}/store', "
    group += "rank=0, world_size=1)\n"
    with worker(tmp_path) as job:
        job.run(NETWORK + group + STEPS)
        assert {window.met for window in job.windows} == {False}


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE"])
def test_a_worker_of_another_launcher_met_its_peers(tmp_path: Path, name: str) -> None:
    with worker(tmp_path) as job:
        job.run(NETWORK + STEPS, **{name: "2"})
        assert {window.met for window in job.windows} == {True}
