"""What workers print, cut into lines."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from launcher.workers.processes.output import OutputStream, Route, _split, finish, streams


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", [b""]),
        (b"a\nb", [b"a\n", b"b"]),
        (b"1%\r2%\r\n\n", [b"1%\r", b"2%\r\n", b"\n", b""]),
    ],
)
def test_what_is_printed_is_cut_after_each_end_of_a_line(data: bytes, lines: list[bytes]):
    assert _split(data) == lines


def test_a_long_line_without_an_end_costs_no_time():
    began = time.process_time()

    assert _split(b"x" * 100_000) == [b"x" * 100_000, b""]
    assert time.process_time() - began < 1


def test_the_end_of_what_was_written_is_remembered(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    stream = OutputStream(Route(console=False, file=log), 2)
    assert stream.fd is not None
    os.write(stream.fd, b"x" * 9000 + b"\nlast words\n")
    stream.given()
    stream.read()
    assert stream.end().endswith(b"x\nlast words\n")


def test_what_was_flushed_before_stands_before(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    out, error = streams([Route(console=False, replica_log=log, tag=tag) for tag in ("o:", "e:")])
    for stream in (error, out):  # a busy machine may let either begin first
        stream.read()
    written = []
    for number in range(200):
        for stream, tag in ((out, "o:"), (error, "e:")):
            assert stream.fd is not None
            os.write(stream.fd, b"%d\n" % number)
            written.append(f"{tag}{number}")
        while len(log.read_text().split()) < len(written):
            time.sleep(0.0005)
    for stream in (out, error):
        stream.given()
    finish([out, error], 30)
    assert log.read_text().split() == written


def test_a_torrent_on_one_stream_holds_back_nothing_on_the_other(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    out, error = streams([Route(console=False, replica_log=log, tag=tag) for tag in ("o:", "e:")])
    fds = (os.dup(out.fd or 0), os.dup(error.fd or 0))
    for stream in (out, error):
        stream.given()
        stream.read()

    def pour(fd: int) -> None:
        for _ in range(2000):
            os.write(fd, b"x" * 1023 + b"\n")
        os.close(fd)

    pouring = [threading.Thread(target=pour, args=(fd,)) for fd in fds]
    for each in pouring:
        each.start()
    for each in pouring:
        each.join(60)
    finish([out, error], 60)
    lines = log.read_text().splitlines()
    assert sorted(line[:2] for line in lines) == ["e:"] * 2000 + ["o:"] * 2000
    assert {len(line) for line in lines} == {1025}


def test_a_traceback_stands_after_what_was_flushed_before_it() -> None:
    script = Path(__file__).parent / "scripts" / "flushed_then_failed.py"
    ran = subprocess.run(
        [sys.executable, "-m", "launcher.cli", "--tee=3", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )
    lines = [line.partition(":")[2] for line in ran.stdout.splitlines() if "[default0]" in line]
    at = {line: number for number, line in enumerate(lines)}
    late = [number for number in range(50) if at[f"out {number}"] > at[f"err {number}"]]
    assert (late, at["last"] < at["Traceback (most recent call last):"]) == ([], True)
