"""What ``make test-gpu`` does without a card, and two of its parts on the CPU."""

import subprocess
import sys

import pytest

from tests.gpu.parts import PARTS
from tests.gpu.stage import ROOT, told


def gpu(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """``python -m tests.gpu`` where no card is to be seen."""
    command = ["env", "CUDA_VISIBLE_DEVICES=", sys.executable, "-m", "tests.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)


@pytest.mark.timeout(400)
def test_without_a_card_one_sentence_says_so_and_nothing_fails() -> None:
    said = gpu()
    last = said.stdout.splitlines()[-1]
    assert said.returncode == 0
    assert last.startswith("no NVIDIA card that torch")
    assert last.endswith("is here: nothing was run")


def test_an_interpreter_without_torch_is_told_of_in_one_sentence() -> None:
    command = [sys.executable, "-S", "-m", "tests.gpu"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines()[-1] == f"{sys.executable} has no torch: nothing was run"


def test_no_part_may_take_longer_than_four_minutes_or_has_the_name_of_another() -> None:
    assert max(part.seconds for part in PARTS) <= 240
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_lines_are_found_by_the_words_that_they_begin_with() -> None:
    assert told("first use 20\nfirst\nfirst use\nfirst used 3", "first use") == ["20", ""]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "name", ["groups", pytest.param("elastic-checkpoint", marks=pytest.mark.slow)]
)
def test_a_part_proves_on_the_cpu_what_it_can(name: str) -> None:
    said = gpu("--twin", name)
    assert said.returncode == 0, said.stdout
    assert f"ok   {name}, " in said.stdout
