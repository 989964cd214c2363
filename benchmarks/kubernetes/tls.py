"""The emulated API server with TLS, as every real API server has it."""

import base64
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.kubernetes.apiserver import Server


class TlsServer(Server):
    """A server whose certificate is the only certificate authority in its kubeconfig."""

    def __init__(self, directory: Path, **more: Any) -> None:
        super().__init__(directory, **more)
        self._certificate = directory / "certificate.pem"
        _certify(self._certificate)
        self.ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ssl_context.load_cert_chain(self._certificate)

    @property
    def url(self) -> str:
        """Return the server's URL."""
        return f"https://127.0.0.1:{self._port}"

    def kubeconfig_for(self, user: str, namespace: str = "default") -> Path:
        """Return a kubeconfig that trusts this server."""
        file = super().kubeconfig_for(user, namespace)
        config = yaml.safe_load(file.read_text())
        authority = base64.b64encode(self._certificate.read_bytes()).decode()
        config["clusters"][0]["cluster"]["certificate-authority-data"] = authority
        file.write_text(yaml.safe_dump(config))
        return file


def _certify(file: Path) -> None:
    """Write a key and its certificate, valid for a day, like those that kubeadm creates."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    authority = x509.BasicConstraints(ca=True, path_length=None)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(authority, critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
