"""Stores the policies and latest rounds of pools in dictionaries."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from brain.errors import VersionMismatch
from brain.inmemory.rows import Rows
from brain.ports import Mark
from brain.types.job import Job, JobId
from brain.types.resources import PoolName
from brain.types.sharing import PoolRound, StoredPolicy
from brain.types.world import ReplicaState


class MemoryPools:
    """``PoolStore`` in memory; it reads all tables of a transaction, because a job's ``Mark``
    depends on most of them.
    """

    def __init__(self, rows: Mapping[str, Rows[Any, Any]]) -> None:
        self._rows = rows
        self._policies: Rows[PoolName, StoredPolicy] = rows["policies"]
        self._rounds: Rows[PoolName, PoolRound] = rows["rounds"]

    def marks(self, pool: PoolName) -> Mapping[JobId, Mark]:
        jobs = [each for each in self._rows["jobs"].values() if each.pool == pool]
        unfinished = [job for job in jobs if not job.finished]
        heard: Counter[JobId] = Counter()
        for (job, _), counted in self._rows["sources"].items():
            heard[job] += counted.stored
        return {
            job.id: Mark(state=job.state, life=self._life(job), heard=str(heard[job.id]))
            for job in sorted(unfinished, key=lambda each: (each.created_at, each.id))
        }

    def policy(self, pool: PoolName) -> StoredPolicy | None:
        return self._policies.get(pool)

    def put_policy(self, policy: StoredPolicy) -> StoredPolicy:
        known = self._policies.get(policy.pool)
        version = known.version if known else 0
        if policy.version != version:
            raise VersionMismatch(
                f"the policy of pool {policy.pool} is at version {version}, not {policy.version}; "
                "read the policy again"
            )
        stored = replace(policy, version=version + 1)
        self._policies[policy.pool] = stored
        return stored

    def remove_policy(self, pool: PoolName) -> bool:
        return self._policies.pop(pool, None) is not None

    def policies(self) -> Sequence[StoredPolicy]:
        return sorted(self._policies.values(), key=lambda each: each.pool)

    def round(self, pool: PoolName) -> PoolRound | None:
        return self._rounds.get(pool)

    def put_round(self, round: PoolRound) -> None:
        self._rounds[round.pool] = round

    def _life(self, job: Job) -> str:
        plans = self._rows["plans"].get(job.id, {}).values()
        worlds = self._rows["worlds"].get(job.id, {}).values()
        replicas = self._rows["replicas"].get(job.id, {}).values()
        parts = (
            job.version,
            len(plans),
            sum(plan.version for plan in plans),
            len(worlds),
            sum(world.stepping_at is not None for world in worlds),
            sum(world.ended_at is not None for world in worlds),
            len(replicas),
            sum(replica.state is ReplicaState.EXITED for replica in replicas),
        )
        return ".".join(map(str, parts))
