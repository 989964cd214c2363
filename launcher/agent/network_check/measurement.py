"""An agent's side of the check: run the script under the workers' interpreter."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from launcher.messages import Check, Checked
from launcher.values.config import LaunchConfig
from launcher.values.network_check.measurements import NodeMeasured
from launcher.workers.processes import process

_SCRIPT = Path(__file__).parent / "script.py"


async def measure(config: LaunchConfig, asked: Check) -> Checked:
    """Run the check's script on this node, as one of a group of nodes, and return the measurement.
    If the script fails or hangs, the measurement says so.
    """
    work = asked.work
    words = (
        *(asked.rank, asked.size, asked.host, asked.port, asked.seconds),
        *(work.edge, work.mebibytes, work.repeats),
    )
    command = [config.entrypoint.interpreter, "-u", str(_SCRIPT), *map(str, words)]
    try:
        running = await _start(config, command)
    except OSError as cannot:
        measured = NodeMeasured(ok=False, reason=f"the check cannot be started: {cannot}")
        return Checked(round=asked.round, measured=measured)
    try:
        async with asyncio.timeout(asked.seconds):
            out, err = await running.communicate()
        measured = read(out.decode(errors="replace"), err.decode(errors="replace"))
    except TimeoutError:
        measured = NodeMeasured(
            ok=False, reason=f"the script of the check printed no result within {asked.seconds:g} s"
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        await running.wait()
    return Checked(round=asked.round, measured=measured)


async def _start(config: LaunchConfig, command: Sequence[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *process.reaped(),
        "exec",
        str(os.getpid()),
        *command,
        env=dict(config.environment),
        cwd=config.directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def read(out: str, err: str) -> NodeMeasured:
    """Read the measurement from the output of the check's script.

    >>> read('{"ok": false, "reason": "no link", "torch": true}', "").reason
    'no link'
    """
    lines = out.strip().splitlines()
    try:
        said = json.loads(lines[-1])
        said.pop("torch")
        return NodeMeasured(**said)
    except (IndexError, ValueError, TypeError, KeyError, AttributeError):
        words = err.strip().splitlines()
        return NodeMeasured(
            ok=False,
            reason=words[-1] if words else "the script of the check ended without a result",
        )
