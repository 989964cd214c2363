"""A storm: agents on several hosts join, leave, die, stall and lose each other; worlds stay right.

Events come at random moments from a seed. Now and then the storm rests: everything is mended, and
within a bound all agents that there are must be one world that steps. Throughout there are never
two worlds of one epoch or of one job at a time.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.hosts.machines import Host, Hosts, hosts
from tests.hosts.switch import Link
from tests.hosts.worlds import HandJob, Life, eventually, overlaps

#: Seconds after a rest began within which there must be a world of everybody that steps.
PROGRESS_SECONDS = 45.0
#: Seconds after which nothing of a killed agent may be left on its host.
CLEAN_SECONDS = 10.0
#: Between two events on average; rests between make it two seconds over all.
_PAUSE_SECONDS = 1.4
_BURST_SECONDS = 25.0
#: Events that are tried before the next moment is awaited.
_TRIES = 50


@dataclass
class Storm:
    """One run. ``weather`` does the next thing; ``rest`` mends and checks."""

    job: HandJob
    them: Hosts
    rng: random.Random
    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    events: int = 0
    #: What ends by itself: when, and how.
    _ending: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)
    _stopped: set[str] = field(default_factory=set)
    _off: set[str] = field(default_factory=set)
    _leaving: set[str] = field(default_factory=set)
    #: The newest world as each host's agent was started: it was in none of those.
    _since: dict[str, int] = field(default_factory=dict)
    _network: bool = True
    #: Lives of worlds long over, which need not be read again.
    _past: list[Life] = field(default_factory=list)

    def weather(self) -> None:
        """One event that is possible now, if any is."""
        kinds: dict[str, tuple[float, Callable[[], str | None]]] = {
            "join": (4, self._join),
            "leave": (2, self._leave),
            "kill": (2, self._kill),
            "crash": (2, self._crash),
            "coordinator": (1, self._kill_leader),
            "stop": (1.5, lambda: self._stop(self.rng.uniform(0.5, 6.0))),
            "stall": (0.5, lambda: self._stop(10.0)),
            "pause": (1, lambda: self._pause(self.rng.uniform(2.0, 8.0))),
        }
        if self.them.network:
            kinds |= {
                "power": (1, self._power),
                "partition": (1, lambda: self._partition(both=True)),
                "half-open": (0.7, lambda: self._partition(both=False)),
                "slow": (0.7, self._slow),
            }
        weights = [weight for weight, _ in kinds.values()]
        for _ in range(_TRIES):  # while a network is cut there may be nothing to break
            act = self.rng.choices(list(kinds.values()), weights)[0][1]
            if what := act():
                self.events += 1
                self._note(what)
                return

    def end_what_is_over(self) -> None:
        """Stalls and partitions that have lasted long enough."""
        for entry in [each for each in self._ending if each[0] <= time.monotonic()]:
            self._ending.remove(entry)
            self._note(entry[1])
            entry[2]()

    def rest(self) -> None:
        """Mend all, wait for one world of all agents, hold it to every promise.

        Raises:
            AssertionError: a promise was broken.
        """
        for _, what, end in self._ending:
            self._note(what)
            end()
        self._ending.clear()
        for host in self.them:
            if host.name in self._leaving and self.job.alive(host):
                self.job.agent(host).wait(40)
        if not self.job.alive(self.them[0]):  # where those that never were in a world look
            self._note(str(self._bring(self.them[0])))
        there = [host for host in self.them if self.job.alive(host)]
        self._note(f"rest: {len(there)} agents")
        before = self.job.saved_step()
        self.job.running(*there, seconds=PROGRESS_SECONDS)
        saved = f"a checkpoint after step {before}"
        eventually(lambda: self.job.saved_step() > before, saved, PROGRESS_SECONDS, self.job.logs)
        self.check()
        for host in self.them:
            if host.name not in self._off and not self.job.alive(host):
                self._clean(host)
        self._forget()

    def check(self) -> None:
        """Never two worlds of one epoch, nor two at a time.

        Raises:
            AssertionError: there were.
        """
        found = overlaps([*self._past[-50:], *self.job.lives()])
        assert found == [], "\n".join([*found, self.job.logs()])

    def calm(self) -> None:
        """The end: everybody leaves, and nothing is left.

        Raises:
            AssertionError: something is, or a log lacks what a worker said.
        """
        self.rest()
        there = [host for host in self.them if self.job.alive(host)]
        for host in there:
            self.job.leave(host)
        for host in there:
            self.job.agent(host).wait(40)
        for host in self.them:
            if host.name not in self._off:
                self._clean(host)
        said = {word for line in self._logged() for word in line.split()}
        silent = [file.name for file in self.job.records.parent.glob("*/*-host*")]
        missing = [name for name in silent if name not in said]
        assert missing == [], f"no log has the first words of {missing}"

    # -- what happens -------------------------------------------------------------------------

    def _there(self) -> list[Host]:
        """Hosts whose agent runs and is reachable."""
        free = (host for host in self.them if host.name not in self._stopped | self._off)
        return [host for host in free if self.job.alive(host)]

    def _join(self) -> str | None:
        away = [host for host in self.them if not self.job.alive(host)]
        away = [host for host in away if host.name not in self._stopped]
        if not away:
            return None
        return self._bring(self.rng.choice(away))

    def _bring(self, host: Host) -> str:
        again = ""
        if host.name in self._off:
            self.them.boot(host)
            self._off.discard(host.name)
            again = ", switched on again,"
        self._since[host.name] = max((life.epoch for life in self._newest()), default=0)
        self.job.start(host)
        self._leaving.discard(host.name)
        return f"{host.name}{again} joins"

    def _leave(self) -> str | None:
        if (host := self._spare()) is None:
            return None
        self.job.leave(host)
        self._leaving.add(host.name)
        return f"{host.name} leaves"

    def _kill(self) -> str | None:
        if (host := self._spare()) is None:
            return None
        host.signal(self.job.agent(host), signal.SIGKILL)
        self.job.agent(host).wait()
        return f"the agent of {host.name} is killed"

    def _kill_leader(self) -> str | None:
        host = self._leader()
        if host is None or host not in self._dispensable():
            return None
        host.signal(self.job.agent(host), signal.SIGKILL)
        self.job.agent(host).wait()
        return f"the agent of {host.name}, which had rank 0, is killed"

    def _crash(self) -> str | None:
        if not (there := self._there()):
            return None
        host = self.rng.choice(there)
        workers = self.job.workers(host)
        if not workers:
            return None
        os.kill(self.rng.choice(workers), signal.SIGKILL)
        return f"a worker of {host.name} crashes"

    def _stop(self, seconds: float) -> str | None:
        host = self._of_whole_world()
        if host is None:
            return None
        host.stop()
        self._stopped.add(host.name)

        self._later(seconds, f"{host.name} goes on", partial(self._go_on, host))
        return f"{host.name} is stopped for {seconds:.1f} s"

    def _pause(self, seconds: float) -> str | None:
        """All hosts at once, and they go on one after the other. Not while nobody holds the place
        where new agents look, who would rightly begin anew."""
        there = self._there()
        if self._of_whole_world() is None or self.them[0] not in there:
            return None
        for host in there:
            host.stop()
            self._stopped.add(host.name)
        for host in there:
            seconds += self.rng.uniform(0.0, 0.4)
            self._later(seconds, f"{host.name} goes on", partial(self._go_on, host))
        return f"all of {len(there)} hosts are stopped for {seconds:.1f} s"

    def _go_on(self, host: Host) -> None:
        self._stopped.discard(host.name)
        host.go_on()

    def _power(self) -> str | None:
        host = self._of_whole_world()
        if host is None:
            return None
        host.kill()
        self._off.add(host.name)
        return f"{host.name} loses its power"

    def _partition(self, *, both: bool) -> str | None:
        if self._of_whole_world() is None or not self._network:
            return None
        everybody = list(self.them)
        self.rng.shuffle(everybody)
        at = self.rng.randint(1, len(everybody) - 1)
        some, others = everybody[:at], everybody[at:]
        self.them.cut(some, others, both=both)
        names = " ".join(sorted(host.name for host in some))
        return self._network_fails(f"{names} {'cut off' if both else 'not heard'}")

    def _slow(self) -> str | None:
        if not self._network:
            return None
        link = Link(delay_seconds=0.2, bytes_per_second=100_000)
        host = self.rng.choice(self.them.all)
        self.them.link([host], [each for each in self.them if each is not host], link)
        return self._network_fails(f"{host.name} has a slow link")

    def _network_fails(self, what: str) -> str:
        def end() -> None:
            self._network = True
            self.them.heal()

        self._network = False
        seconds = self.rng.uniform(1.0, 8.0)
        self._later(seconds, "the network heals", end)
        return f"{what} for {seconds:.1f} s"

    def _later(self, seconds: float, what: str, end: Callable[[], None]) -> None:
        self._ending.append((time.monotonic() + seconds, what, end))

    def _spare(self) -> Host | None:
        free = self._dispensable()
        return self.rng.choice(free) if free else None

    def _dispensable(self) -> list[Host]:
        """Agents that may go: of the newest world another one stays to tell of it."""
        there = [host for host in self._there() if host.name not in self._leaving]
        world = {each.host for each in self._newest() if each.epoch > self._since.get(each.host, 0)}
        if len(there) < 3 or self._stopped or not self._network:
            return []
        return [h for h in there if any(o.name in world for o in there if o is not h)]

    def _of_whole_world(self) -> Host | None:
        """One of at least three hosts, all of which are in the newest world and reachable: more
        than half of it is left when this one falls silent."""
        there = self._there()
        newest = self._newest()
        world = {life.host for life in newest}
        whole = bool(newest) and len(newest) == newest[0].size and world == {h.name for h in there}
        going = any(host.name in self._leaving for host in there)
        calm = not self._stopped and not going and self._network and len(there) > 2
        return self.rng.choice(there) if whole and calm else None

    def _leader(self) -> Host | None:
        first = [life.host for life in self._newest() if life.rank == 0]
        return next((host for host in self.them if host.name in first), None)

    def _newest(self) -> list[Life]:
        lives = self.job.lives()
        last = max((life.epoch for life in lives), default=0)
        return [life for life in lives if life.epoch == last]

    # -- what is checked ----------------------------------------------------------------------

    def _clean(self, host: Host) -> None:
        left = f"nothing left on {host.name}"
        eventually(lambda: not host.leftovers(), left, CLEAN_SECONDS, lambda: str(host.leftovers()))

    def _forget(self) -> None:
        """Put records of worlds long over aside."""
        past = self.job.work / "past"
        past.mkdir(exist_ok=True)
        newest = max(life.epoch for life in self.job.lives())
        for file in self.job.records.iterdir():
            if int(file.name.split("-")[0]) < newest - 3:
                file.rename(past / file.name)

    def _logged(self) -> Iterator[str]:
        for file in (self.job.work / "logs").rglob("stdout.log"):
            yield from file.read_text().splitlines()

    def _note(self, what: str) -> None:
        line = f"{time.monotonic() - self.began:7.2f} {what}"
        with (self.job.work / "events.log").open("a") as events:
            events.write(line + "\n")
        self.say(line)


def run(
    directory: Path, *, seed: int, seconds: float, count: int, say: Callable[[str], None]
) -> None:
    """A storm of so many seconds over ``count`` hosts.

    Raises:
        AssertionError: an invariant was broken; the message says which, ``directory`` has the rest.
    """
    rng = random.Random(f"storm/{seed}")
    with hosts(directory, count) as them:
        work = directory / "work"
        flags = ("--log-dir", str(work / "logs"), "--redirects=3")
        job = HandJob(hosts=them, work=work, nnodes=f"1:{count}", flags=flags)
        job.start()
        job.running(*them, seconds=PROGRESS_SECONDS)
        storm = Storm(job=job, them=them, rng=rng, say=say)
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            _burst(storm, rng, min(end, now + _BURST_SECONDS))
            storm.rest()
        storm.calm()
        worlds = max(life.epoch for life in job.lives())
        say(f"{storm.events} events, {worlds} worlds, step {job.saved_step()}: all promises kept")


def _burst(storm: Storm, rng: random.Random, until: float) -> None:
    while time.monotonic() < until:
        at = time.monotonic() + rng.expovariate(1 / _PAUSE_SECONDS)
        while time.monotonic() < min(at, until):
            storm.end_what_is_over()
            time.sleep(0.05)
        storm.weather()
        storm.check()
