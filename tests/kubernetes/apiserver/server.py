"""The server as tests hold it: started, asked, broken, restarted."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from tests.kubernetes.apiserver.core.access import Access
from tests.kubernetes.apiserver.core.api import Api, Ask
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.hands import PODS, Inside, key_of
from tests.kubernetes.apiserver.objects.patches import strategic
from tests.kubernetes.apiserver.wire.faults import Faults
from tests.kubernetes.apiserver.wire.http import Http, Traffic
from tests.kubernetes.apiserver.wire.listening import Listening

#: The kinds that this repository ships.
SHIPPED = Path(__file__).parents[3] / "deploy" / "crds"


class Server(Listening):
    """A running API server. Its state outlives ``stop`` and ``start``.

    ``bare``: nothing runs beside it, as under envtest: no garbage is collected, namespaces that
    are deleted stay, none gets a service account.
    """

    #: Somebody collects garbage, and namespaces go.
    collects: bool

    def __init__(
        self,
        directory: Path,
        *,
        bookmark_seconds: float = 10.0,
        history: int = 20_000,
        bare: bool = False,
    ) -> None:
        super().__init__("apiserver")
        self.collects = not bare
        self.api = Api(history=history, bare=bare)
        self.faults = Faults()
        self.access = Access(self.api.store)
        self.http = Http(self.api, self.faults, self.access, bookmark_seconds)
        self._directory = directory
        self.hands = Inside(self)

    def application(self) -> web.Application:
        """Return what answers."""
        return self.http.application()

    def end_watches(self) -> None:
        """End every watch cleanly; on the own thread."""
        self.http.end_watches()

    @property
    def traffic(self) -> Traffic:
        """Return what was asked so far."""
        return self.http.traffic

    @property
    def kubeconfig(self) -> Path:
        """Return the admin's kubeconfig."""
        return self.kubeconfig_for("")

    def kubeconfig_for(self, user: str, namespace: str = "default") -> Path:
        """Return the kubeconfig of ``system:serviceaccount:ns:name``, who may what RBAC says."""
        token = f"token-of-{user}" if user else ""
        if token:
            self.http.tokens[token] = user
        return kubeconfig(self._directory, self.url, user or "admin", token, namespace)

    def install(self, *files: Path) -> None:
        """Serve the CustomResourceDefinitions in YAML files."""
        for document in definitions_in(*files):
            self.call(lambda document=document: self.api.install(document))

    def objects(self, plural: str, group: str = "", namespace: str = "") -> list[Json]:
        """Return what is kept of a resource."""
        return self.call(
            lambda: [one.obj for one in self.api.store.all_of((group, plural), namespace)]
        )

    def patch_status(
        self, plural: str, namespace: str, name: str, status: Json, manager: str, group: str = ""
    ) -> None:
        """Merge into an object's status, as a controller of that name does."""
        self.call(lambda: self._patch_status(plural, namespace, name, status, manager, group))

    def _patch_status(
        self, plural: str, namespace: str, name: str, status: Json, manager: str, group: str
    ) -> None:
        kind = next(k for k in self.api.kinds.all() if (k.group, k.plural) == (group, plural))
        stored = self.api.get(kind, namespace, name)
        patched = strategic(stored.obj, {"status": status}, kind.shape)
        self.api.write(kind, stored, patched, Ask(manager=manager), "status")

    def discard(self, namespace: str) -> None:
        """Delete what would be in the way of other tests: nodes are shared, so pods are."""
        for pod in self.objects("pods", namespace=namespace):
            self.hands.delete(PODS, key_of(pod), grace_seconds=0)

    def expire(self) -> None:
        """Forget all history: watches end with 410, and so does watching from before."""
        self.call(lambda: self.http.end_watches(expire=True))


def kubeconfig(directory: Path, url: str, name: str, token: str, namespace: str) -> Path:
    """Write a kubeconfig of one user at one server; returns where it lies."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "emulator", "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
        "contexts": [
            {
                "name": name,
                "context": {"cluster": "emulator", "user": name, "namespace": namespace},
            }
        ],
        "current-context": name,
    }
    port = url.rpartition(":")[2]
    file = directory / f"kubeconfig-{name.replace(':', '-')}-{port}.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def definitions_in(*files: Path) -> Iterator[Json]:
    """Yield the CustomResourceDefinitions of YAML files."""
    for file in files:
        for document in yaml.load_all(file.read_bytes(), yaml.CSafeLoader):
            if document and document.get("kind") == "CustomResourceDefinition":
                yield document


@contextlib.contextmanager
def serving(
    directory: Path, *, definitions: Sequence[Path] | None = None, **more: Any
) -> Iterator[Server]:
    """Run a server on a free port of the loopback, with the kinds that we ship.

    ``directory`` takes the kubeconfig; ``definitions``: other YAML files of kinds.
    """
    server = Server(directory, **more)
    server.start()
    try:
        server.install(*(sorted(SHIPPED.glob("*.yaml")) if definitions is None else definitions))
        yield server
    finally:
        server.close()
