"""A chief that reserves far more memory than it uses is found, priced, and given less by a plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from brain import calls, lifecycle, wire
from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, JobDocument, JobId, OptimizeMode, PolicyMode
from brain.types.plan import PlanState, Verdict
from brain.types.report import Grade
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from brain.types.telemetry import ReplicaReading
from tests import builders
from tests.api.app import Api
from tests.virtual import QUICK, Laptop, scaling_by

GIB = 2**30
#: As a job on a real cluster reserved for its chief.
RESERVED = Resources(cpu_millis=1000, memory_bytes=185 * GIB)
#: Use of the replicas of each role: mCPU and bytes.
CHIEF, SERVER, WORKER = (800, 9 * GIB), (680, 3 * GIB // 2), (800, 3 * GIB // 2)
OTHERS = Resources(cpu_millis=1000, memory_bytes=2 * GIB)


class Served(Laptop):
    """A chief, two servers and two workers on one large machine."""

    def __init__(self) -> None:
        super().__init__(
            scaling_by(0.9),
            settings=replace(QUICK, accelerator_prices="cpu=0.05, memory=0.01"),
            optimize_mode=OptimizeMode.SINGLE_JOB,
            policy=ApprovalPolicy(mode=PolicyMode.APPROVE),
            replicas=Bounds(min=5, max=5),
            resources=OTHERS,
            roles={
                "chief": RoleSize(resources=RESERVED),
                "ps": RoleSize(replicas=2, resources=OTHERS),
            },
        )
        self.start()

    def submit(self, document: JobDocument, *, id: str = builders.JOB) -> JobId:
        machine = Resources(cpu_millis=12_000, memory_bytes=256 * GIB)
        with self.stores.transaction() as tx:
            tx.nodes.put(replace(builders.node(), capacity=machine))
        return super().submit(document, id=id)

    def read(self, seconds: int, *, every: int) -> None:
        """Train; the machine is read and the scaler reports every so many seconds."""
        for _ in range(seconds // every):
            self.train(min(every, 5)).wait(max(0, every - 5))
            wish = self.wish()
            roles = {role: size.resources or OTHERS for role, size in wish.roles}
            each = (roles["chief"], roles["ps"], roles["ps"], OTHERS, OTHERS)
            self.observe(*(builders.replica(id, resources=one) for id, one in enumerate(each)))
            reading = builders.host(
                int(self.now.timestamp()),
                job=self.id,
                measured_at=self.now,
                memory_capacity_bytes=256 * GIB,
                job_memory_bytes=15 * GIB,
                replica_readings=tuple(
                    ReplicaReading(replica=id, cpu_millis=cpu, memory_bytes=memory)
                    for id, (cpu, memory) in enumerate((CHIEF, SERVER, SERVER, WORKER, WORKER))
                ),
            )
            with self.stores.transaction() as tx:
                tx.telemetry.add([reading], received_at=self.now)
            self.turn()


def test_a_chief_that_reserves_far_too_much_is_priced_and_gets_less(tmp_path: Path):
    here = Served()
    here.read(2400, every=120)
    with Api(tmp_path, stores=here.stores, now=here.now, settings=here.settings).client() as client:
        card = client.send(calls.report(here.id))
    line = next(one for one in card.lines if (one.role, one.resource) == ("chief", "memory"))
    assert line.grade is Grade.WASTEFUL
    assert line.unused_cost_a_day is not None
    freed = (line.reserved - line.advised) / GIB
    assert freed > 170
    assert line.unused_cost_a_day == pytest.approx(freed * 0.01 * 24), "there is one chief"
    assert card.headline == (
        "Reserve less: 10.3 GiB of memory instead of 185 GiB for each chief, which frees €41.9 a "
        "day."
    )
    assert "for each chief" in card.hindsight
    again = wire.job_document(card.document)
    assert line.advised <= dict(again.roles)["chief"].resources.memory_bytes < 11 * GIB

    here.read(60, every=5)
    (plan,) = here.plans
    assert plan.state is PlanState.PROPOSED
    less = plan.target.of("chief").memory_bytes
    assert 10 * GIB < less < 30 * GIB
    with here.transaction() as (tx, _):
        given = {"settings": here.settings, "now": here.now}
        lifecycle.approve(tx, plan, by="ada", version=None, **given)
    here.read(120, every=5)
    assert here.plans[0].outcome.verdict is Verdict.KEPT
    assert dict(here.wish().roles)["chief"].resources == plan.target.of("chief")
