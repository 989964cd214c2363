"""What lists show of nodes."""

from brain import calls
from brain.types.job import JobId
from brain.types.world import ReplicaState
from tests.api.app import Api
from tests.builders import at, replica


def test_nodes_show_what_live_replicas_reserve(api: Api, running: JobId) -> None:
    api.add_node(cpus=4)
    with api.stores.transaction() as tx:
        gone = replica(1, state=ReplicaState.EXITED)
        tx.worlds.put_replicas(running, [replica(0), gone])
    with api.client() as client:
        found = client.send(calls.nodes()).items[0]
    assert (found.reserved.cpu_millis, found.jobs, found.ready) == (1000, ("digits",), True)


def test_a_node_that_a_job_left_as_sick_says_by_whom_why_and_until_when(
    api: Api, running: JobId
) -> None:
    api.add_node()
    sick = replica(0, state=ReplicaState.EXITED, ended_at=at(30), unfit="Xid 79: it fell off")
    with api.stores.transaction() as tx:
        tx.worlds.put_replicas(running, [sick])
    with api.client() as client:
        (left,) = client.send(calls.nodes()).items[0].left
    assert (left.job_name, left.until, left.why) == ("digits", at(3630), "Xid 79: it fell off")


def test_a_silent_node_is_not_ready(api: Api, running: JobId) -> None:
    api.add_node()
    api.pass_time(minutes=2)
    with api.client() as client:
        assert not client.send(calls.nodes()).items[0].ready
