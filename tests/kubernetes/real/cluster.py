"""A cluster that is elsewhere, held as tests hold the emulator."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from scaler.kubernetes.kinds.upgrade import upgrade
from scaler.kubernetes.runtime.cluster import Cluster, connect
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.server import Server, definitions_in, kubeconfig, serving
from tests.kubernetes.apiserver.wire.faults import Faults
from tests.kubernetes.apiserver.wire.http import Traffic
from tests.kubernetes.apiserver.wire.listening import Listening
from tests.kubernetes.clusters import client, namespace, real_kubeconfig, upstream_of
from tests.kubernetes.eventually import eventually
from tests.kubernetes.real.outside import Outside, path
from tests.kubernetes.real.passing import Passing, Upstream

_MERGE = {"Content-Type": "application/merge-patch+json"}
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_NAMESPACES = ("", "namespaces")
_RBAC = "rbac.authorization.k8s.io"
#: What an installation makes outside its namespace, under names that begin with it.
_OUTSIDE = ((_RBAC, "clusterrolebindings"), (_RBAC, "clusterroles"))
#: How long somebody who makes service accounts may take for the first one.
_PROBE_SECONDS = 5.0
#: What tests leave in namespaces that nobody empties.
_LEFT = (
    ("", "pods"),
    ("elastic.iml.github.io", "elasticjobs"),
    ("elastic.iml.github.io", "scaleplans"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "resourcequotas"),
    ("", "limitranges"),
    ("coordination.k8s.io", "leases"),
    ("policy", "poddisruptionbudgets"),
)


class RealCluster(Listening):
    """Passes everything on to the API server of a kubeconfig, as its user."""

    def __init__(self, directory: Path, real: Path, *, collects: bool) -> None:
        super().__init__("passing")
        self._directory = directory
        self._http = client(real, "brain-tests")
        #: Somebody collects garbage, and namespaces go.
        self.collects = collects
        self.faults = Faults()
        self._passing = Passing(Upstream(*upstream_of(real)), self.faults)
        self._passing.made = self._remember
        self.hands = Outside(real, controlled=self.collects)
        self.hands.made = self._remember
        self._namespaces: list[str] = []
        #: Those that were made through it, gone ones included.
        self._made: set[str] = set()
        self._installed: list[str] = []
        self.start()

    def application(self) -> web.Application:
        """Return what passes on."""
        return self._passing.application()

    def end_watches(self) -> None:
        """End every watch cleanly; on the own thread."""
        self._passing.end_watches()

    def expire(self) -> None:
        """End every watch as if its past were forgotten."""
        self.call(lambda: self._passing.end_watches(expire=True))

    @property
    def traffic(self) -> Traffic:
        """Return what was asked so far."""
        return self._passing.traffic

    @property
    def kubeconfig(self) -> Path:
        """Return a kubeconfig of the user that the real one names."""
        return self.kubeconfig_for("")

    def kubeconfig_for(self, user: str, namespace: str = "default") -> Path:
        """Return the kubeconfig of somebody whom the real one's user impersonates."""
        token = f"token-of-{user}" if user else ""
        if token:
            self._passing.tokens[token] = user
        return kubeconfig(self._directory, self.url, user or "admin", token, namespace)

    def install(self, *files: Path) -> None:
        """Serve the CustomResourceDefinitions in YAML files until this is closed."""
        for made in definitions_in(*files):
            name = made["metadata"]["name"]
            if self._http.post(path(_DEFINITIONS), json=made).status_code != 409:
                self._installed.append(name)
            spec = made["spec"]
            served = next(version["name"] for version in spec["versions"] if version["served"])
            where = f"/apis/{spec['group']}/{served}/{spec['names']['plural']}"
            eventually(lambda where=where: self._http.get(where).is_success)

    def objects(self, plural: str, group: str = "", namespace: str = "") -> list[Json]:
        """List a resource."""
        answer = self._http.get(path((group, plural), (namespace, "")))
        assert answer.is_success, answer.text
        found: list[Json] = answer.json()["items"]
        return found

    def patch_status(
        self, plural: str, namespace: str, name: str, status: Json, manager: str, group: str = ""
    ) -> None:
        """Merge into an object's status, as a controller of that name does."""
        where = path((group, plural), (namespace, name), "status")
        by = {"fieldManager": manager}
        answer = self._http.patch(where, params=by, headers=_MERGE, json={"status": status})
        assert answer.is_success, answer.text

    def discard(self, namespace: str) -> None:
        """Delete a namespace and what is in it; nobody waits for it."""
        if namespace in self._namespaces:
            self._namespaces.remove(namespace)
        everywhere = {"gracePeriodSeconds": 0}
        for resource in _LEFT:
            # No kubelet confirms that a pod is gone, and where nobody collects, nothing goes.
            where = path(resource, (namespace, ""))
            self._http.request("DELETE", where, json=everywhere)
        self._http.delete(path(_NAMESPACES, ("", namespace)))
        if not self.collects:
            told = {"metadata": {"name": namespace}, "spec": {"finalizers": []}}
            self._http.put(path(_NAMESPACES, ("", namespace), "finalize"), json=told)

    def close(self) -> None:
        """Leave the cluster as it was, but for the kinds that we ship."""
        for name in list(self._namespaces):
            self.discard(name)
        # The next test may want the same names.
        eventually(lambda: not self._made & self._names(_NAMESPACES))
        for name in self._installed:
            self._http.delete(path(_DEFINITIONS, ("", name)))
        for resource in _OUTSIDE if self._made else ():
            self._take_back(resource)
        self.hands.close()
        self._http.close()
        super().close()

    def _names(self, resource: tuple[str, str]) -> set[str]:
        return {obj["metadata"]["name"] for obj in self.objects(resource[1], resource[0])}

    def _take_back(self, resource: tuple[str, str]) -> None:
        """Delete what was made for a namespace of these tests."""
        for obj in self.objects(resource[1], resource[0]):
            name = obj["metadata"]["name"]
            if any(name.startswith(f"{made}-") for made in self._made):
                self._http.delete(path(resource, ("", name)))

    def _remember(self, name: str) -> None:
        if name:
            self._namespaces.append(name)
            self._made.add(name)


@cache
def controlled(real: Path) -> bool:
    """Return whether controllers run: a new namespace gets a service account where they do."""
    probe = namespace("probe")
    with client(real, "brain-tests") as http:
        made = http.post(path(_NAMESPACES), json={"metadata": {"name": probe}})
        assert made.is_success, made.text
        try:
            return _gets_account(http, probe)
        finally:
            http.delete(path(_NAMESPACES, ("", probe)))


def _gets_account(http: httpx2.Client, probe: str) -> bool:
    until = time.monotonic() + _PROBE_SECONDS
    while time.monotonic() < until:
        if http.get(path(("", "serviceaccounts"), (probe, "default"))).is_success:
            return True
        time.sleep(0.1)
    return False


@contextlib.contextmanager
def ground(
    directory: Path, *, definitions: Sequence[Path] | None = None, **more: Any
) -> Iterator["Ground"]:
    """Where a test runs: the cluster that ``BRAIN_TEST_KUBECONFIG`` names, else an emulator.

    Arguments are those of ``serving``. Our kinds come to a real cluster as by ``brain migrate
    --crds`` and stay there; kinds of ``definitions`` go again. ``definitions=()`` wants a server
    that knows no kinds of ours, which only an emulator is for sure: the test is skipped.
    """
    real = real_kubeconfig()
    if real is None:
        with serving(directory, definitions=definitions, **more) as server:
            yield server
        return
    if definitions is not None and not definitions:
        pytest.skip("takes a cluster without our kinds, and they are not taken from a real one")
    cluster = RealCluster(directory, real, collects=controlled(real))
    try:
        if definitions is None:
            door = Cluster(connect(kubeconfig=str(real)))
            upgrade(door)
            door.close()
        else:
            cluster.install(*definitions)
        yield cluster
    finally:
        cluster.close()


#: What tests run on.
Ground = Server | RealCluster
