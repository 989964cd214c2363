"""Fresh starts of a job whose processes stay: each makes its steps, and ends, within its time.

The first world of such a job is where two threads meet for the first time: by turns the workers
are those of one agent, as on the first page, and those of two.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from launcher.workers.processes.process import free_port

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp_elastic.py"
_STEPS = 20
#: Seconds that agents have for their last words, and the rest of their sessions for theirs.
_END_SECONDS = 20.0


def run(
    directory: Path,
    *,
    starts: int,
    start_seconds: float = 60.0,
    say: Callable[[str], None] = print,
) -> None:
    """Start so many jobs, one after the other.

    Raises:
        AssertionError: one of them did not make its steps within ``start_seconds``, or failed.
    """
    took = []
    for index in range(starts):
        began = time.monotonic()
        _start(directory / f"start-{index + 1}", 1 + index % 2, start_seconds)
        took.append(time.monotonic() - began)
        if index % 10 == 9 or index + 1 == starts:
            longest, usual = max(took), median(took)
            say(f"{index + 1} starts: {usual:.1f} s as a rule, {longest:.1f} s at most")


def _start(directory: Path, agents: int, seconds: float) -> None:
    """One job, from its start to its end."""
    directory.mkdir(parents=True)
    commands = _commands(agents)
    until = time.monotonic() + seconds
    with ExitStack() as at_end:
        processes = []
        for number, command in enumerate(commands):
            output = at_end.enter_context((directory / f"agent-{number}.log").open("wb"))
            process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=directory, start_new_session=True
            )
            at_end.callback(_ended, process)
            processes.append(process)
        codes = [_code(each, until) for each in processes]
    logs = "\n".join(file.read_text() for file in sorted(directory.glob("*.log")))
    assert codes == [0] * agents, (
        f"{directory.name}: of {agents} agents with {2 // agents} workers each the exit codes are "
        f"{codes} after {seconds:.0f} s, None is one that has not ended\n{logs}"
    )


def _commands(agents: int) -> Sequence[Sequence[str]]:
    python = [sys.executable, "-m", "launcher.cli"]
    script = [str(SCRIPT), str(_STEPS)]
    if agents == 1:
        return [[*python, "--nproc-per-node=2", *script]]
    meeting = [f"--rdzv-endpoint=127.0.0.1:{free_port('127.0.0.1')}", f"--nnodes={agents}"]
    return [[*python, *meeting, "--nproc-per-node=1", *script]] * agents


def _code(process: subprocess.Popen[bytes], until: float) -> int | None:
    try:
        return process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End an agent, which ends its workers; by force where it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
