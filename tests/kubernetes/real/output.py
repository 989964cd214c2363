"""The port of played nodes, at which a real API server asks for what containers wrote."""

import asyncio
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from tests.certificates import self_signed
from tests.kubernetes.apiserver.wire.http import tail
from tests.kubernetes.apiserver.wire.listening import Listening

#: Namespace, pod and container -> what the container wrote so far.
Output = Callable[[str, str, str], bytes | None]
_LOOK_SECONDS = 0.2


class OutputDoor(Listening):
    """Answers as the kubelets of all nodes; ``ended``: a pod writes no more."""

    def __init__(self, output: Output, ended: Callable[[str, str], bool]) -> None:
        super().__init__("output")
        self._output, self._ended = output, ended
        self.ssl_context = _context()
        self.start()

    @property
    def port(self) -> int:
        """Return where it listens on the loopback."""
        return int(self.url.rpartition(":")[2])

    def application(self) -> web.Application:
        """Return the one route of a kubelet that tests need."""
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._send)
        return application

    def end_watches(self) -> None:
        """Do nothing: a break ends whoever follows."""

    async def _send(self, request: web.Request) -> web.StreamResponse:
        """Send what was written; with ``follow`` as it grows, until the pod has ended."""
        namespace, pod, container = (
            request.match_info[name] for name in ("namespace", "pod", "container")
        )
        text = self._output(namespace, pod, container)
        if text is None:
            return web.Response(status=404, text=f"no output of {container} in {pod}")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        sent = tail(text, request.query.get("tailLines"))
        while True:
            over = await asyncio.to_thread(self._ended, namespace, pod)
            text = self._output(namespace, pod, container) or text
            await response.write(text[sent:])
            sent = len(text)
            if over or request.query.get("follow") != "true":
                await response.write_eof()
                return response
            await asyncio.sleep(_LOOK_SECONDS)


def _context() -> ssl.SSLContext:
    """Return TLS with a certificate of its own; API servers ask for no better one by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(self_signed(Path(directory) / "kubelet.pem", "kubelet"))
    return context
