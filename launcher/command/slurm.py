"""Slurm: a job step's environment as flags of ``brain-run``, and its warning before the time limit.

``srun brain-run …`` runs one agent on each node of a step. srun(1) describes the variables under
OUTPUT ENVIRONMENT VARIABLES, and scontrol(1) the host expressions under ``show hostlist``.
"""

import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The signal that the guides of Slurm, Lightning and submitit ask for: ``--signal=USR1@90``.
WARNING = signal.SIGUSR1
#: Ports of endpoints: below those that Linux hands out by itself.
_FIRST_PORT, _PORTS = 20000, 12000
_REQUEUE_SECONDS = 30.0
#: Flags that say where agents meet, with what stands there where nobody said anything; with any
#: of them the step's environment says nothing.
_MEETING = {
    "rdzv_endpoint": "",
    "master_addr": "127.0.0.1",
    "master_port": None,
    "standalone": False,
    "world": "",
}
#: Most levels that ``--topology`` has.
_LEVELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmStep:
    """The job step that this process is a task of."""

    job: int
    step: int
    nodes: int
    tasks: int
    #: This node's number in the step, from 0.
    node: int
    first_host: str
    #: Switches above this node, outermost first; empty where Slurm knows none.
    switches: tuple[str, ...] = ()


def step_of(environment: Mapping[str, str]) -> SlurmStep | None:
    """Return the job step of this environment; None outside ``srun``.

    >>> said = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2",
    ...         "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1",
    ...         "SLURM_STEP_NODELIST": "gpu[003-004]"}
    >>> found = step_of(said)
    >>> (found.nodes, found.node, found.first_host)
    (2, 1, 'gpu003')
    """
    names = ("JOB_ID", "STEP_ID", "STEP_NUM_NODES", "STEP_NUM_TASKS", "NODEID")
    numbers = [environment.get(f"SLURM_{name}", "") for name in names]
    if not all(number.isdecimal() for number in numbers):
        return None
    job, step, nodes, tasks, node = map(int, numbers)
    return SlurmStep(
        job=job,
        step=step,
        nodes=nodes,
        tasks=tasks,
        node=node,
        first_host=first_host(environment.get("SLURM_STEP_NODELIST", "")),
        switches=_switches(environment),
    )


def first_host(hosts: str) -> str:
    """Return the first host of a host expression.

    >>> first_host("rack[1-2]n[007-9,12],login"), first_host("a,b"), first_host("")
    ('rack1n007', 'a', '')
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", hosts)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0] if first else "")


def options_for(step: SlurmStep | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return flags from the step's environment for those that the command line leaves out.

    A step of several nodes with one task on each is one world: all agents meet on the first node.
    """
    if step is None or step.nodes < 2 or step.tasks != step.nodes or not step.first_host:
        return {}
    if _meets(options):
        return {}
    if options.get("rdzv_backend", "static") not in ("static", "c10d"):
        return {}
    found = {
        "rdzv_backend": "c10d",
        "rdzv_endpoint": f"{step.first_host}:{_FIRST_PORT + (step.job * 31 + step.step) % _PORTS}",
        "rdzv_id": f"slurm-{step.job}.{step.step}",
        "nnodes": str(step.nodes),
        "node_rank": step.node,
        "topology": "/".join(step.switches),
    }
    said = ("nnodes", "1:1"), ("rdzv_id", "none"), ("node_rank", 0), ("topology", "")
    kept = {name for name, default in said if options.get(name, default) != default}
    return {name: value for name, value in found.items() if name not in kept}


def advice(step: SlurmStep | None, options: Mapping[str, Any]) -> str:
    """Return advice if each task of the step would be a job of its own; else an empty string."""
    if step is None or step.tasks == step.nodes or _meets(options):
        return ""
    each = step.tasks // max(1, step.nodes)
    return (
        f"srun started {step.tasks} tasks on {step.nodes} nodes and each of them is a job of its "
        f"own; for one job give srun --ntasks-per-node=1 and brain-run --nproc-per-node={each}"
    )


def requeue(step: SlurmStep) -> str:
    """Have Slurm start the job again; return the reason if it refuses, else an empty string."""
    command = ["scontrol", "requeue", str(step.job)]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_REQUEUE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as failed:
        return f"{' '.join(command)}: {failed}"
    said = asked.stderr.strip() or f"exit {asked.returncode}"
    return "" if asked.returncode == 0 else f"{' '.join(command)}: {said}"


def _meets(options: Mapping[str, Any]) -> bool:
    """True if the command line says where agents meet."""
    return any(options.get(name, silent) != silent for name, silent in _MEETING.items())


def _switches(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in ``SLURM_TOPOLOGY_ADDR`` that its pattern marks as switches, not as the
    node.
    """
    names = environment.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    kinds = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    if len(names) != len(kinds):
        return ()
    found = [name for name, kind in zip(names, kinds, strict=True) if kind == "switch"]
    # Several switches in one level are no path.
    return () if any(re.search(r"[\[,/]", name) for name in found) else tuple(found[-_LEVELS:])
