"""After a pause of the agent, asks Slurm whether the agent's job step still exists."""

import asyncio
import contextlib
import math
import os
import subprocess
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from brain.errors import Unavailable
from launcher.command.slurm import SlurmStep, judge
from launcher.values.config import LaunchConfig

if TYPE_CHECKING:
    from brain.views import PodSeen

_QUESTION_SECONDS = 20.0


async def step_question(config: LaunchConfig) -> "Callable[[float], Awaitable[PodSeen]] | None":
    """Return a function that asks Slurm whether the job step still exists.

    Returns None if some agents of the job run outside the step, or Slurm cannot be asked from here.
    """
    step = config.step
    if step is None or not 1 < config.nodes_max <= step.tasks:
        return None
    with contextlib.suppress(Unavailable):
        if not await _why_over(step, math.inf):

            async def ask(ran_at: float) -> "PodSeen":
                from brain.views import PodSeen  # late: few agents are ever paused

                why = await _why_over(step, ran_at)
                return PodSeen(stays=not why, detail=why)

            return ask
    return None


async def _why_over(step: SlurmStep, ran_at: float) -> str:
    """Ask Slurm for what ``judge`` needs, and return its result.

    Raises:
        Unavailable: Slurm does not answer, or not yet.
    """
    steps = await _show("step", str(step.job))
    # Asked last: this answer tells attempts apart, whose steps have the same names.
    return judge(step, ran_at, await _show("job", str(step.job)), steps)


async def _show(kind: str, name: str) -> str:
    """Ask ``scontrol``; an empty string: there is nothing of this name."""
    command = ("scontrol", "--oneliner", "show", kind, name)
    environment = os.environ | {"SLURM_TIME_FORMAT": "standard", "TZ": "UTC"}
    pipe, asked = subprocess.PIPE, None
    try:
        asked = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        async with asyncio.timeout(_QUESTION_SECONDS):
            out, err = await asked.communicate()
    except (OSError, TimeoutError) as failed:
        raise Unavailable(f"{' '.join(command)}: {failed or 'no answer'}") from failed
    finally:
        if asked is not None and asked.returncode is None:
            asked.kill()
    said = (err or out).decode(errors="replace").strip()
    if asked.returncode == 0:
        return out.decode(errors="replace")
    if "Invalid job id" in said or "not found" in said:
        return ""
    raise Unavailable(f"{' '.join(command)}: {said or f'exit {asked.returncode}'}")
