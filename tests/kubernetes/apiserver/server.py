"""The server as tests hold it: started, asked, broken, restarted."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from aiohttp import web

from tests.kubernetes.apiserver.core.access import Access
from tests.kubernetes.apiserver.core.api import Api, Ask
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.objects.patches import strategic
from tests.kubernetes.apiserver.wire.faults import Faults
from tests.kubernetes.apiserver.wire.http import Http, Traffic

T = TypeVar("T")

#: The kinds that this repository ships.
SHIPPED = Path(__file__).parents[3] / "deploy" / "crds"
_WAIT_SECONDS = 60.0
#: Turns of the loop until nothing follows from what was due.
_ROUNDS = 20


class Server:
    """A running API server. Its state outlives ``stop`` and ``start``."""

    def __init__(
        self, directory: Path, *, bookmark_seconds: float = 10.0, history: int = 20_000
    ) -> None:
        self.api = Api(history=history)
        self.faults = Faults()
        self.access = Access(self.api.store)
        self.http = Http(self.api, self.faults, self.access, bookmark_seconds)
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="apiserver", daemon=True
        )
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._held: socket.socket | None = None
        self._listening: asyncio.Server | None = None
        #: Speaks TLS where one is given before ``start``.
        self.ssl_context: ssl.SSLContext | None = None
        self._thread.start()

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self._port}"

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
        credentials: Json = {}
        if user:
            token = f"token-of-{user}"
            self.http.tokens[token] = user
            credentials = {"token": token}
        name = user or "admin"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "emulator", "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [
                {
                    "name": name,
                    "context": {"cluster": "emulator", "user": name, "namespace": namespace},
                }
            ],
            "current-context": name,
        }
        file = self._directory / f"kubeconfig-{name.replace(':', '-')}-{self._port}.yaml"
        file.write_text(yaml.safe_dump(config))
        return file

    def call(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the server's thread, where ``api`` may be used; returns its result."""
        if threading.current_thread() is self._thread:
            return work()

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_WAIT_SECONDS)

    def soon(self, work: Callable[[], object], seconds: float = 0.0) -> None:
        """Run ``work`` on the server's thread later."""
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, work)

    def install(self, *files: Path) -> None:
        """Serve the CustomResourceDefinitions in YAML files."""
        for file in files:
            for document in yaml.load_all(file.read_bytes(), yaml.CSafeLoader):
                if document and document.get("kind") == "CustomResourceDefinition":
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

    def start(self) -> None:
        """Listen, where it listened before."""
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_WAIT_SECONDS)

    def stop(self) -> None:
        """Refuse connections, and break those there are."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_WAIT_SECONDS)

    def restart(self) -> None:
        """Break everything off and listen again."""
        self.stop()
        self.start()

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Refuse connections while the block runs."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def expire(self) -> None:
        """Forget all history: watches end with 410, and so does watching from before."""
        self.call(lambda: self.http.end_watches(expire=True))

    def drop_watches(self) -> None:
        """End all watches cleanly."""
        self.call(self.http.end_watches)

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_SECONDS)
        self._loop.close()
        if self._held is not None:
            self._held.close()

    async def _start(self) -> None:
        self._runner = web.AppRunner(
            self.http.application(),
            access_log=None,
            shutdown_timeout=0.0,
            handler_cancellation=True,
        )
        await self._runner.setup()
        if self._held is None:
            self._held = _held_port()
            self._port = self._held.getsockname()[1]
        self._listening = await self._loop.create_server(
            self._runner.server,
            "127.0.0.1",
            self._port,
            reuse_address=True,
            reuse_port=True,
            ssl=self.ssl_context,
            # A thousand connections at once are no reason to refuse one.
            backlog=4096,
        )

    async def _stop(self) -> None:
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        listening, self._listening = self._listening, None
        if listening is not None:
            # First accept no more and let what was accepted come up: CPython 3.11 loses a
            # connection whose listener is closed between the two.
            for listener in listening.sockets:
                self._loop.remove_reader(listener.fileno())
            await _rounds()
            listening.close()
        self.http.end_watches()
        _abort_all(self._loop)
        await runner.cleanup()
        _abort_all(self._loop)
        await _rounds()


async def _rounds() -> None:
    """Let everything happen that is due, and what follows from it."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


def _abort_all(loop: asyncio.AbstractEventLoop) -> None:
    """Break every connection: the loop knows those, too, that aiohttp has already forgotten."""
    transports: Mapping[int, asyncio.Transport] = vars(loop)["_transports"]
    for transport in list(transports.values()):
        transport.abort()


def _held_port() -> socket.socket:
    """Return a socket that keeps a free port ours while nobody listens there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held


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
