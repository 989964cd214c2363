"""Pods of one node whose CPU quotas stop them: each tells of itself alone."""

from dataclasses import replace

import pytest

from brain.estimates.usage import Used, folded
from brain.lifecycle.amounts import use_in
from brain.types.resources import Resources
from brain.types.telemetry import HostSample, ReplicaReading
from brain.types.world import World
from tests import builders

#: Share of the periods in which the quota stops each pod; one of two servers is stopped often.
SHARES = {0: 0.0, 1: 0.6, 2: 0.0}
ROLES = {0: "worker", 1: "ps", 2: "ps"}
HALF = Resources(cpu_millis=500)


def pods() -> list[HostSample]:
    """Readings of each pod for a minute; none uses nearly all of its quota."""
    return [
        builders.host(
            3 * second + replica,
            measured_at=builders.at(second),
            cpu_capacity_millis=500,
            job_cpu_millis=250,
            throttled_share=share,
            replica_readings=(ReplicaReading(replica=replica, cpu_millis=250, memory_bytes=10**9),),
        )
        for second in range(0, 60, 5)
        for replica, share in SHARES.items()
    ]


def a_world() -> World:
    made = builders.world(replicas=3, stepping_at=builders.NOW)
    members = tuple(replace(one, role=ROLES[one.replica]) for one in made.members)
    return replace(made, members=members)


def test_the_server_that_its_quota_stops_is_not_hidden_by_other_pods_of_its_node():
    amounts = {"worker": HALF, "ps": HALF}
    used = folded(Used(), pods(), a_world(), amounts=amounts)
    told = {one.role: (one.throttled, one.mingled) for one in used.roles}
    assert told["ps"] == (pytest.approx(0.6), False)
    assert told["worker"] == (0.0, False)


def test_the_verdict_of_a_role_counts_the_quotas_of_its_own_pods_alone():
    assert use_in(pods(), a_world(), "worker").throttled == 0.0
    assert use_in(pods(), a_world(), "ps").throttled == pytest.approx(0.3)
