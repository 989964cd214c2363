"""The batch that is wished reaches scripts that ask, without a restart."""

import json
import re
from pathlib import Path

import pytest

from brain.types.batch import BatchWish
from brain.types.world import WorldEvent
from launcher.batch import Batch
from launcher.workers.batch_file import BatchFile, batch_environment
from tests.launcher.elastic import COUNTED, desired, eventually, job

ASKS = """
import time
from launcher.batch import Batch

batch = Batch(8)
with open("told.txt", "w") as told:
    while batch.local != 4:
        batch.renew()
        print(batch.local, batch.accumulation, batch.learning_rate_scale, file=told, flush=True)
        time.sleep(0.02)
"""


def environment(path: Path, workers: int = 1) -> dict[str, str]:
    return {"BRAIN_BATCH_FILE": str(path / "batch.json"), "WORLD_SIZE": str(workers)}


def told(path: Path, desired: BatchWish, *, processes: int = 1) -> dict[str, object]:
    file = BatchFile(str(path / "batch.json"))
    file.keep(desired, processes)
    said: dict[str, object] = json.loads((path / "batch.json").read_text())
    return said


def test_a_script_keeps_its_own_batch_where_nobody_advises(tmp_path: Path):
    batch = Batch(32, 2, environ=environment(tmp_path))

    assert (batch.renew(), batch.local, batch.accumulation) == (False, 32, 2)


def test_a_script_takes_what_it_is_told_and_is_told_of_changes_once(tmp_path: Path):
    batch = Batch(32, environ=environment(tmp_path, workers=2))
    told(tmp_path, BatchWish(global_size=256, local_most=64, learning_rate_scale=2.5), processes=2)

    assert (batch.renew(), batch.renew()) == (True, False)
    assert (batch.local, batch.accumulation, batch.learning_rate_scale) == (64, 2, 2.5)


def test_a_world_of_another_size_than_the_files_makes_the_same_global_batch(tmp_path: Path):
    told(tmp_path, BatchWish(global_size=256, local_most=64), processes=2)
    batch = Batch(32, environ=environment(tmp_path, workers=8))

    assert (batch.local, batch.accumulation) == (32, 1)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"global_batch": 0, "local_most": 0}', "\x00"])
def test_a_file_that_cannot_be_read_never_breaks_a_script(tmp_path: Path, text: str):
    (tmp_path / "batch.json").write_text(text)

    assert Batch(32, environ=environment(tmp_path)).local == 32


def test_what_dlrovers_loader_reads_rises_with_every_other_batch(tmp_path: Path):
    file = BatchFile(str(tmp_path / "batch.json"))
    versions = []
    for most in (64, 64, 32):
        file.keep(BatchWish(global_size=64, local_most=most), 1)
        said = json.loads((tmp_path / "batch.json").read_text())["dataloader"]
        versions.append((said["version"], said["batch_size"]))

    assert versions == [(1, 64), (1, 64), (2, 32)]


def test_scripts_that_do_not_ask_see_nothing_of_dlrovers(tmp_path: Path):
    assert batch_environment("b", dlrover=False) == {"BRAIN_BATCH_FILE": "b"}
    assert batch_environment(None, dlrover=True) == {}


def test_a_running_script_is_told_another_batch_and_its_world_goes_on(tmp_path: Path):
    first = BatchWish(global_size=16, local_most=16)
    with job(tmp_path, first=desired(1, batch=first), script=ASKS) as it:
        it.start_and_wait()
        file = it.work / "told.txt"
        eventually(lambda: file.exists() and "16 1 1.0" in file.read_text(), "the first batch")
        then = BatchWish(global_size=16, local_most=4, learning_rate_scale=1.5)
        it.brain.wishes(batch=then)
        assert it.ended(0).exit_code == 0

    assert file.read_text().splitlines()[-1] == "4 4 1.5"
    assert {report.epoch for report in it.brain.reports()} == {1}
    assert it.brain.told(WorldEvent.FINISHED).epoch == 1


@pytest.mark.slow
def test_a_newcomer_begins_with_the_batch_that_brain_chose(tmp_path: Path):
    wish = BatchWish(global_size=16, local_most=16)
    first = "from launcher.batch import Batch\nprint('batch', Batch(5).local, flush=True)\n"
    first += COUNTED.read_text()
    pace = ("--steps=100000", "--save-every=5", "--shared=0.06", "--alone=0.01")
    with job(tmp_path, *pace, first=desired(1, batch=wish), script=first) as it:
        it.begin(1)
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        it.brain.told(WorldEvent.STEPPING, 90, epoch=2)
        printed = (it.directory / "1" / "output.log").read_text()

    assert re.findall(r"batch (\d+)", printed) == ["8"]
