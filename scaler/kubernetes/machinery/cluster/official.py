"""The transport over the official client. The one module of ours that imports ``kubernetes``.

Its model classes are not used: bodies go as they are, and answers stay bytes until ``msgspec``
decodes them.
"""

from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from brain.errors import BadInput
from scaler.kubernetes.machinery.cluster.errors import Unreachable
from scaler.kubernetes.machinery.cluster.transport import Answer, Request

_USER_AGENT = "brain-scaler"
#: Largest piece of a stream that is waited for.
_PIECE_BYTES = 1 << 16
_CONNECT_SECONDS = 5.0
#: What no answer looks like: the client's own for TLS, urllib3's and the standard library's.
_NO_ANSWER = (ApiException, HTTPError, HTTPException, OSError)


def configuration(kubeconfig: str | None, context: str | None) -> Any:
    """The client's configuration by a file, by ``KUBECONFIG``, or by a pod's service account."""
    found = client.Configuration()
    try:
        if kubeconfig is None and _in_cluster():
            config.load_incluster_config(client_configuration=found)
        else:
            config.load_kube_config(kubeconfig, context, client_configuration=found)
    except (config.ConfigException, OSError) as why:
        raise BadInput(
            f"kubeconfig {kubeconfig or 'KUBECONFIG'}: {why}; name a file with --kubeconfig, "
            "or run in a pod with a service account",
            field="kubeconfig",
        ) from why
    return found


def _in_cluster() -> bool:
    return Path("/var/run/secrets/kubernetes.io/serviceaccount/token").exists()


class OfficialTransport:
    """Requests over a pool of connections of the official client."""

    def __init__(self, configuration: Any, *, connections: int) -> None:
        # Retrying is decided where it is known what may be sent twice.
        configuration.retries = False
        configuration.connection_pool_maxsize = connections
        configuration.keep_alive = True
        self._client = client.ApiClient(configuration)
        self.host: str = configuration.host

    def send(self, request: Request, *, seconds: float) -> Answer:
        timeout = (min(_CONNECT_SECONDS, seconds), seconds)
        try:
            response = self._response(request, timeout)
            body = response.data
        except _NO_ANSWER as why:
            raise Unreachable(f"{request}: {_words(why)}") from why
        return Answer(code=response.status, body=body, headers=response.headers)

    def stream(
        self, request: Request, *, connect_seconds: float, silence_seconds: float
    ) -> "OfficialStream":
        try:
            response = self._response(request, (connect_seconds, silence_seconds))
        except _NO_ANSWER as why:
            raise Unreachable(f"{request}: {_words(why)}") from why
        return OfficialStream(response, str(request))

    def close(self) -> None:
        self._client.close()

    def _response(self, request: Request, timeout: tuple[float, float]) -> urllib3.HTTPResponse:
        headers = {
            "Accept": "application/json",
            "Content-Type": request.content_type,
            "User-Agent": _USER_AGENT,
        }
        sent = request.method
        self._client.update_params_for_auth(
            headers, [], ["BearerToken"], request.path, sent, request.body
        )
        answer = self._client.call_api(
            sent,
            self.host + request.url,
            header_params=headers,
            body=request.body,
            _request_timeout=timeout,
        )
        response: urllib3.HTTPResponse = answer.response
        return response


class OfficialStream:
    """An answer of the official client that comes in pieces."""

    def __init__(self, response: urllib3.HTTPResponse, asked: str) -> None:
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
            # The last two: urllib3 finds its connection taken away by our own ``close``.
            if not self._closed:
                raise Unreachable(f"{self._asked} was cut: {_words(why)}") from why
        finally:
            self._response.close()

    def close(self) -> None:
        self._closed = True
        try:
            self._response.shutdown()
        except (RuntimeError, ValueError, OSError):
            # Nothing to wake: it ended by itself.
            return


def _words(why: Exception) -> str:
    return f"{type(why).__name__}: {why}".splitlines()[0]
