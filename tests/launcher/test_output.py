"""What workers print, cut into lines."""

import os
import time
from pathlib import Path

import pytest

from launcher.workers.processes.output import OutputStream, Route, _split


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
