"""Trial runs of the real script at a few well-chosen sizes, two minutes in total.

Each trial is an ordinary job: the local scaler starts it, the probe in its workers measures it, and
this module cancels it afterwards. The estimate finds the measurements in Brain's history. The
script runs in a separate directory that shows the job's files but not its checkpoint. So the script
starts from scratch, and the checkpoint does not change.
"""

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from brain import calls
from brain.cli.connect import service_url
from brain.cli.view import View, apart
from brain.client import BrainClient
from brain.errors import BadInput, BrainError, Undetermined
from brain.types.estimate import Estimate, SizeEstimate
from brain.types.job import JobState
from brain.typeset import count, duration, quantity
from brain.views import JobDetail

#: Least time of a trial: a shorter one would measure nothing.
_LEAST_SECONDS = 15.0
#: Least time that a trial's world steps, because CPU and memory are read every five seconds.
_READINGS_SECONDS = 12.0
_CANCEL_SECONDS = 30.0
_PAUSE_SECONDS = 0.5
#: Code of an error that would occur at every size.
_FAILED = "failed"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRun:
    """The size of a trial, with the script's own batch size or twice that."""

    replicas: int
    doubled: bool = False


def probe(
    client: BrainClient,
    document: Mapping[str, Any],
    before: Estimate,
    *,
    seconds: float,
    batch_option: str | None,
    saves_nothing: bool,
    say: Say,
) -> None:
    """Run the trials one after another, as many as the time limit ``seconds`` allows.

    Raises:
        BadInput: the document has no command, the script's checkpoint cannot be protected, or its
            batch cannot be doubled.
        Undetermined: no trial was measured; the error has the reason why the last trial was not
            measured.
    """
    _expect_local()
    if not document.get("command"):
        raise BadInput(
            "the document has an image but no command; --probe only runs commands on this machine",
            field="command",
        )
    doubled = None if batch_option is None else twice(document["command"], batch_option)
    ahead = trials(before.sizes, doubled=doubled is not None)
    view = View.of(document, saves_nothing=saves_nothing)
    say(view.promise)
    deadline = time.monotonic() + seconds
    measured, why = 0, ""
    for place, trial in enumerate(ahead):
        share = (deadline - time.monotonic()) / (len(ahead) - place)
        if share < _LEAST_SECONDS and place:
            say(
                f"{count(len(ahead) - place, 'trial')} skipped for lack of time; raise "
                "--probe-seconds"
            )
            break
        command = doubled if trial.doubled and doubled else list(document["command"])
        try:
            _run(client, document, command, trial, view, share, say)
            measured += 1
        except Undetermined as unknown:
            why = str(unknown)
            say(f"{_named(trial)}: {why}")
            if unknown.code == _FAILED:
                break
    if changed := view.changed():
        say(
            f"WARNING: {changed} was modified while the probe ran, although the probe has no "
            "permission to write to it; check its content"
        )
    if not measured:
        raise Undetermined(f"the probe got no measurement: {why}")


def trials(sizes: Sequence[SizeEstimate], *, doubled: bool) -> list[ProbeRun]:
    """Return the most informative trials: smallest size, twice the batch size, a full node, two
    nodes.

    Four such trials are as informative as twelve random trials (models.md section 2.6).

    Raises:
        Undetermined: not even the smallest size fits now.
    """
    fits = [row for row in sizes if row.fits_now]
    if not fits:
        raise Undetermined(
            "no size of the job fits into the pool while other jobs run; wait, or lower "
            "`replicas.min`"
        )
    smallest = min(row.replicas for row in fits)
    found = [ProbeRun(replicas=smallest)]
    if doubled:
        found.append(ProbeRun(replicas=smallest, doubled=True))
    for nodes in (1, 2):
        most = max((row.replicas for row in fits if row.nodes == nodes), default=smallest)
        if most > max(trial.replicas for trial in found):
            found.append(ProbeRun(replicas=most))
    return found


def twice(command: Sequence[str], option: str) -> list[str]:
    """Return the command with twice the batch size.

    Raises:
        BadInput: the command does not give the option a whole number.
    """
    words = list(command)
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        if head != option:
            continue
        if equals and value.isdigit():
            words[at] = f"{head}={2 * int(value)}"
            return words
        if at + 1 < len(words) and words[at + 1].isdigit():
            words[at + 1] = str(2 * int(words[at + 1]))
            return words
    raise BadInput(
        f"--batch-option {option}: the command does not give this option a number; add "
        f"`{option} 64`, for example",
        field="batch-option",
    )


def _expect_local() -> None:
    host = urlsplit(service_url()).hostname
    if host not in _LOOPBACK:
        raise BadInput(
            f"--probe runs the script on the machine of Brain's scaler ({host}), not on this one; "
            f"run this command on {host}, or submit the job and repeat the estimate after a minute"
        )


def _named(trial: ProbeRun) -> str:
    return count(trial.replicas, "replica") + (", twice the batch" if trial.doubled else "")


def _run(
    client: BrainClient,
    document: Mapping[str, Any],
    command: Sequence[str],
    trial: ProbeRun,
    view: View,
    seconds: float,
    say: Say,
) -> None:
    """Run one trial until it is measured; the trial has ended when this returns.

    Raises:
        Undetermined: the trial was not measured in time; the error has the reason.
    """
    with _scratch() as scratch:
        made = apart(view, document, command, scratch)
        made |= {
            "name": f"{str(document['name'])[:40]}-probe-{uuid.uuid4().hex[:6]}",
            "replicas": {"min": trial.replicas, "max": trial.replicas},
            "policy": {"mode": "off"},
            "optimizeMode": "manual",
            "restarts": {"limit": 0},
        }
        job = client.send(calls.submit(made)).id
        try:
            say(f"{_named(trial)}: measured {_measured(client, job, trial, seconds)}")
        finally:
            _end(client, job)


def _measured(client: BrainClient, job: str, trial: ProbeRun, seconds: float) -> str:
    """Wait until a trial's world is measured and stored; return its throughput."""
    began, stepping = time.monotonic(), None
    missing = "the trial did not start"
    detail = client.send(calls.job(job))
    while time.monotonic() - began < seconds:
        detail = client.send(calls.job(job))
        if detail.job.finished_at is not None:
            raise _ended(detail)
        if stepping is None and detail.world is not None and detail.world.stepping_at is not None:
            stepping = time.monotonic()
        scaling = client.send(calls.what_if(job))
        missing = scaling.basis or missing
        seen = next((s.measured for s in scaling.sizes if s.replicas == trial.replicas), None)
        stepped = 0.0 if stepping is None else time.monotonic() - stepping
        if seen is not None and stepped >= _READINGS_SECONDS:
            return _rate(detail)
        time.sleep(_PAUSE_SECONDS)
    if detail.job.throughput is not None:
        return f"{_rate(detail)} so far; {missing}"
    raise Undetermined(f"not measured within {duration(seconds)}: {missing}")


def _rate(detail: JobDetail) -> str:
    seen = detail.job.throughput
    return quantity(seen.examples_per_second if seen else None, detail.job.unit_of_throughput)


def _ended(detail: JobDetail) -> Undetermined:
    """Return why a trial ended by itself."""
    view = detail.job
    if view.state is JobState.SUCCEEDED:
        return Undetermined(
            "the script ended before enough steps were measured; give it more steps to do"
        )
    return Undetermined(
        f"the trial is {view.state}: {view.reason}; `brain logs {view.id}` shows its output",
        code=_FAILED,
    )


def _end(client: BrainClient, job: str) -> None:
    """Cancel a trial and wait until nothing of it runs."""
    deadline = time.monotonic() + _CANCEL_SECONDS
    if client.send(calls.job(job)).job.finished_at is None:
        try:
            client.send(calls.cancel(job))
        except BrainError as gone:
            # The trial may end by itself in between; the wait below finds any other problem.
            click.echo(f"{job}: {gone}", err=True)
    while client.send(calls.job(job)).job.finished_at is None:
        if time.monotonic() > deadline:
            raise Undetermined(f"trial {job} does not end; inspect it with `brain job {job}`")
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a directory that is deleted afterwards; links in it are deleted, their targets stay."""
    path = Path(tempfile.mkdtemp(prefix="brain-probe-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
