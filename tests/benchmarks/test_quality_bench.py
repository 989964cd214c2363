"""The benchmark of quality: its data, its batches, its row, and a script that resumes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.elastic.launchers import SCRIPTS
from benchmarks.quality import __main__ as quality
from launcher.workers.batch_file import BatchFile


@pytest.mark.parametrize("task", quality.EPOCHS)
def test_data_are_at_hand_and_parts_are_apart(task: str):
    found = quality.data(task)

    assert len(found["x"]) == len(found["y"]) > 1000
    assert len(found["held_x"]) == len(found["held_y"]) > 100
    if task != "language model":
        assert len(found["x"]) + len(found["held_x"]) == 1797


def test_every_change_is_one_of_world_and_of_batch():
    before = (1, quality.FIRST_BATCH)
    for after in quality.CHANGES:
        assert after[0] != before[0]
        assert after[1] != before[1]
        before = after


def test_a_larger_batch_takes_a_larger_rate_but_not_in_proportion():
    assert quality.wish(32).learning_rate_scale == 1
    assert 1 < quality.wish(64).learning_rate_scale < 2


def test_a_script_trains_to_its_end_and_says_what_it_lost(tmp_path: Path):
    np.savez(tmp_path / "data.npz", **quality.data("digits by MLP"))
    batch = tmp_path / "batch.json"
    BatchFile(str(batch)).keep(quality.wish(96), 1)
    program = [sys.executable, str(SCRIPTS / "quality.py")]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    subprocess.run(
        [*program, "digits by MLP", str(tmp_path / "data.npz"), "1", "2", "0"],
        env={
            **os.environ,
            **alone,
            "BENCH_TRACE": str(tmp_path),
            "BENCH_CHECKPOINT": str(tmp_path / "checkpoint.pt"),
            "BRAIN_BATCH_FILE": str(batch),
        },
        check=True,
    )

    said = quality.read(tmp_path / "result")
    assert said["steps"] == 2 * -(-1437 // 96)
    assert 0 < said["loss"] < 2.3
