"""Random changes under a real DDP script: after each, all replicas hold the same bits.

Joins, leaves with notice, kills of agents and crashes of workers, one at a time and seeded. Of the
two scripts one is started anew by each change, the other one's processes stay.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launcher.values.diagnosis.policy import SAME_NODE
from tests.hosts.machines import Host, Hosts, hosts
from tests.hosts.worlds import HandJob, eventually

SCRIPTS = Path(__file__).parent.parent / "scripts"
RESTARTED, IN_PROCESS = SCRIPTS / "replicated.py", SCRIPTS / "replicated_in_process.py"
#: How far the loss of a disturbed run may be from that of an undisturbed one.
TOLERANCE = 1e-3
#: A soak of two hundred changes makes tens of thousands of steps, and machines may be busy.
_UNDISTURBED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What one replica held after one step."""

    epoch: int
    rank: int
    size: int
    step: int
    digest: str
    #: Its part: the loss of the global batch is the mean of all parts.
    loss: float
    #: What it trained of the global batch.
    examples: tuple[int, ...]


@dataclass
class Records:
    """What replicas write down, read on from where the last look ended."""

    place: Path
    found: list[Proof] = field(default_factory=list)
    _read: dict[Path, int] = field(default_factory=dict)

    def look(self) -> list[Proof]:
        """All that they wrote so far; a line that is being written is left out."""
        for file in sorted(self.place.iterdir()):
            with file.open() as lines:
                lines.seek(self._read.get(file, 0))
                text, ended, _ = lines.read().rpartition("\n")
            self._read[file] = self._read.get(file, 0) + len(text) + len(ended)
            self.found += map(_proof, text.splitlines())
        return self.found


def _proof(line: str) -> Proof:
    epoch, rank, size, step, digest, loss, examples = line.split()
    return Proof(
        epoch=int(epoch),
        rank=int(rank),
        size=int(size),
        step=int(step),
        digest=digest,
        loss=float(loss),
        examples=tuple(map(int, examples.split(","))),
    )


def run(
    directory: Path,
    *,
    seed: int,
    changes: int,
    most: int = 3,
    script: Path = RESTARTED,
    flags: Sequence[str] = (),
    say: Callable[[str], None] = print,
    change_seconds: float = 90.0,
) -> None:
    """Apply so many changes to a job on at most ``most`` hosts.

    Raises:
        AssertionError: replicas disagree, a loss is off, an example was lost or repeated, or a
            change takes longer than allowed.
    """
    rng = random.Random(f"changes/{seed}")
    with hosts(directory, most) as them:
        job = _job(directory, them, most, script, flags)
        records = Records(job.records)
        job.start(them[0], them[1])
        settled(job, records, 0, change_seconds)
        crashed: list[str] = []
        for index in range(changes):
            before = newest(records.look())
            what = _change(rng, job, them, crashed)
            settled(job, records, before, change_seconds)
            assert disagreements(records.found) == [], job.logs()
            say(f"change {index + 1}: {what}; epoch {newest(records.found)}")
        found = list(records.look())
    assert disagreements(found) == []
    expected = undisturbed(directory, script, max(each.step for each in found))
    assert astray(found, expected) == []
    worst = max(abs(loss - expected[step].loss) for (_, step), loss in losses(found).items())
    say(f"{changes} changes, {newest(found)} worlds, largest difference of a loss {worst:.1e}")
    assert worst <= TOLERANCE


def settled(job: HandJob, records: Records, before: int, seconds: float) -> None:
    """Wait until a later world of all agents there are has stepped on every replica."""
    agents = [host for host in job.hosts if job.alive(host)]
    expected = len(agents)

    def look() -> bool:
        ended = [host.name for host in agents if not job.alive(host)]
        assert not ended, f"agents of {ended} have ended\n{job.logs()}"
        found = records.look()
        last = newest(found)
        there = [each for each in found if each.epoch == last]
        return (
            last > before
            and {each.size for each in there} == {expected}
            and {each.rank for each in there} == set(range(expected))
        )

    eventually(look, f"a world of {expected} after epoch {before}", seconds, job.logs)


def newest(found: Sequence[Proof]) -> int:
    """The last epoch in which a step was made; 0 before any."""
    return max((each.epoch for each in found), default=0)


def disagreements(found: Sequence[Proof]) -> list[str]:
    """Steps of a world after which its replicas did not hold the same."""
    held = {at: {each.digest for each in group} for at, group in _groups(found).items()}
    return [
        f"epoch {epoch}, step {step}: {sorted(digests)}"
        for (epoch, step), digests in sorted(held.items())
        if len(digests) > 1
    ]


def losses(found: Sequence[Proof]) -> dict[tuple[int, int], float]:
    """(Epoch, step) -> loss of the global batch, of those steps that all replicas told of."""
    return {
        at: sum(each.loss for each in group) / len(group)
        for at, group in _groups(found).items()
        if len(group) == group[0].size
    }


def astray(found: Sequence[Proof], expected: Mapping[int, Proof]) -> list[str]:
    """Examples that were not trained in the step that was theirs, or not once.

    Of a step of which not all replicas told (one was ended right after it) nobody knows what the
    others trained; what is known of it has to be right.
    """
    wrong = []
    for (epoch, step), group in _groups(found).items():
        trained = Counter(example for each in group for example in each.examples)
        whole = len(group) == group[0].size
        wanted = Counter(expected[step].examples)
        if (trained != wanted) if whole else (trained - wanted):
            wrong.append(f"epoch {epoch}, step {step}: {sorted(trained)} of {sorted(wanted)}")
    missing = set(range(1, max(each.step for each in found) + 1)) - {each.step for each in found}
    return [*wrong, *(f"step {step} was never made" for step in sorted(missing))]


def _groups(found: Sequence[Proof]) -> dict[tuple[int, int], list[Proof]]:
    groups: dict[tuple[int, int], list[Proof]] = {}
    for each in found:
        groups.setdefault((each.epoch, each.step), []).append(each)
    return groups


def undisturbed(directory: Path, script: Path, steps: int) -> dict[int, Proof]:
    """Step -> what a run in one process trains that nobody disturbs."""
    records = directory / "undisturbed"
    records.mkdir()
    checkpoint = directory / "undisturbed.pt"
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    subprocess.run(
        [
            *(sys.executable, str(script), f"--records={records}", f"--checkpoint={checkpoint}"),
            *(f"--steps={steps}", "--pace=0"),
        ],
        env=dict(os.environ) | alone,
        check=True,
        timeout=_UNDISTURBED_SECONDS,
    )
    return {each.step: each for each in Records(records).look()}


def _job(directory: Path, them: Hosts, most: int, script: Path, flags: Sequence[str]) -> HandJob:
    work = directory / "work"
    command = (
        *(str(script), f"--records={work / 'records'}"),
        f"--checkpoint={work / 'replicated.pt'}",
    )
    return HandJob(hosts=them, work=work, nnodes=f"1:{most}", flags=flags, script=command)


def _change(rng: random.Random, job: HandJob, them: Hosts, crashed: list[str]) -> str:
    """Do one thing that changes the world; returns what. ``crashed``: where workers did, in order;
    a host that fails again and again would be left as sick."""
    # The first host holds the rendezvous endpoint: it stays, so that others can join.
    there = [host for host in them.all[1:] if job.alive(host)]
    away = [host for host in them.all[1:] if not job.alive(host)]
    row = crashed[-SAME_NODE + 1 :]
    well = [host for host in (them[0], *there) if row != [host.name] * (SAME_NODE - 1)]
    kinds = [*["crash"] * bool(well), *["join"] * 2 * bool(away), *["leave", "kill"] * bool(there)]
    match rng.choice(kinds):
        case "join":
            host = rng.choice(away)
            job.start(host)
            return f"{host.name} joins"
        case "leave":
            host = rng.choice(there)
            job.leave(host)
            job.agent(host).wait()
            return f"{host.name} leaves"
        case "kill":
            host = rng.choice(there)
            host.signal(job.agent(host), signal.SIGKILL)
            job.agent(host).wait()
            return f"the agent of {host.name} is killed"
        case _:
            host = rng.choice(well)
            crashed.append(host.name)
            _crash(job, host)
            return f"a worker of {host.name} crashes"


def _crash(job: HandJob, host: Host) -> None:
    workers = eventually(lambda: job.workers(host), f"a worker on {host.name}", 30, job.logs)
    os.kill(workers[0], signal.SIGSEGV)
