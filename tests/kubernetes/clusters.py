"""The cluster that ``BRAIN_TEST_KUBECONFIG`` names, where somebody has one."""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import yaml

VARIABLE = "BRAIN_TEST_KUBECONFIG"


def real_kubeconfig() -> Path | None:
    """Return the kubeconfig of a real cluster; None: the emulator is all there is."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def client(kubeconfig: Path, agent: str) -> httpx2.Client:
    """Return plain HTTP to the current context's cluster as its user: token or certificate."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    headers = {"User-Agent": agent}
    if "token" in user:
        headers["Authorization"] = f"Bearer {user['token']}"
    url: str = cluster["server"]
    if not url.startswith("https"):
        return httpx2.Client(base_url=url, headers=headers, timeout=60)
    return httpx2.Client(base_url=url, headers=headers, timeout=60, verify=_trust(cluster, user))


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _trust(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
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
