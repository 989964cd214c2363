"""The devices of this machine, counted by the torch of the workers' interpreter."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from brain.errors import BadInput
from brain.types.accelerators import DEVICE_FILES
from launcher.command.torchrun.description import ASK_TORCH

_ASK_SECONDS = 120.0


def auto_config(
    options: Mapping[str, Any], interpreter: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Apply ``--auto_config`` as dlrover-run does: return values for missing flags, taken from the
    machine.

    The number of nodes comes from ``NODE_NUM``, and the number of workers from the devices. With
    four nodes or more, the network check is turned on.

    Raises:
        BadInput: ``NODE_NUM`` is not a number of nodes, or torch cannot count the devices.
    """
    found: dict[str, Any] = {}
    if (count := environment.get("NODE_NUM")) and options.get("nnodes", "1:1") == "1:1":
        if not count.isdecimal() or int(count) < 1:
            raise BadInput(
                f"--auto_config: NODE_NUM={count} is not a number of nodes; give a whole number "
                "of at least 1",
                field="nnodes",
            )
        found["nnodes"] = count
        found["network_check"] = bool(options.get("network_check")) or int(count) >= 4
    if options.get("nproc_per_node", "1") == "1" and any(map(os.path.exists, DEVICE_FILES)):
        devices, name = _ask_devices("auto", interpreter, environment)
        if devices:
            found["nproc_per_node"] = str(devices)
            found["accelerator"] = options.get("accelerator") or name
    return found


def processes_of(said: str, interpreter: str, environment: Mapping[str, str]) -> tuple[int, str]:
    """Parse ``--nproc-per-node`` into the number of workers and the kind of accelerator.

    The torch of the workers' interpreter counts the devices.

    Raises:
        BadInput: the value is not valid, or torch cannot count such devices.
    """
    if re.fullmatch(r"\d+", said):
        if int(said) < 1:
            raise BadInput(
                "--nproc-per-node=0 starts nothing; give 1 or more", field="nproc_per_node"
            )
        return int(said), "cpu"
    cpus = len(os.sched_getaffinity(0))
    if said == "cpu" or (said == "auto" and not any(map(os.path.exists, DEVICE_FILES))):
        return cpus, "cpu"
    if not re.fullmatch(r"[a-z_0-9]+", said):
        raise BadInput(
            f"--nproc-per-node={said} is not valid; give auto, cpu, gpu, xpu or a number",
            field="nproc_per_node",
        )
    count, name = _ask_devices(said, interpreter, environment)
    if count == 0 and said != "auto":
        raise BadInput(
            f"--nproc-per-node={said}: torch finds no such device; give cpu or a number",
            field="nproc_per_node",
        )
    return (count, name) if count else (cpus, "cpu")


def gpu_addresses(flag: str, interpreter: str, environment: Mapping[str, str]) -> list[str]:
    """Return the PCI address of each GPU.

    Raises:
        BadInput: torch cannot find them; the message begins with ``flag``.
    """
    return [str(address) for address in _ask(["places"], flag, interpreter, environment)]


def _ask_devices(kind: str, interpreter: str, environment: Mapping[str, str]) -> tuple[int, str]:
    said = _ask(["devices", kind], f"--nproc-per-node={kind}", interpreter, environment)
    return int(said["count"]), str(said["name"])


def _ask(question: list[str], flag: str, interpreter: str, environment: Mapping[str, str]) -> Any:
    """Return the answer of the workers' torch to a question for ``ask_torch.py``.

    Raises:
        BadInput: torch cannot answer; the message begins with ``flag``.
    """
    command = [interpreter, str(ASK_TORCH), *question]
    try:
        asked = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=_ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise _cannot_count(flag, interpreter, str(failed)) from failed
    if asked.returncode != 0:
        lines = asked.stderr.strip().splitlines()
        raise _cannot_count(flag, interpreter, lines[-1] if lines else f"exit {asked.returncode}")
    return json.loads(asked.stdout)


def _cannot_count(flag: str, interpreter: str, why: str) -> BadInput:
    remedy = "give a number" if flag.startswith("--nproc") else "drop the flag"
    return BadInput(
        f"{flag}: the torch of {interpreter} cannot count devices ({why}); {remedy}",
        field=flag.lstrip("-").partition("=")[0].replace("-", "_"),
    )
