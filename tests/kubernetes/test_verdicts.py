"""A real kube-scheduler on a thousand clusters; beside it the emulator's, and our gate."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import pytest

from scaler.kubernetes.dependents.gangs import PATIENCE, Gangs
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods import gang
from scaler.kubernetes.pods.fitting import infeasible
from scaler.kubernetes.pods.placement import placed as chosen
from scaler.kubernetes.runtime.cluster import NODE, Cluster, connect
from scaler.kubernetes.runtime.store import Store
from tests.kubernetes import jobs
from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.kubelet import node
from tests.kubernetes.predicates import Filters, occupied
from tests.kubernetes.scheduling import Scheduler, placed
from tests.kubernetes.verdicts.golden import Json, Verdicts, admission, capacity, load

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@cache
def recorded() -> list[Verdicts]:
    _, verdicts = load()
    return verdicts


def let_in(verdicts: Verdicts) -> gang.Admission:
    return admission(verdicts.nodes, verdicts.others, verdicts.gang([gang.GATE]))


def test_a_thousand_clusters_were_recorded_and_gangs_came_whole_in_part_and_not_at_all():
    source, verdicts = load()
    whole = sum(each.together == each.size for each in verdicts)
    part = sum(0 < each.together < each.size for each in verdicts)

    assert source.kubernetes.startswith("v1.")
    assert len(verdicts) == source.clusters == 1000
    assert min(whole, part, 1000 - whole - part) > 200


def test_the_emulators_scheduler_judges_every_node_as_the_real_one():
    for each in recorded():
        places = occupied(each.nodes, each.others)
        filters = Filters(each.pod, places)

        assert [p.name for p in places if not filters.hindrances(p)] == each.takes, each.number


def outcomes(verdicts: Verdicts, near: Mapping[str, str]) -> set[int]:
    """How many of a gang the emulator's scheduler places, whichever node it gives the first."""
    (_, first), *others = keyed = [(("", p["metadata"]["name"]), p) for p in verdicts.gang()]
    found = set[int]()
    for number, one in enumerate(verdicts.nodes):
        places = occupied(verdicts.nodes, verdicts.others)
        filters, place = Filters(first, places), places[number]
        if not filters.hindrances(place) and near.items() <= one["metadata"]["labels"].items():
            place.take(filters.wanted)
            place.host(first)
            found.add(1 + len(placed(others, places).bound))
    return found or {len(placed(keyed, occupied(verdicts.nodes, verdicts.others)).bound)}


def test_the_emulators_scheduler_places_as_many_of_a_gang_as_the_real_one():
    for each in recorded():
        assert each.together in outcomes(each, {}), each.number


def test_the_gate_judges_every_node_as_the_real_scheduler():
    for each in recorded():
        room = capacity(each.nodes, each.others, [each.pod])
        alone = [replace(room, free={name: left}) for name, left in room.free.items()]

        assert [n for one in alone for n in chosen([each.pod], one).nodes] == each.takes, (
            each.number
        )


def test_the_gate_lets_in_the_gangs_that_the_real_scheduler_places_whole_and_no_other():
    for each in recorded():
        found = let_in(each)
        bound = each.together
        if found.near:
            assert each.opened is not None, f"{each.number}: the gate is another; record again"
            assert found.near == each.opened.near, f"{each.number}: record again"
            bound = each.opened.bound

        assert len(found.pods) == (each.size if bound == each.size else 0), each.number


def test_no_first_choice_of_the_scheduler_splits_a_gang_that_was_let_in():
    for each in recorded():
        found = let_in(each)
        if found.pods:
            assert outcomes(each, found.near) == {each.size}, each.number


def test_no_gang_is_said_never_to_fit_that_the_real_scheduler_placed():
    said = [(each, infeasible([each.pod] * each.size, each.nodes)) for each in recorded()]

    assert not [each.number for each, why in said if why and each.together == each.size]
    assert sum(why is not None for _, why in said) > 200


class Upkeep:
    """What a gang needs of it."""

    def patch(self, pod: Json, patch: Json) -> None: ...


@cache
def job_of(size: int) -> ElasticJob:
    obj = jobs.job("torchrun", "t.py", replicas=size, minReplicas=size, maxReplicas=size)
    obj["metadata"] |= {"uid": "u", "generation": 1}
    return read_elastic_job(obj)


def with_nodes(pods: Sequence[Json], bound: int) -> list[Json]:
    """Pods of which the scheduler bound so many at noon."""
    told = {"type": "PodScheduled", "lastTransitionTime": NOW.strftime("%Y-%m-%dT%H:%M:%SZ")}
    has = {**told, "status": "True"}
    has_not = {**told, "status": "False", "reason": "Unschedulable"}
    return [
        {**pod, "spec": {**pod["spec"], "nodeName": "n0"}, "status": {"conditions": [has]}}
        if number < bound
        else {**pod, "status": {"conditions": [has_not]}}
        for number, pod in enumerate(pods)
    ]


def test_in_none_of_the_clusters_a_part_of_a_gang_holds_nodes_longer_than_its_patience():
    for each in recorded():
        # As if the gate had let in every gang.
        job, mine, ended = job_of(each.size), with_nodes(each.gang(), each.together), list[str]()
        gangs, held = Gangs(cast(Any, Upkeep()), Store(), Store()), list[int]()
        for after in (timedelta(), PATIENCE - timedelta(seconds=1), PATIENCE):
            end = partial(gone, ended)
            gangs.tend(job, job_document(job), mine, end, NOW + after)
            held.append(sum(pod["metadata"]["name"] not in ended for pod in gang.holding(mine)))

        lets_go = 0 < each.together < each.size
        assert held == [each.together, each.together, 0 if lets_go else each.together], each.number


def gone(ended: list[str], pod: Mapping[str, Any]) -> None:
    ended.append(pod["metadata"]["name"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


def command(server: Server, out: Path, clusters: int) -> subprocess.CompletedProcess[str]:
    """Record as a person does."""
    words = ["--kubeconfig", str(server.kubeconfig), "--clusters", str(clusters), "--out", str(out)]
    program = [sys.executable, "-m", "tests.kubernetes.verdicts", *words]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_the_recorder_writes_down_what_the_scheduler_of_its_cluster_does(
    server: Server, tmp_path: Path
):
    scheduler, out = Scheduler(server), tmp_path / "verdicts.xz"
    done = command(server, out, 6)
    scheduler.close()

    assert done.returncode == 0, done.stderr
    assert [judged(each) for each in load(out)[1]] == [judged(each) for each in recorded()[:6]]
    assert not server.objects("nodes")


def judged(verdicts: Verdicts) -> tuple[object, ...]:
    return verdicts.number, verdicts.takes, verdicts.together, verdicts.opened


def test_the_recorder_takes_no_cluster_that_has_nodes(server: Server, tmp_path: Path):
    cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
    cluster.create(NODE, {"apiVersion": "v1", "kind": "Node", **node("theirs")})
    done = command(server, tmp_path / "verdicts.xz", 1)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the cluster has nodes, theirs for one" in done.stderr
