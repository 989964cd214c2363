"""What a probe runs, and what it keeps its hands off."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brain.cli.probing import ProbeRun, trials, twice
from brain.cli.view import View, apart
from brain.errors import BadInput, Undetermined
from brain.types.estimate import SizeEstimate

SAVES = "open('{path}', 'a').write('touched')"


def size(replicas: int, *, nodes: int = 1, fits: bool = True) -> SizeEstimate:
    return SizeEstimate(
        accelerator="cpu", replicas=replicas, nodes=nodes, accelerators=replicas, fits_now=fits
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A job's directory with a trained checkpoint."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text("import part\n")
    (job / "part.py").write_text("")
    (job / "data.bin").write_text("data")
    (job / "last.pt").write_text("trained")
    (job / "runs").mkdir()
    (job / "runs" / "best.pt").write_text("trained")
    (job / "runs" / "notes.txt").write_text("notes")
    return job


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def job(place: Path, checkpoint: str | None = "last.pt", **fields: Any) -> dict[str, Any]:
    given = {"name": "train", "command": ["python", "train.py"], "directory": str(place)}
    saves = {} if checkpoint is None else {"checkpoint": {"path": checkpoint}}
    return given | saves | fields


def shown(place: Path, scratch: Path, checkpoint: str | None, **fields: Any) -> dict[str, Any]:
    document = job(place, checkpoint, **fields)
    view = View.of(document, saves_nothing=checkpoint is None)
    return apart(view, document, document["command"], scratch)


def test_the_smallest_size_comes_first_then_twice_its_batch_then_full_nodes():
    sizes = [size(1), size(2), size(4), size(8, nodes=2), size(16, nodes=4)]
    assert trials(sizes, doubled=True) == [
        ProbeRun(replicas=1),
        ProbeRun(replicas=1, doubled=True),
        ProbeRun(replicas=4),
        ProbeRun(replicas=8),
    ]


def test_only_what_fits_now_is_tried():
    assert trials([size(1), size(2), size(4, fits=False)], doubled=False) == [
        ProbeRun(replicas=1),
        ProbeRun(replicas=2),
    ]


def test_a_full_pool_is_said_to_be_full():
    with pytest.raises(Undetermined, match="no size of the job fits"):
        trials([size(1, fits=False)], doubled=False)


@pytest.mark.parametrize(
    ("command", "doubled"),
    [
        (["python", "t.py", "--batch", "64"], ["python", "t.py", "--batch", "128"]),
        (["python", "t.py", "--batch=64", "-v"], ["python", "t.py", "--batch=128", "-v"]),
    ],
)
def test_a_batch_is_doubled_where_the_command_says_it(command: list[str], doubled: list[str]):
    assert twice(command, "--batch") == doubled


@pytest.mark.parametrize("command", [["python", "t.py"], ["python", "t.py", "--batch", "auto"]])
def test_a_batch_that_the_command_does_not_say_is_asked_for(command: list[str]):
    with pytest.raises(BadInput, match="add `--batch 64`"):
        twice(command, "--batch")


def test_a_script_sees_its_files_but_not_its_checkpoint(place: Path, scratch: Path):
    made = shown(place, scratch, "last.pt")
    assert made["directory"] == str(scratch)
    assert sorted(path.name for path in scratch.iterdir()) == [
        "data.bin",
        "part.py",
        "runs",
        "train.py",
    ]


@pytest.mark.parametrize("checkpoint", ["last.pt", "runs/best.pt", "runs"])
def test_what_was_trained_is_not_written_to(place: Path, scratch: Path, checkpoint: str):
    shown(place, scratch, checkpoint)
    path = "runs/best.pt" if checkpoint == "runs" else checkpoint
    subprocess.run([sys.executable, "-c", SAVES.format(path=path)], cwd=scratch, check=True)
    assert (place / path).read_text() == "trained"


def test_neighbours_that_look_like_the_checkpoint_are_not_written_to(place: Path, scratch: Path):
    (place / "step-100.pt").write_text("trained")
    shown(place, scratch, "last.pt")
    subprocess.run(
        [sys.executable, "-c", SAVES.format(path="step-100.pt")], cwd=scratch, check=True
    )
    assert (place / "step-100.pt").read_text() == "trained"


def test_a_checkpoint_elsewhere_is_renamed_in_command_and_environment(place: Path, scratch: Path):
    there = str(place.parent / "elsewhere" / "last.pt")
    made = shown(
        place,
        scratch,
        there,
        command=["python", "train.py", f"--to={there}"],
        environment={"SAVE": there},
    )
    moved = str(scratch / ".probe-checkpoint" / "last.pt")
    assert made["command"][-1] == f"--to={moved}"
    assert made["environment"] == {"SAVE": moved}
    assert made["checkpoint"] == {"path": moved}


def test_a_checkpoint_elsewhere_that_the_command_does_not_name_is_refused(place: Path):
    with pytest.raises(BadInput, match="nor named in the command"):
        View.of(job(place, "/elsewhere/last.pt"), saves_nothing=False)


def test_a_script_that_may_save_anywhere_is_refused_with_what_to_say(place: Path):
    with pytest.raises(BadInput, match="--checkpoint none"):
        View.of(job(place, None), saves_nothing=False)


def test_a_script_said_to_save_nothing_is_told_what_is_not_kept_apart(place: Path):
    view = View.of(job(place, None), saves_nothing=True)
    assert "changes the original" in view.promise


def test_a_script_named_by_its_full_path_runs_in_the_scratch_directory(place: Path, scratch: Path):
    made = shown(place, scratch, "last.pt", command=["python", str(place / "train.py")])
    assert made["command"][1] == str(scratch / "train.py")


def test_a_checkpoint_that_was_written_all_the_same_is_told(place: Path):
    view = View.of(job(place), saves_nothing=False)
    assert view.changed() is None
    (place / "last.pt").write_text("overwritten")
    assert view.changed() == place / "last.pt"


def test_a_probe_has_neither_budget_nor_deadline(place: Path, scratch: Path):
    made = shown(place, scratch, "last.pt", budget={"cost": 1}, steps=3)
    assert "budget" not in made
    assert made["steps"] == 3


def test_a_directory_that_is_not_there_is_refused(place: Path):
    with pytest.raises(BadInput, match="does not exist"):
        View.of(job(place / "nowhere"), saves_nothing=False)


def test_what_cannot_be_read_is_named(place: Path, scratch: Path):
    document = job(place)
    view = View.of(document, saves_nothing=False)
    (scratch / "train.py").mkdir()
    (scratch / "train.py" / "train.py").mkdir()
    with pytest.raises(BadInput, match="the probe run cannot read"):
        apart(view, document, document["command"], scratch)
