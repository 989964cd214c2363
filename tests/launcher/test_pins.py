"""A checkpoint survives whatever the next world does to it."""

import os
import resource
from pathlib import Path

import pytest

from launcher.coordinator.pins import (
    CannotPin,
    loads,
    pin,
    pin_all,
    put_back,
    renew_all,
    restore,
    sweep,
    unpin,
)

JOB = "job"


def saved(directory: Path, content: str = "step 10") -> Path:
    """A checkpoint."""
    path = directory / "model.pt"
    path.write_text(content)
    return path


def sharded(directory: Path) -> Path:
    """A checkpoint that is a directory."""
    path = directory / "step-10"
    (path / "nested").mkdir(parents=True)
    (path / "rank0.pt").write_text("0")
    (path / "nested" / "rank1.pt").write_text("1")
    return path


def test_a_checkpoint_that_is_renamed_into_place_is_linked_not_copied(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=True)

    assert os.path.samefile(kept.kept, path)
    assert Path(kept.kept).name == ".brain-pin-job-model.pt.pin"


def test_no_pattern_for_checkpoints_finds_a_pin(tmp_path: Path) -> None:
    checkpoints = tmp_path / "job" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for path in (saved(checkpoints), sharded(checkpoints)):
        pin(str(path), job=JOB, replaced=True)

    assert [path.name for path in checkpoints.glob("*.pt")] == ["model.pt"]
    assert [path.name for path in checkpoints.iterdir() if path.is_dir()] == ["step-10"]
    assert sweep([str(checkpoints)], job=JOB)
    assert not list(tmp_path.rglob(".brain-pin-*"))


def test_a_checkpoint_that_is_overwritten_in_place_is_copied(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=False)
    path.write_text("step 0")

    assert Path(kept.kept).read_text() == "step 10"


def test_a_checkpoint_that_was_replaced_comes_back(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=True)
    (tmp_path / "new").write_text("step 0")
    os.replace(tmp_path / "new", path)

    assert restore(kept)
    assert path.read_text() == "step 10"


def test_a_checkpoint_that_was_deleted_comes_back(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=True)
    path.unlink()

    assert restore(kept)
    assert path.read_text() == "step 10"


def test_a_checkpoint_that_is_still_there_is_left_alone(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = path.stat().st_ino

    assert not restore(pin(str(path), job=JOB, replaced=False))
    assert path.stat().st_ino == before


@pytest.mark.parametrize("replaced", [True, False])
def test_a_directory_comes_back_with_all_its_files(tmp_path: Path, replaced: bool) -> None:
    path = sharded(tmp_path)
    kept = pin(str(path), job=JOB, replaced=replaced)
    (path / "rank0.pt").unlink()
    (path / "other.pt").write_text("new")

    assert restore(kept)
    assert sorted(p.name for p in path.rglob("*.pt")) == ["rank0.pt", "rank1.pt"]


def test_a_pin_that_is_put_back_is_kept_on_for_the_next_attempt(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=True)
    path.unlink()
    put_back([kept], job=JOB, keep=True)

    assert os.path.samefile(kept.kept, path)


def test_a_missing_checkpoint_cannot_be_kept_and_the_reason_names_it(tmp_path: Path) -> None:
    with pytest.raises(CannotPin, match=r"gone\.pt cannot be kept: No such file"):
        pin(str(tmp_path / "gone.pt"), job=JOB, replaced=True)


def test_all_are_kept_or_none(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(CannotPin):
        pin_all({str(path): True, str(tmp_path / "gone.pt"): True}, job=JOB)

    assert not list(tmp_path.glob(".brain-pin-*"))


def test_a_full_disk_is_a_reason_to_hold(tmp_path: Path) -> None:
    path = saved(tmp_path, "x" * 4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(CannotPin, match="cannot be kept"):
            pin(str(path), job=JOB, replaced=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert not list(tmp_path.glob(".brain-pin-*"))


def test_loading_the_pinned_file_counts_whatever_it_is_called(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=True)
    other = tmp_path / "latest.pt"
    os.link(path, other)

    assert loads(kept, str(other), other.stat().st_ino)
    assert not loads(kept, "/elsewhere/model.pt", 1)


def test_loading_a_part_of_a_pinned_directory_counts(tmp_path: Path) -> None:
    path = sharded(tmp_path)

    assert loads(pin(str(path), job=JOB, replaced=True), str(path / "rank0.pt"), None)


def test_what_a_crash_left_behind_is_swept_but_not_what_is_needed(tmp_path: Path) -> None:
    needed = pin(str(saved(tmp_path)), job=JOB, replaced=True)
    stale = tmp_path / ".brain-pin-job-old.pt"
    stale.write_text("x")
    foreign = tmp_path / ".brain-pin-other-old.pt"
    foreign.write_text("x")
    sweep([str(tmp_path)], job=JOB, keep=[needed])

    assert not stale.exists()
    assert foreign.exists()
    assert Path(needed.kept).exists()


def test_letting_go_twice_is_letting_go_once(tmp_path: Path) -> None:
    kept = pin(str(saved(tmp_path)), job=JOB, replaced=True)
    unpin(kept)
    unpin(kept)

    assert not Path(kept.kept).exists()


def test_what_a_script_saves_when_asked_to_end_is_kept_instead(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=True)
    (tmp_path / "new").write_text("step 12")
    os.replace(tmp_path / "new", path)
    (renewed,) = renew_all([kept], job=JOB)

    assert loads(renewed, str(path), path.stat().st_ino)
    assert Path(renewed.kept).read_text() == "step 12"


def test_a_save_in_place_that_may_be_torn_does_not_replace_the_pin(tmp_path: Path) -> None:
    path = saved(tmp_path)
    kept = pin(str(path), job=JOB, replaced=False)
    path.write_text("ste")

    assert renew_all([kept], job=JOB) == (kept,)
