"""``brain demo``: measures, resizes, verifies and heals a job on this machine, and reports each
event.

Each stage waits for something that the API reports, and has its own deadline. The exit code is 0
only if every stage was reached.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import click

from brain import calls
from brain.cli import output
from brain.cli.connect import somebody
from brain.cli.programs import command as ours
from brain.client import BrainClient
from brain.errors import BrainError, Unavailable
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.world import World
from brain.typeset import UNKNOWN, count, duration, resize
from brain.views import JobDetail

T = TypeVar("T")

#: Settings that the demo changes: waiting times, which are minutes in production, and the spread of
#: step times, which is twice as large on a busy laptop.
SHORTENED = {
    "tick_seconds": 0.5,
    "dwell_seconds": 10,
    "stale_seconds": 20,
    "restart_seconds": 5,
    "spread_limit": 0.1,
}
#: Seconds that the job trains, without restarts: long enough for every stage.
TRAINING_SECONDS = 85
#: Seconds from the start of the service to the end of the demo, at most.
LIMIT_SECONDS = 180
#: Seconds until the service answers, and until the first step of training, on an idle machine; and
#: the factor by which a slower machine may exceed all times.
READY_SECONDS, STEPPING_SECONDS, SLOWEST = 5.0, 10.0, 6.0


#: A plan whose promise was judged.
SETTLED = {PlanState.VERIFIED, PlanState.ROLLED_BACK}


class NotReached(click.ClickException):
    """A stage was not reached in time."""


@dataclass(slots=True)
class Story:
    """The course of the demo; its methods print events and wait for stages."""

    client: BrainClient
    job: str
    began: float
    #: Factor on all time limits, for a slow machine.
    slow: float = 1.0
    #: Rows of the closing table.
    rows: list[tuple[str, str]] = field(default_factory=list)

    def tell(self, sentence: str) -> None:
        """Print an event, with the seconds since the service started."""
        click.echo(f"{time.monotonic() - self.began:6.1f} s  {sentence}")

    def allow(self, slow: float) -> None:
        """Multiply all further time limits by ``slow``, but at most by ``SLOWEST``.

        The limits change only if the new factor is clearly larger than the present one.
        """
        slow = min(slow, SLOWEST)
        if slow > 1.1 * self.slow:
            self.slow = slow
            self.tell(f"this machine is busy: each wait may now take {slow:.1f} times its limit")

    def detail(self) -> JobDetail:
        """Return the job as Brain shows it now."""
        return self.client.send(calls.job(self.job))

    def plan(self, generation: int) -> ScalePlan:
        """Return one plan of the job, as Brain shows the plan now."""
        return self.client.send(calls.plan(self.job, generation)).plan

    def until(self, stage: str, seconds: float, look: Callable[[JobDetail], T | None]) -> T:
        """Wait until ``look`` finds a value in the job, and return this value.

        Raises:
            NotReached: ``look`` found nothing within ``seconds`` (times ``slow``), or the job
                failed.
            Unavailable: Brain did not answer at the end of that time.
        """
        seconds *= self.slow
        deadline = time.monotonic() + seconds
        while True:
            try:
                detail = self.detail()
                found = look(detail)
            except Unavailable:
                # A busy machine may answer late once; only the end of the stage is final.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.25)
                continue
            if found is not None:
                return found
            if detail.job.state in ("Failed", "Cancelled"):
                raise NotReached(f"{stage}: the job is {detail.job.state}: {detail.job.reason}")
            if time.monotonic() > deadline:
                why = detail.job.decision.explanation.reason if detail.job.decision else "—"
                raise NotReached(
                    f"{stage}: not reached within {seconds:.3g} s. The job is "
                    f"{detail.job.state} ({detail.job.reason}); Brain's last explanation: {why}"
                )
            time.sleep(0.25)


@click.command()
@click.option(
    "--home", type=click.Path(path_type=Path), help="State directory; default: a new one."
)
@click.option("--database-url", default="", help="Use PostgreSQL instead of the embedded SQLite.")
@click.option("--keep", is_flag=True, help="Keep the state directory after the demo.")
@click.option("--stay", is_flag=True, help="Leave Brain running until Ctrl-C after the demo.")
def demo(home: Path | None, database_url: str, keep: bool, stay: bool) -> None:
    """Watch a real training job get measured, explained, resized and verified.

    Takes up to three minutes; needs two cores, no GPU, no network.
    """
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        click.echo("The demo needs two usable cores; this process may use one.", err=True)
        raise click.exceptions.Exit(2)
    chosen = home or Path(tempfile.mkdtemp(prefix="brain-demo-"))
    shortened = ", ".join(f"{key} {value:g}" for key, value in SHORTENED.items())
    click.echo(f"Settings of the demo: {shortened}.")
    try:
        with running_brain(chosen, database_url) as (client, url, began):
            slow = (time.monotonic() - began) / READY_SECONDS
            trains = TRAINING_SECONDS * min(max(slow, 1), SLOWEST)
            story = Story(client, submit(client, chosen, cores, trains), began)
            story.tell(f"Brain is running; dashboard: {url}")
            story.allow(slow)
            play(story, chosen)
            conclude(story, url)
            if stay:
                click.echo("Brain keeps running until Ctrl-C.")
                signal.pause()
    except (NotReached, BrainError) as error:
        # The message may name a log.
        keep = True
        kept = "" if home else f"\n{chosen} is kept for its logs; remove it after reading them"
        raise NotReached(f"{error}{kept}") from error
    finally:
        if home is None and not keep:
            shutil.rmtree(chosen, ignore_errors=True)


@contextmanager
def running_brain(home: Path, database_url: str) -> Iterator[tuple[BrainClient, str, float]]:
    """Run ``brain up`` on a free port; yield a client, the dashboard's URL and the start time.

    If the output is a terminal, the URL signs the browser in.
    """
    options = [f"--set={key}={value}" for key, value in SHORTENED.items()]
    if database_url:
        options.append(f"--database-url={database_url}")
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as bad:
        raise NotReached(
            f"the directory --home {home} cannot be created: {bad.strerror}; name another one"
        ) from bad
    log = home / "up.log"
    began = time.monotonic()
    with log.open("wb") as printed:
        process = subprocess.Popen(
            ours("brain.cli", "up", f"--home={home}", "--port=0", *options),
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_up(process, log, seconds=30 * SLOWEST)
        url = json.loads((home / "service.json").read_text())["url"]
        token = (home / "admin.token").read_text().strip()
        with BrainClient(url, token) as client:
            if sys.stdout.isatty():
                url += client.send(calls.sign_in_code(somebody())).path
            yield client, url, began
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            click.echo("brain up did not end within 15 s and was killed", err=True)


def submit(client: BrainClient, home: Path, cores: int, trains_seconds: float) -> str:
    """Start ``digits.py`` with one replica, and allow as many replicas as there are cores."""
    work = home / "work"
    work.mkdir(exist_ok=True)
    command = [sys.executable, str(example("digits.py")), f"--seconds={trains_seconds:.0f}"]
    document = {
        "name": "digits",
        "command": command,
        "directory": str(work),
        "replicas": {"min": 1, "max": cores},
        "policy": {"mode": "auto"},
    }
    return client.send(calls.submit(document)).id


def play(story: Story, home: Path) -> None:
    """Go through the stages of the demo, in the order in which they happen."""
    submitted = time.monotonic()
    story.until("the first step of training", 90, _stepping)
    story.tell("digits.py trains with 1 replica; the script does not import or mention Brain")
    story.allow((time.monotonic() - submitted) / STEPPING_SECONDS)

    measured = story.until("a measured throughput", 45, _measured)
    story.tell(f"measured: {measured}")

    plan = story.until("a plan", 45, _resize)
    sizes = resize(plan.current.replicas, plan.target.replicas)
    story.tell(f"plan g{plan.generation}: {sizes}")
    story.tell(f"  because {plan.explanation.reason}")
    story.tell(f"  promised {output.rate(plan.promised)} examples/s")

    applied = story.until(
        "the new world's first step", 60, _later(story, plan, {PlanState.APPLIED, *SETTLED})
    )
    story.tell(
        f"resized: no training for {duration(applied.outcome.downtime_seconds)}, "
        f"{applied.outcome.steps_redone} steps repeated"
    )
    verified = story.until("a verdict", 75, _later(story, plan, SETTLED))
    story.tell(
        f"{verified.outcome.verdict}: measured {output.rate(verified.outcome.measured)} "
        f"of {output.rate(verified.promised)} examples/s promised"
    )
    if verified.outcome.verdict is Verdict.INCONCLUSIVE:
        raise NotReached(f"the verdict is inconclusive: {verified.outcome.detail}")
    if verified.outcome.verdict is Verdict.FELL_SHORT:
        back = story.until("the rollback", 60, _rolled_back)
        size = count(back.target.replicas, "replica")
        story.tell(f"rolled back to {size}, because the plan missed its promise")
    kill_a_replica(story, home)
    story.until("the end of training", 120, _finished)
    story.tell("training finished")


def kill_a_replica(story: Story, home: Path) -> None:
    """Kill the newest replica's agent with SIGKILL, and wait until all replicas train again."""
    before = story.detail()
    assert before.world is not None, "a plan with a verdict has a measured world"
    epoch = before.world.epoch
    replica = max(member.replica for member in before.world.members)
    directory = home / "replicas" / before.job.id / str(replica)
    os.kill(int(json.loads((directory / "state.json").read_text())["pid"]), signal.SIGKILL)
    story.tell(f"replica {replica} killed on purpose (SIGKILL)")

    def whole(detail: JobDetail) -> World | None:
        world = detail.world
        if world is None or world.epoch <= epoch or world.stepping_at is None:
            return None
        return world if world.replicas == detail.job.replicas_wished else None

    world = story.until("recovery from the killed replica", 75, whole)
    story.tell(
        f"recovered: {count(world.replicas, 'replica')} in world {world.epoch} after "
        f"{duration(world.downtime_seconds)} without training"
    )


def conclude(story: Story, url: str) -> None:
    """Print the closing table, and raise if the demo took too long."""
    detail = story.detail()
    found = story.client.send(calls.plans_of(story.job)).items
    for view in reversed(found):
        plan = view.plan
        story.rows.append(
            (
                f"plan g{plan.generation}, {plan.kind}, {plan.state}",
                f"{plan.current.replicas} → {plan.target.replicas}; promised "
                f"{output.rate(plan.promised)}, measured {output.rate(plan.outcome.measured)} "
                f"examples/s; {view.verdict}",
            )
        )
    for world in reversed(detail.worlds):
        story.rows.append(
            (
                f"world {world.epoch}, {world.cause}",
                f"{count(world.replicas, 'replica')}; no training for "
                f"{duration(world.downtime_seconds)}, "
                f"{(UNKNOWN if world.steps_redone is None else world.steps_redone)} steps "
                "repeated",
            )
        )
    losses = detail.job.losses
    story.rows += [
        ("telemetry lost", f"{losses.gaps + losses.dropped} samples"),
        ("network", _accuracy(story)),
        ("dashboard, while it runs", url),
        ("to keep Brain running", "`brain demo --stay`"),
    ]
    click.echo()
    for label, value in story.rows:
        click.echo(f"{label:34} {value}")
    took = time.monotonic() - story.began
    if took > LIMIT_SECONDS * story.slow:
        allowed = f"the limit was {LIMIT_SECONDS * story.slow:.0f} s"
        raise NotReached(f"the demo took {took:.0f} s; {allowed}; repeat it on an idle machine")


def example(name: str) -> Path:
    """Return the path of an example script, in the installed package or in a checkout."""
    package = Path(__file__).parents[1]
    shipped = package / "_examples" / name
    return shipped if shipped.exists() else package.parent / "examples" / name


def _stepping(detail: JobDetail) -> World | None:
    return detail.world if detail.world and detail.world.stepping_at else None


def _measured(detail: JobDetail) -> str | None:
    decision = detail.job.decision
    if decision is None or decision.measured is None:
        return None
    return f"{output.rate(decision.measured)} {detail.job.unit_of_throughput}"


def _resize(detail: JobDetail) -> ScalePlan | None:
    plan = detail.job.plan
    return plan if plan and plan.kind is PlanKind.RESIZE else None


def _later(
    story: Story, plan: ScalePlan, states: set[PlanState]
) -> Callable[[JobDetail], ScalePlan | None]:
    """Return a function that finds ``plan`` in one of ``states``, and raises if it ended."""

    def look(_: JobDetail) -> ScalePlan | None:
        now = story.plan(plan.generation)
        if not now.active and now.state not in states:
            raise NotReached(f"plan g{now.generation} is {now.state}: {now.outcome.detail}")
        return now if now.state in states else None

    return look


def _rolled_back(detail: JobDetail) -> ScalePlan | None:
    plan = detail.job.plan
    done = plan and plan.kind is PlanKind.ROLLBACK and plan.state in SETTLED
    return plan if done else None


def _finished(detail: JobDetail) -> JobDetail | None:
    return detail if detail.job.state == "Succeeded" else None


def _accuracy(story: Story) -> str:
    """Return the last line of the script's output, with its accuracy."""
    text = story.client.send(calls.logs(story.job)).decode(errors="replace")
    found = re.findall(r"accuracy [0-9.]+ after [0-9]+ steps", text)
    if not found:
        raise NotReached("the script's output lacks its last line, with the accuracy")
    return str(found[-1])


def _wait_until_up(process: subprocess.Popen[bytes], log: Path, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if "sign in" in text:
            return
        if process.poll() is not None:
            raise NotReached(f"brain up exited with code {process.returncode}:\n{text.strip()}")
        time.sleep(0.1)
    raise NotReached(f"brain up was not ready within {seconds:g} s:\n{log.read_text()}")
