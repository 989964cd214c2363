"""Texts about a failed worker: error files of ``@record``, and the report for users."""

import json
import re
import signal
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from launcher.values.workers import WorkerExit

#: What torchrun's report says instead of a traceback; nowhere else does it help anybody.
_NO_FILE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"

#: How Python ends a traceback.
_EXCEPTION = re.compile(
    r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning|Failure)\b(: .*)?$"
)
#: Larger error files are not read; larger errors do not travel, their message does.
_ERROR_BYTES, CARRIED_BYTES, _MESSAGE_CHARACTERS = 1 << 20, 1 << 15, 1 << 13
#: The year 2242; what is beyond are no seconds.
_LAST_SECONDS = 2.0**33
#: A reason is read in one look.
_WORDS_CHARACTERS = 300


class WorkerFailure(Protocol):
    """The fields of ``launcher.values.workers.WorkerExit`` that a report needs."""

    @property
    def rank(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def failed_at(self) -> datetime: ...
    @property
    def message(self) -> str: ...
    @property
    def error_file(self) -> str: ...


def error_in(path: Path) -> bytes:
    """Return the content of an error file; empty if it is not a file or is too large."""
    try:
        fits = path.is_file() and path.stat().st_size <= _ERROR_BYTES
        return path.read_bytes() if fits else b""
    except OSError:
        return b""


def read_error(content: bytes) -> tuple[str, float | None]:
    """Return (message, Unix seconds of the error) from an error file; ("", None) without a message.

    Scripts write such files, too, so they may contain anything.
    """
    try:
        message: Any = json.loads(content)["message"]
    except (ValueError, KeyError, TypeError):  # empty, or torn by the worker's death
        return "", None
    if not isinstance(message, dict):
        return _text(message), None
    extra = message.get("extraInfo")
    if not isinstance(extra, dict):
        extra = {}
    text = extra.get("py_callstack") or message.get("message") or ""
    try:
        seconds = float(extra["timestamp"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return _text(text), None
    return _text(text), seconds if 0 < seconds < _LAST_SECONDS else None


def _text(said: object) -> str:
    """Return text that can be sent, cut at the front: the end of a traceback matters most."""
    return str(said)[-_MESSAGE_CHARACTERS:].encode(errors="replace").decode()


def with_exit_code(content: bytes, code: int) -> bytes:
    """Return the content of an error file with the worker's exit code added, which a worker that a
    signal ended cannot add itself.
    """
    try:
        error: Any = json.loads(content)
    except ValueError:
        return content
    if isinstance(error, dict) and isinstance(error.get("message"), dict):
        error["message"]["errorCode"] = code
    return json.dumps(error).encode()


def message_for(code: int, pid: int) -> str:
    """Return an explanation of an exit code; empty if there is none."""
    return f"Signal {-code} ({signal_name(code)}) received by PID {pid}" if code < 0 else ""


def last_words(end: bytes) -> str:
    """Return the line at the ``end`` of standard error that gives the reason: the last line that
    names an exception, else the last line that is not empty.

    >>> last_words(b"Traceback ...:\\n  File 1\\nValueError: a banana\\n\\nterminate called\\n")
    'ValueError: a banana'
    """
    lines = [line.strip() for line in end.decode(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or lines or [""])[-1][:_WORDS_CHARACTERS]


def signal_name(code: int) -> str:
    """Return the name of the signal for a negative code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def report(name: str, host: str, root: WorkerFailure, others: Sequence[WorkerFailure]) -> str:
    """Return a report of the root cause and the other failures, in torchrun's format."""
    blocks = [_block(index, host, failure) for index, failure in enumerate([root, *others])]
    width = min(60, max(len(line) for block in blocks for line in block.splitlines()))
    double, single = "=" * width, "-" * width
    rest = blocks[1:] or ["  <NO_OTHER_FAILURES>"]
    lines = [double, f"{name} FAILED", single, "Failures:", *rest, single]
    return "\n".join([*lines, "Root Cause (first observed failure):", blocks[0], double])


def _block(index: int, host: str, failure: WorkerFailure) -> str:
    by = f" ({signal_name(failure.code)})" if failure.code < 0 else ""
    told = (failure.message or _NO_FILE).rstrip().replace("\n", "\n  ")
    return (
        f"[{index}]:\n"
        f"  time      : {failure.failed_at:%Y-%m-%d_%H:%M:%S}\n"
        f"  host      : {host}\n"
        f"  rank      : {failure.rank} (local_rank: {failure.local_rank})\n"
        f"  exitcode  : {failure.code} (pid: {failure.pid}) {by}\n"
        f"  error_file: {failure.error_file or '<N/A>'}\n"
        f"  traceback : {told}"
    )


def root_cause(exits: Sequence[WorkerExit]) -> WorkerExit | None:
    """Return the first failure that Brain did not cause; None if there is none."""
    failed = [each for each in exits if each.code != 0 and not each.stopped]
    return min(failed, key=lambda each: (each.failed_at.timestamp() // 1, each.at_ns), default=None)


def hand_on_error(exits: Sequence[WorkerExit], environment: Mapping[str, str]) -> None:
    """Copy the root cause's error file to this process's own error file, which schedulers read.

    A launcher whose main function has torch's ``@record`` does the same.
    """
    root, path = root_cause(exits), environment.get("TORCHELASTIC_ERROR_FILE")
    if root is not None and root.error and path:
        Path(path).write_bytes(with_exit_code(root.error, root.code))


def failure_report(name: str, exits: Sequence[WorkerExit]) -> str:
    """Return the report of the failures, root cause first, in torchrun's layout; empty if none
    failed.
    """
    root = root_cause(exits)
    if root is None:
        return ""
    others = [each for each in exits if each.code != 0 and each is not root]
    return report(name, socket.gethostname(), root, others)
