"""The spool: what is kept, what goes first, and what a crash may tear."""

import errno
import os
from pathlib import Path

import pytest

from brain import wire
from brain.types.telemetry import LossSample
from collectors.loop import report_losses
from collectors.spool import Spool
from collectors.stamps import Stamps


def spool(directory: Path, **limits: float) -> Spool:
    """A spool with small segments."""
    return Spool(directory, **({"segment_bytes": 100} | limits))  # type: ignore[arg-type]


def fill(kept: Spool, job: str, *lines: bytes, now: float = 1000.0) -> None:
    """Append lines."""
    for line in lines:
        kept.append(job, line, now=now)


def drained(kept: Spool, job: str, limit: int = 3) -> list[bytes]:
    """Deliver everything of a job."""
    lines: list[bytes] = []
    while batch := kept.take(job, limit):
        lines += batch.lines
        kept.acknowledge(batch)
    return lines


def numbered(count: int) -> list[bytes]:
    """Lines of 20 bytes."""
    return [f'{{"n": {index:012d}}}'.encode() for index in range(count)]


def test_lines_come_out_in_order_and_once(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    fill(kept, "a", *numbered(50))
    assert drained(kept, "a") == numbered(50)
    assert kept.waiting == 0


def test_each_job_has_its_own_queue(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    fill(kept, "a", b"1")
    fill(kept, "b", b"2")
    assert (drained(kept, "b"), kept.jobs()) == ([b"2"], ["a"])


def test_what_is_taken_but_not_acknowledged_is_taken_again(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    fill(kept, "a", *numbered(3))
    first = kept.take("a", 2)
    assert first is not None
    assert kept.take("a", 2) == first


def test_another_opening_finds_everything_unacknowledged(tmp_path: Path) -> None:
    fill(spool(tmp_path), "a", *numbered(20))
    again = spool(tmp_path)
    fill(again, "a", b"new")
    assert drained(again, "a") == [*numbered(20), b"new"]


def test_a_torn_last_line_is_skipped_and_counted(tmp_path: Path) -> None:
    fill(spool(tmp_path), "a", *numbered(4))
    newest = max((tmp_path / "a").iterdir())
    os.truncate(newest, newest.stat().st_size - 5)
    again = spool(tmp_path)
    assert drained(again, "a") == numbered(3)
    assert again.counts.torn == 1


def test_delivered_segments_leave_nothing_on_disk(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    fill(kept, "a", *numbered(20))
    drained(kept, "a")
    kept.close()
    assert not list(tmp_path.iterdir())


def test_over_its_size_the_oldest_goes_and_is_counted(tmp_path: Path) -> None:
    kept = spool(tmp_path, limit_bytes=1000)
    fill(kept, "old", *numbered(20))
    fill(kept, "new", *numbered(40))
    assert kept.size_bytes <= 1000
    lost = 60 - kept.waiting
    assert kept.losses() == {"old": lost} if lost <= 20 else {"old": 20, "new": lost - 20}
    assert drained(kept, "new")[-1] == numbered(40)[-1]


def test_what_is_too_old_for_the_service_goes(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    fill(kept, "a", *numbered(10), now=1000.0)
    fill(kept, "a", b"fresh", now=90_000.0)
    kept.expire(now=90_000.0)
    assert drained(kept, "a")[-1] == b"fresh"
    assert kept.counts.dropped >= 5


def test_losses_are_told_once(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    fill(kept, "a", b"x", now=0.0)
    kept.expire(now=100_000.0)
    kept.told("a", 1)
    assert kept.losses() == {}


def test_a_report_of_losses_takes_a_number_only_once_it_is_on_disk(tmp_path: Path) -> None:
    full = [True]

    def write(descriptor: int, line: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "full")
        return os.write(descriptor, line)

    kept, stamps = Spool(tmp_path, write=write), Stamps()
    fill(kept, "a", *numbered(3))
    attempts = [report_losses(kept, "a", stamps) for _ in range(5)]
    full[0] = False
    attempts.append(report_losses(kept, "a", stamps))
    (report,) = (wire.decode_sample(line) for line in drained(kept, "a"))
    assert attempts == [False] * 5 + [True]
    assert isinstance(report, LossSample)
    assert (report.dropped, report.sequence) == (3, 0)


def test_a_full_disk_costs_the_oldest(tmp_path: Path) -> None:
    room = [600]

    def write(descriptor: int, line: bytes) -> int:
        used = sum(path.stat().st_size for path in tmp_path.rglob("*.ndjson"))
        if used + len(line) > room[0]:
            os.write(descriptor, line[: max(0, room[0] - used)])
            raise OSError(errno.ENOSPC, "no space left on device")
        return os.write(descriptor, line)

    kept = Spool(tmp_path, segment_bytes=100, write=write)
    fill(kept, "a", *numbered(60))
    assert drained(kept, "a")[-1] == numbered(60)[-1]
    assert 30 <= kept.losses()["a"] < 60


def test_a_failure_that_no_room_mends_costs_no_earlier_sample(tmp_path: Path) -> None:
    broken = False

    def write(descriptor: int, data: bytes) -> int:
        if broken:
            raise OSError(errno.EIO, "input/output error")
        return os.write(descriptor, data)

    kept = Spool(tmp_path, segment_bytes=100, write=write)
    fill(kept, "a", *numbered(20))
    broken = True
    fill(kept, "a", b"new")
    assert kept.losses() == {"a": 1}
    assert drained(kept, "a") == numbered(20)


def test_a_disk_without_any_room_counts_what_it_loses(tmp_path: Path) -> None:
    def write(descriptor: int, line: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    kept = Spool(tmp_path, write=write)
    assert not kept.append("a", b"x", now=0.0)
    assert kept.losses() == {"a": 1}


@pytest.mark.parametrize("job", ["", "..", "a/b", "/etc", ".hidden", "a\0b", "x" * 200])
def test_a_job_that_is_no_file_name_is_refused(tmp_path: Path, job: str) -> None:
    kept = spool(tmp_path / "spool")
    assert not kept.append(job, b"x", now=0.0)
    assert [path.name for path in tmp_path.rglob("*")] == ["spool"]


def test_a_segment_that_somebody_removed_is_lost_not_fatal(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    fill(kept, "a", *numbered(8))
    min((tmp_path / "a").iterdir()).unlink()
    assert drained(kept, "a") == numbered(8)[5:]
    assert kept.losses() == {"a": 5}


def test_what_is_delivered_gives_way_on_a_full_disk(tmp_path: Path) -> None:
    def write(descriptor: int, line: bytes) -> int:
        if os.fstat(descriptor).st_size + len(line) > 20:
            raise OSError(errno.ENOSPC, "no space left on device")
        return os.write(descriptor, line)

    kept = Spool(tmp_path, write=write)
    fill(kept, "a", b"123456789", b"123456789")
    assert drained(kept, "a")

    assert kept.append("a", b"the loss", now=1000.0)
    assert drained(kept, "a") == [b"the loss"]


def test_a_file_of_another_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("notes.ndjson", "1.ndjson", "\N{SUPERSCRIPT TWO}.ndjson"):
        (tmp_path / "a" / name).write_text("{}\n")
    (tmp_path / "a" / "000000000001.ndjson").mkdir()
    kept = spool(tmp_path)
    assert kept.jobs() == []
    fill(kept, "b", b"{}")
    assert drained(kept, "b") == [b"{}"]
