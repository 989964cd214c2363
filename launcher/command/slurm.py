"""Slurm: ``brain-run`` flags from a job step's environment, and Slurm's warning before the time
limit.

``srun brain-run …`` runs one agent on each node of a step. srun(1) describes the variables under
OUTPUT ENVIRONMENT VARIABLES, and scontrol(1) the host expressions under ``show hostlist``.
"""

import math
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from brain.errors import Unavailable

#: The signal that the guides of Slurm, Lightning and submitit ask for: ``--signal=USR1@90``.
WARNING = signal.SIGUSR1
#: Ports of endpoints: below those that Linux hands out by itself.
_FIRST_PORT, _PORTS = 20000, 12000
_REQUEUE_SECONDS = 30.0
#: States of a job whose processes are there, but are not meant to run, or not all of them.
_PASSING = frozenset({"CONFIGURING", "RESIZING", "SIGNALING", "STOPPED", "SUSPENDED"})
#: Most seconds between the clocks of a node and of slurmctld.
_SKEW_SECONDS = 30.0
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
    #: Times that Slurm had requeued the job before it started this step.
    restarts: int = 0
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
        restarts=int(environment.get("SLURM_RESTART_COUNT") or 0),
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
    """Return flags, derived from the step's environment, that the command line leaves out.

    A step of several nodes with one task on each forms one world, whose agents meet on the first
    node.
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
    """Return advice if each task of the step would be a separate job; else an empty string."""
    if step is None or step.tasks == step.nodes or _meets(options):
        return ""
    each = step.tasks // max(1, step.nodes)
    return (
        f"srun started {step.tasks} tasks on {step.nodes} nodes, and each task is a job of its "
        f"own; for one job give srun --ntasks-per-node=1 and brain-run --nproc-per-node={each}"
    )


def requeue(step: SlurmStep) -> str:
    """Let Slurm start the job again; return the reason if Slurm refuses, else an empty string."""
    command = ["scontrol", "requeue", str(step.job)]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_REQUEUE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as failed:
        return f"{' '.join(command)}: {failed}"
    said = asked.stderr.strip() or f"exit {asked.returncode}"
    return "" if asked.returncode == 0 else f"{' '.join(command)}: {said}"


def judge(step: SlurmStep, ran_at: float, job: str, steps: str) -> str:
    """Return the reason why other agents may run instead of the step's agents; empty if none may.

    ``ran_at``: when this process last ran before a pause, in seconds since 1970. ``job`` and
    ``steps`` are the answers of ``scontrol --oneliner show`` about the job and its steps.

    Raises:
        Unavailable: the job does not run now, or another step may have taken the place of ``step``.

    >>> said = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2",
    ...         "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1"}
    >>> steps = "StepId=7.0 StartTime=2026-01-01T10:00:00 State=RUNNING"
    >>> judge(step_of(said), 0.0, "JobId=7 JobState=RUNNING Restarts=0", steps)
    ''
    >>> judge(step_of(said), 0.0, "JobId=7 JobState=RUNNING Restarts=1", steps)
    'Slurm has requeued job 7'
    """
    facts = _facts(job)
    state = facts.get("JobState", "")
    if not state:
        return f"Slurm has no job {step.job}"
    if int(facts.get("Restarts", -1)) != step.restarts:
        return f"Slurm has requeued job {step.job}"
    if state in _PASSING:
        raise Unavailable(f"job {step.job} is {state}")
    if state != "RUNNING":
        return f"job {step.job} is {state}"
    listed = [_facts(line) for line in steps.splitlines()]
    states = {each.get("StepId", ""): each.get("State", "") for each in listed}
    if states.get(f"{step.job}.{step.step}") != "RUNNING":
        return f"step {step.job}.{step.step} is over"
    # A cancelled step is listed as running until all its nodes, paused ones too, have ended it.
    for each in listed:
        name = each.get("StepId", "")
        number = name.partition(".")[2]
        if not number.isdecimal() or int(number) <= step.step or states[name] != "RUNNING":
            continue
        if _utc(each.get("StartTime", "")) > ran_at - _SKEW_SECONDS:
            raise Unavailable(f"step {name} began during the pause, and still runs")
    return ""


def _utc(text: str) -> float:
    try:
        return datetime.fromisoformat(f"{text}+00:00").timestamp()
    except ValueError:  # Unknown
        return math.inf


def _facts(line: str) -> dict[str, str]:
    # The first of a name counts: arguments of the job's script follow.
    return dict(word.split("=", 1) for word in reversed(line.split()) if "=" in word)


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
