"""The transport through the official client; only this module imports ``kubernetes``.

The official client provides configuration, sign-in and connections; ``msgspec`` encodes bodies and
decodes answers.
"""

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from brain.errors import BadInput
from scaler.kubernetes.runtime.cluster.errors import Unreachable, Untrusted
from scaler.kubernetes.runtime.cluster.transport import TransportAnswer, TransportRequest

_USER_AGENT = "brain-scaler"
#: Largest piece of a stream, in bytes.
_PIECE_BYTES = 1 << 16
_CONNECT_SECONDS = 5.0
#: Each request is sent once: ``client`` repeats requests.
_ONCE = urllib3.Retry(False)
#: Form in which a model names the type of a list.
_LISTED = re.compile(r"list\[(\w+)\]", re.IGNORECASE)
#: A text that no answer has.
_NO_ANSWER = (HTTPError, HTTPException, OSError)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be encoded as JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def configuration(kubeconfig: str | None, context: str | None) -> Any:
    """Build the client's configuration from a file, ``KUBECONFIG``, or a pod's service account."""
    found = client.Configuration()
    try:
        if kubeconfig is None and _in_cluster():
            config.load_incluster_config(client_configuration=found)
        else:
            config.load_kube_config(kubeconfig, context, client_configuration=found)
    except (config.ConfigException, OSError) as why:
        raise BadInput(
            f"kubeconfig {kubeconfig or 'KUBECONFIG'}: {why}; name another file with "
            "--kubeconfig, or run in a pod with a service account",
            field="kubeconfig",
        ) from why
    return found


def unknown_fields(value: object, model: str, path: str) -> Iterator[tuple[str, str]]:
    """Return paths of fields that the official client's class ``model`` lacks, each with the most
    similar name that the class has.

    The name is empty if none is similar: then the field may be newer than this client.
    """
    found = getattr(client.models, model, None)
    if found is None or not isinstance(value, Mapping):
        return
    types = {found.attribute_map[name]: type for name, type in found.openapi_types.items()}
    for name, inner in value.items():
        where = f"{path}.{name}"
        if name not in types:
            yield where, next(iter(get_close_matches(name, types, n=1)), "")
        elif listed := _LISTED.fullmatch(types[name]):
            for index, each in enumerate(inner if isinstance(inner, list) else ()):
                yield from unknown_fields(each, listed[1], f"{where}.{index}")
        else:
            yield from unknown_fields(inner, types[name], where)


def _in_cluster() -> bool:
    return Path("/var/run/secrets/kubernetes.io/serviceaccount/token").exists()


class OfficialTransport:
    """Requests over a pool of connections of the official client.

    Requests use the pool directly. The client's layers above the pool take a third of a request's
    CPU time to serialise and deserialise models, which this module does not use.
    """

    def __init__(self, configuration: Any, *, connections: int) -> None:
        # Retries are decided in ``client``, which knows the requests that may be sent twice.
        configuration.retries = False
        configuration.connection_pool_maxsize = connections
        configuration.keep_alive = True
        self._client = client.ApiClient(configuration)
        self.host: str = configuration.host
        manager: urllib3.PoolManager = self._client.rest_client.pool_manager
        self._open: Callable[..., urllib3.BaseHTTPResponse]
        if isinstance(manager, urllib3.ProxyManager):
            # A proxy needs the whole address.
            self._open, self._before = partial(manager.urlopen, redirect=False), self.host
        else:
            pool = manager.connection_from_url(self.host)
            self._open, self._before = pool.urlopen, urlsplit(self.host).path.rstrip("/")

    def send(self, request: TransportRequest, *, seconds: float) -> TransportAnswer:
        connecting = min(_CONNECT_SECONDS, seconds)
        response = self._response(request, connecting, seconds, whole=True)
        return TransportAnswer(code=response.status, body=response.data, headers=response.headers)

    def stream(
        self, request: TransportRequest, *, connect_seconds: float, silence_seconds: float
    ) -> "OfficialStream":
        response = self._response(request, connect_seconds, silence_seconds, whole=False)
        return OfficialStream(response, str(request))

    def close(self) -> None:
        self._client.close()

    def _response(
        self, request: TransportRequest, connect_seconds: float, read_seconds: float, *, whole: bool
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": _USER_AGENT}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        # Tokens of service accounts change while a program runs; the client reloads them.
        self._client.update_params_for_auth(
            headers, [], ["BearerToken"], request.path, request.method, request.body
        )
        try:
            return self._open(
                request.method,
                self._before + request.url,
                body=None if request.body is None else _ENCODER.encode(request.body),
                headers=headers,
                timeout=urllib3.Timeout(connect=connect_seconds, read=read_seconds),
                preload_content=whole,
                retries=_ONCE,
            )
        except _NO_ANSWER as why:
            error = Untrusted if _untrusted(why) else Unreachable
            raise error(f"{request}: {_words(why)}") from why


class OfficialStream:
    """An answer of the official client in pieces."""

    def __init__(self, response: urllib3.BaseHTTPResponse, asked: str) -> None:
        self._response, self._asked = response, asked
        self._closed = False
        self.code: int = response.status
        self.headers: Mapping[str, str] = response.headers

    def read(self) -> bytes:
        try:
            return self._response.data
        except _NO_ANSWER as why:
            raise Unreachable(f"{self._asked}: {_words(why)}") from why
        finally:
            self._response.release_conn()

    def chunks(self) -> Iterator[bytes]:
        try:
            yield from self._response.stream(_PIECE_BYTES)
        except (*_NO_ANSWER, ValueError, AttributeError) as why:
            # The last two: urllib3 raises them when our own ``close`` takes its connection away.
            if not self._closed:
                raise Unreachable(
                    f"the answer to {self._asked} ended too early: {_words(why)}"
                ) from why

    def close(self) -> None:
        self._closed = True
        self._response.close()

    def interrupt(self) -> None:
        self._closed = True
        try:
            self._response.shutdown()
        except (RuntimeError, ValueError, OSError):
            # No thread to wake: the stream ended by itself.
            return


def _untrusted(why: BaseException) -> bool:
    """True if TLS failed because one side does not accept the other's certificate."""
    cause = why.__cause__ or why.__context__
    if isinstance(why, ssl.SSLError) and "CERTIFICATE" in (why.reason or ""):
        return True
    return cause is not None and _untrusted(cause)


def _words(why: Exception) -> str:
    return f"{type(why).__name__}: {why}".splitlines()[0]
