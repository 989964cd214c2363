"""The cluster that ``BRAIN_TEST_KUBECONFIG`` names, where somebody has one."""

import base64
import os
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

VARIABLE = "BRAIN_TEST_KUBECONFIG"
#: Who places the pods of tests on a cluster that has a scheduler of its own.
SCHEDULER = "brain-tests"
#: Label of the nodes that tests play there, and the taint that keeps others' pods off them.
MARK = "brain-tests"
TAINT = {"key": MARK, "value": "yes", "effect": "NoSchedule"}
_RUN = secrets.token_hex(3)


def real_kubeconfig() -> Path | None:
    """Return the kubeconfig of a real cluster; None: the emulator is all there is."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def namespace(name: str) -> str:
    """Return a namespace's name; on a real cluster one that nobody else has."""
    return name if real_kubeconfig() is None else f"brain-{name}-{_RUN}"


def here(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's spec, which on a real cluster goes to our nodes and by our scheduler."""
    if real_kubeconfig() is None:
        return dict(spec)
    tolerated = {"key": MARK, "operator": "Exists"}
    return {
        **spec,
        "schedulerName": SCHEDULER,
        "nodeSelector": {**(spec.get("nodeSelector") or {}), MARK: "yes"},
        "tolerations": [*(spec.get("tolerations") or ()), tolerated],
    }


def only_emulated(reason: str) -> pytest.MarkDecorator:
    """Skip a test on a real cluster, and say why."""
    return pytest.mark.skipif(real_kubeconfig() is not None, reason=reason)


def client(kubeconfig: Path, agent: str) -> httpx2.Client:
    """Return plain HTTP to the current context's cluster as its user: token or certificate."""
    url, headers, trust = upstream_of(kubeconfig)
    told = {"User-Agent": agent, **headers}
    return httpx2.Client(base_url=url, headers=told, timeout=60, verify=trust or False)


def upstream_of(kubeconfig: Path) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
    """Return where a cluster is, what its user says to be let in, and whom to trust.

    Users who sign in by a program (``exec``) are not known: give one with a token.
    """
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    url: str = cluster["server"]
    return url, headers, _trust(cluster, user) if url.startswith("https") else None


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _trust(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate"), _content(user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(entry: Mapping[str, Any], name: str) -> bytes:
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return Path(entry[name]).read_bytes() if name in entry else b""
