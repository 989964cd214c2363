"""A small HTTP client for the Kubernetes API server, which raises the errors of ``brain.errors``.

In a pod, the client needs only the service account's files. To read a kubeconfig, it imports the
official client, which supports all authentication methods.
"""

import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from brain.errors import BadInput, NotAllowed, NotFound, NotSignedIn, Overloaded, Unavailable

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Most objects of one page; one answer with all pods of a large cluster has hundreds of MB.
PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The API server's URL and the credentials for it."""

    url: str
    #: Returns the present token; called for each request, because tokens are rotated.
    token: Callable[[], str]
    tls: ssl.SSLContext | bool = True


def in_cluster(account: Path = _ACCOUNT, environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access of the pod's service account.

    Raises:
        Unavailable: this process runs outside a pod, or the account's files are not mounted.
    """
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not (account / "token").exists():
        raise Unavailable(
            "this process is not in a pod with a service account; give --kubeconfig, or set "
            "automountServiceAccountToken: true on the pod"
        )
    bracketed = f"[{host}]" if ":" in host else host
    return Access(
        url=f"https://{bracketed}:{port or 443}",
        token=lambda: (account / "token").read_text().strip(),
        tls=ssl.create_default_context(cafile=str(account / "ca.crt")),
    )


def by_kubeconfig(path: str | None, context: str | None) -> Access:
    """Return the access that a kubeconfig describes.

    If ``path`` is None, the file is ``$KUBECONFIG``, else ``~/.kube/config``.

    Raises:
        Unavailable: the official client is not installed.
        BadInput: there is no such file or context, or the file cannot be used.
    """
    try:
        from kubernetes import client, config
    except ImportError as missing:
        raise Unavailable(
            "a kubeconfig needs the official client: pip install 'elastic-brain[kubernetes]'"
        ) from missing
    chosen = path or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    made = client.Configuration()
    try:
        config.load_kube_config(chosen, context=context, client_configuration=made)
    except (config.ConfigException, OSError) as bad:
        raise BadInput(
            f"kubeconfig {chosen}: {bad}; name another with --kubeconfig", field="kubeconfig"
        ) from bad
    return Access(url=made.host, token=lambda: _bearer(made), tls=_tls(made))


def _bearer(made: Any) -> str:
    said = made.get_api_key_with_prefix("authorization") or made.get_api_key_with_prefix(
        "BearerToken"
    )
    return (said or "").removeprefix("Bearer ").strip()


def _tls(made: Any) -> ssl.SSLContext | bool:
    if not made.host.startswith("https"):
        return True
    context = ssl.create_default_context(cafile=made.ssl_ca_cert)
    if not made.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if made.cert_file:
        context.load_cert_chain(made.cert_file, made.key_file)
    return context


class Door:
    """A client of an API server. Tests pass a ``transport`` that needs no network."""

    def __init__(self, access: Access, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._token = access.token
        self._http = httpx2.AsyncClient(
            base_url=access.url,
            verify=access.tls,
            transport=transport,
            timeout=httpx2.Timeout(30.0, connect=5.0),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """Send a GET request; return the JSON object of the answer.

        Raises:
            NotFound, NotSignedIn, NotAllowed, Overloaded: the server refused the request with the
                corresponding status.
            Unavailable: the server cannot be reached, or fails.
        """
        return await self._send("GET", path, query, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request (an access review); return the answer's object.

        Raises the same errors as ``get``.
        """
        return await self._send("POST", path, {}, body)

    async def items(self, path: str) -> list[dict[str, Any]]:
        """Return all objects of a list, which is read page by page; raise the same errors as
        ``get``.
        """
        found: list[dict[str, Any]] = []
        # Version 0: what the API server has in memory is fresh enough, and spares its database.
        query = {"limit": str(PAGE), "resourceVersion": "0"}
        while True:
            page = await self.get(path, **query)
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return found
            query = {"limit": str(PAGE), "continue": token}

    async def watch(self, path: str, **query: str) -> AsyncIterator[dict[str, Any]]:
        """Yield watch events until the server ends the watch; raise the same errors as ``get``."""
        asked = {"watch": "true", **query}
        silence = httpx2.Timeout(30.0, read=float(query.get("timeoutSeconds", "240")) + 30.0)
        request = self._http.build_request(
            "GET", path, params=asked, headers=self._headers(), timeout=silence
        )
        try:
            answer = await self._http.send(request, stream=True)
            try:
                if answer.status_code >= 400:
                    await answer.aread()
                    raise _error(path, answer)
                async for line in answer.aiter_lines():
                    if line:
                        yield _event(path, line)
            finally:
                await answer.aclose()
        except httpx2.HTTPError as silent:
            raise Unavailable(f"{path}: {silent or type(silent).__name__}") from silent

    def _headers(self) -> dict[str, str]:
        token = self._token()
        return {"Accept": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )

    async def _send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        try:
            answer = await self._http.request(
                method, path, params=dict(query), headers=self._headers(), json=body
            )
        except httpx2.HTTPError as silent:
            raise Unavailable(f"{path}: {silent or type(silent).__name__}") from silent
        if answer.status_code >= 400:
            raise _error(path, answer)
        try:
            found = answer.json()
        except ValueError as bad:
            raise Unavailable(f"{path}: the answer is not JSON") from bad
        return found if isinstance(found, dict) else {}


def _event(path: str, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as bad:
        raise Unavailable(f"{path}: the connection ended in the middle of an event") from bad
    return found if isinstance(found, dict) else {}


def _error(path: str, answer: httpx2.Response) -> Exception:
    try:
        said = str(answer.json().get("message", ""))
    except (ValueError, AttributeError):
        said = answer.text[:200].strip()
    text = f"{path}: HTTP {answer.status_code}: {said}"
    match answer.status_code:
        case 401:
            return NotSignedIn(text)
        case 403:
            return NotAllowed(text)
        case 404:
            return NotFound(text)
        case 429:
            after = answer.headers.get("Retry-After", "1")
            return Overloaded(text, retry_after_seconds=float(after) if after.isdigit() else 1.0)
        case _:
            return Unavailable(text)
