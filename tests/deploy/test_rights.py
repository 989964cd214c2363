"""What the operator's account may do once the chart's roles are there, and what it may not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy import render
from deploy.gotemplate import Chart
from scaler.kubernetes.kinds.fields import GROUP, VERSION
from scaler.kubernetes.runtime.cluster import (
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    Cluster,
    Forbidden,
    Kind,
    NotFound,
    connect,
)
from tests.kubernetes.apiserver import Server, serving

JOBS = Kind(GROUP, VERSION, "elasticjobs", "ElasticJob")
_RBAC = "rbac.authorization.k8s.io"
ROLES = {
    kind: Kind(_RBAC, "v1", plural, kind, namespaced=not kind.startswith("Cluster"))
    for kind, plural in (
        ("Role", "roles"),
        ("RoleBinding", "rolebindings"),
        ("ClusterRole", "clusterroles"),
        ("ClusterRoleBinding", "clusterrolebindings"),
    )
}
ACCOUNT = "system:serviceaccount:brain:brain-scaler"


@contextmanager
def installed(directory: Path, *namespaces: str) -> Iterator[Server]:
    """A server with the roles of an installation that serves ``namespaces``."""
    with serving(directory) as server:
        admin = Cluster(connect(kubeconfig=str(server.kubeconfig)))
        for name in ("brain", "blue", "red"):
            admin.create(NAMESPACE, {"metadata": {"name": name}})
        for obj in Chart(render.CHART).render({"namespaces": list(namespaces)}):
            if obj["kind"] in ROLES:
                admin.create(ROLES[obj["kind"]], obj)
        admin.close()
        yield server


def may(server: Server, act: Callable[[Cluster], object]) -> bool:
    """Whether the operator's account gets further than to be forbidden."""
    cluster = Cluster(connect(kubeconfig=str(server.kubeconfig_for(ACCOUNT))))
    try:
        act(cluster)
    except NotFound:
        return True
    except Forbidden:
        return False
    finally:
        cluster.close()
    return True


@pytest.fixture(scope="module")
def blue_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with installed(tmp_path_factory.mktemp("blue"), "blue") as server:
        yield server


def test_an_operator_of_one_namespace_sees_and_makes_pods_there_and_nowhere_else(
    blue_only: Server,
) -> None:
    def makes(namespace: str) -> bool:
        pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
        return may(blue_only, lambda c: c.create(POD, pod, namespace=namespace, dry_run=True))

    assert [may(blue_only, lambda c, n=n: c.list(POD, n)) for n in ("blue", "red", "")] == [
        True,
        False,
        False,
    ]
    assert [makes("blue"), makes("red")] == [True, False]


def test_it_reads_a_secret_that_it_can_name_and_never_lists_them(blue_only: Server) -> None:
    assert may(blue_only, lambda c: c.get(SECRET, "blue", "token"))
    assert not may(blue_only, lambda c: c.list(SECRET, "blue"))
    assert not may(blue_only, lambda c: c.get(SECRET, "brain", "brain-tokens"))


def test_it_says_what_became_of_a_job_and_never_changes_what_was_asked(blue_only: Server) -> None:
    status = {"status": {"phase": "Running"}}
    assert may(blue_only, lambda c: c.merge_status(JOBS, "blue", "digits", status))
    assert not may(blue_only, lambda c: c.merge(JOBS, "blue", "digits", {"spec": {}}))


def test_it_sees_nodes_and_touches_none(blue_only: Server) -> None:
    assert may(blue_only, lambda c: c.list(NODE))
    assert not may(blue_only, lambda c: c.merge(NODE, "", "n", {"spec": {"unschedulable": True}}))


def test_cluster_wide_it_serves_every_namespace(tmp_path: Path) -> None:
    with installed(tmp_path) as server:
        assert may(server, lambda c: c.list(POD))
        assert may(server, lambda c: c.list(JOBS))
        assert not may(server, lambda c: c.list(SECRET))
