"""Random changes under a real DDP script: after each, all replicas hold the same bits.

Joins, leaves with notice, kills of agents and crashes of workers, one at a time and seeded; the
script is ``tests/scripts/replicated.py``.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.machines import Host, Hosts, hosts
from tests.hosts.worlds import HandJob, eventually

SCRIPT = Path(__file__).parent.parent / "scripts" / "replicated.py"
#: How far the loss of a disturbed run may be from that of an undisturbed one.
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What one replica held after one step."""

    epoch: int
    rank: int
    size: int
    step: int
    digest: str
    loss: float


def run(
    directory: Path,
    *,
    seed: int,
    changes: int,
    most: int = 3,
    flags: Sequence[str] = (),
    say: Callable[[str], None] = print,
    change_seconds: float = 90.0,
) -> None:
    """Apply so many changes to a job on at most ``most`` hosts.

    Raises:
        AssertionError: replicas disagree, a loss is off, or a change takes longer than allowed.
    """
    rng = random.Random(f"changes/{seed}")
    with hosts(directory, most) as them:
        job = _job(directory, them, most, flags)
        job.start(them[0], them[1])
        settled(job, 0, change_seconds)
        for index in range(changes):
            before = newest(proofs(job))
            what = _change(rng, job, them)
            settled(job, before, change_seconds)
            assert disagreements(proofs(job)) == [], job.logs()
            say(f"change {index + 1}: {what}; epoch {newest(proofs(job))}")
        found = proofs(job)
    assert disagreements(found) == []
    expected = undisturbed(directory, max(each.step for each in found))
    worst = max(abs(each.loss - expected[each.step]) for each in found)
    say(f"{changes} changes, {newest(found)} worlds, largest difference of a loss {worst:.1e}")
    assert worst <= TOLERANCE


def settled(job: HandJob, before: int, seconds: float) -> None:
    """Wait until a later world of all agents there are has stepped on every replica."""
    agents = [host for host in job.hosts if job.alive(host)]
    expected = len(agents)

    def look() -> bool:
        ended = [host.name for host in agents if not job.alive(host)]
        assert not ended, f"agents of {ended} have ended\n{job.logs()}"
        found = proofs(job)
        last = newest(found)
        there = [each for each in found if each.epoch == last]
        return (
            last > before
            and {each.size for each in there} == {expected}
            and {each.rank for each in there} == set(range(expected))
        )

    eventually(look, f"a world of {expected} after epoch {before}", seconds, job.logs)


def proofs(job: HandJob) -> list[Proof]:
    """All that replicas wrote so far; a line that is being written is left out."""
    found = []
    for file in job.records.iterdir():
        for line in file.read_text().split("\n")[:-1]:
            epoch, rank, size, step, digest, loss = line.split()
            made = Proof(
                epoch=int(epoch),
                rank=int(rank),
                size=int(size),
                step=int(step),
                digest=digest,
                loss=float(loss),
            )
            found.append(made)
    return found


def newest(found: Sequence[Proof]) -> int:
    """The last epoch in which a step was made; 0 before any."""
    return max((each.epoch for each in found), default=0)


def disagreements(found: Sequence[Proof]) -> list[str]:
    """Steps of a world after which its replicas did not hold the same."""
    held: dict[tuple[int, int], set[str]] = {}
    for each in found:
        held.setdefault((each.epoch, each.step), set()).add(each.digest)
    return [
        f"epoch {epoch}, step {step}: {sorted(digests)}"
        for (epoch, step), digests in sorted(held.items())
        if len(digests) > 1
    ]


def undisturbed(directory: Path, steps: int) -> dict[int, float]:
    """Step -> loss of a run in one process that nobody disturbs."""
    records = directory / "undisturbed"
    records.mkdir()
    checkpoint = directory / "undisturbed.pt"
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    subprocess.run(
        [
            *(sys.executable, str(SCRIPT), f"--records={records}", f"--checkpoint={checkpoint}"),
            *(f"--steps={steps}", "--pace=0"),
        ],
        env=dict(os.environ) | alone,
        check=True,
        timeout=600,
    )
    (file,) = records.iterdir()
    lines = [line.split() for line in file.read_text().splitlines()]
    return {int(line[3]): float(line[5]) for line in lines}


def _job(directory: Path, them: Hosts, most: int, flags: Sequence[str]) -> HandJob:
    work = directory / "work"
    script = (
        *(str(SCRIPT), f"--records={work / 'records'}"),
        f"--checkpoint={work / 'replicated.pt'}",
    )
    return HandJob(hosts=them, work=work, nnodes=f"1:{most}", flags=flags, script=script)


def _change(rng: random.Random, job: HandJob, them: Hosts) -> str:
    """Do one thing that changes the world; returns what."""
    # The first host holds the rendezvous endpoint: it stays, so that others can join.
    there = [host for host in them.all[1:] if job.alive(host)]
    away = [host for host in them.all[1:] if not job.alive(host)]
    kinds = ["crash", *["join"] * 2 * bool(away), *["leave", "kill"] * bool(there)]
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
            host = rng.choice([them[0], *there])
            _crash(job, host)
            return f"a worker of {host.name} crashes"


def _crash(job: HandJob, host: Host) -> None:
    workers = eventually(lambda: job.workers(host), f"a worker on {host.name}", 30, job.logs)
    os.kill(workers[0], signal.SIGSEGV)
