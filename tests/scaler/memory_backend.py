"""A ``JobBackend`` without processes: tests play the agents' part."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from brain.types.job import JobId
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.roles import WORKER
from brain.types.world import ReplicaExit
from brain.views import DesiredJob
from scaler.ports import NOTHING, Observed, ReplicaPhase, ReplicaSeen, reserved


class MemoryBackend:
    """Replicas as entries of a dictionary."""

    def __init__(self, *, capacity: Resources, name: str = "memory", pool: str = "local") -> None:
        self._capacity, self._name, self._pool = capacity, NodeName(name), PoolName(pool)
        self._jobs: dict[JobId, dict[int, ReplicaSeen]] = {}
        self._tokens: dict[JobId, str] = {}
        self._environments: dict[tuple[JobId, int], dict[str, str]] = {}
        self._named: dict[JobId, frozenset[int]] = {}

    def nodes(self, now: datetime) -> Sequence[Node]:
        """Return one machine of the given capacity."""
        return (Node(name=self._name, pool=self._pool, capacity=self._capacity, seen_at=now),)

    def jobs(self) -> Sequence[JobId]:
        """Return jobs that ever had a replica here."""
        return sorted(self._jobs)

    def observe(self, job: JobId, now: datetime) -> Observed:
        """Return the replicas of a job and the free capacity."""
        mine = self._jobs.get(job, {})
        used = sum(
            (r.resources for each in self._jobs.values() for r in each.values() if r.alive), NOTHING
        )
        return Observed(
            job=job,
            replicas=tuple(mine[id] for id in sorted(mine)),
            next_id=max(mine, default=-1) + 1,
            named=self._named.get(job, frozenset()),
            free=self._capacity - used,
        )

    def start(
        self,
        wish: DesiredJob,
        replica: int,
        environment: Mapping[str, str],
        now: datetime,
        *,
        group: str = WORKER,
    ) -> None:
        """Add a replica, which is STARTING until ``run`` is called."""
        mine = self._jobs.setdefault(wish.job, {})
        if replica in mine and mine[replica].phase is not ReplicaPhase.INTENDED:
            return
        self._environments[wish.job, replica] = dict(environment)
        mine[replica] = ReplicaSeen(
            id=replica,
            phase=ReplicaPhase.STARTING,
            generation=wish.wish.generation,
            resources=reserved(wish, group),
            role=group,
            started_at=now,
            adjustable=True,
        )

    def reserve(self, wish: DesiredJob, replica: int, now: datetime) -> None:
        """Take the new amounts at once."""
        seen = self._jobs.get(wish.job, {}).get(replica)
        if seen is not None and seen.alive:
            asked = replace(reserved(wish, seen.role), gpus=seen.resources.gpus)
            self._put(wish.job, replace(seen, resources=asked))

    def stop(self, job: JobId, replica: int, *, force: bool, now: datetime) -> None:
        """Let an agent leave at once; with ``force`` the replica is gone."""
        seen = self._jobs.get(job, {}).get(replica)
        if seen is None or seen.phase not in (ReplicaPhase.STARTING, ReplicaPhase.RUNNING):
            return
        self._put(job, replace(seen, asked_at=seen.asked_at or now))
        if force:
            self.lose(job, replica)
        else:
            self.end(job, replica, ReplicaExit.LEFT, now)

    def close(
        self, job: JobId, replica: int, exit: ReplicaExit, detail: str, now: datetime
    ) -> None:
        """Record a replica's end, unless the replica is alive."""
        seen = self._jobs.get(job, {}).get(replica)
        if seen is not None and seen.phase in (ReplicaPhase.GONE, ReplicaPhase.INTENDED):
            self.end(job, replica, exit, now, detail)

    def has_token(self, job: JobId) -> bool:
        """True if the job has a token."""
        return job in self._tokens

    def put_token(self, job: JobId, secret: str) -> None:
        self._tokens[job] = secret

    def environment(self, job: JobId, names: frozenset[str]) -> Mapping[str, str] | None:
        """Return the environment of a living replica."""
        for replica in self._jobs.get(job, {}).values():
            given = self._environments.get((job, replica.id), {})
            if replica.phase is ReplicaPhase.RUNNING and names <= given.keys():
                return {name: given[name] for name in names}
        return None

    def clear(self, job: JobId) -> None:
        """Forget the token."""
        self._tokens.pop(job, None)

    # Actions of agents and coordinators.

    def run(self, job: JobId, replica: int) -> None:
        """Let the agent report that it runs."""
        self._put(job, replace(self._jobs[job][replica], phase=ReplicaPhase.RUNNING))

    def lose(self, job: JobId, replica: int) -> None:
        """Let the agent die without a report."""
        self._put(job, replace(self._jobs[job][replica], phase=ReplicaPhase.GONE))

    def end(
        self, job: JobId, replica: int, exit: ReplicaExit, now: datetime, detail: str = ""
    ) -> None:
        """Let the agent end and report its exit."""
        seen = self._jobs[job][replica]
        self._put(
            job, replace(seen, phase=ReplicaPhase.ENDED, exit=exit, ended_at=now, detail=detail)
        )

    def name(self, job: JobId, *replicas: int) -> None:
        """Let the coordinator write a world document."""
        self._named[job] = frozenset(replicas)

    def _put(self, job: JobId, seen: ReplicaSeen) -> None:
        self._jobs[job][seen.id] = seen
