"""The service on a network: TLS, proxies, addresses and files that others may have, too."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from brain import calls
from brain.service.start import main
from tests.certificates import self_signed
from tests.harness import running as brain_up
from tests.serving import Service, eventually, metric, service, wires


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a self-signed certificate for this machine and its key."""
    return self_signed(tmp_path_factory.mktemp("tls") / "brain.pem", "brain.example")


def cookie_of(running: Service, url: str = "", **headers: str) -> str:
    """The cookie that a browser gets which signs in with a code."""
    with running.client() as admin:
        code = admin.send(calls.sign_in_code("ada")).code
    with httpx2.Client(base_url=url or running.url, verify=False) as browser:
        answer = browser.post("/api/v1/sign-in", json={"code": code}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers["set-cookie"]


def test_a_certificate_makes_it_https_and_the_cookie_secure(
    tmp_path: Path, certificate: Path
) -> None:
    flags = (f"--tls-certificate={certificate}", "--head-seconds=1")
    with service(tmp_path, *flags) as running:
        assert running.url.startswith("https://127.0.0.1:")
        assert "Secure" in cookie_of(running)
        with wires(running, 2) as (silent, plain):
            # Neither ever says a word of TLS; each goes when its time for a head is over.
            plain.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert silent.socket.recv(100) == b""
            eventually(lambda: metric(running, "brain_connections") <= 1)


def test_brain_up_serves_https_and_its_scaler_and_workers_find_it(
    tmp_path: Path, certificate: Path
) -> None:
    with brain_up(tmp_path, f"--tls-certificate={certificate}", "--slots=1") as brain:
        job = brain.submit("counted.py", "--steps=1000000")
        # The worker's collector delivers, and its agent reports.
        brain.until("a throughput", 90, job, lambda detail: detail.job.throughput)
        assert brain.send(calls.job(job)).job.state == "Running"
        with brain.client as client:
            assert [node.ready for node in client.send(calls.nodes()).items] == [True]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--tls-certificate=/nowhere.pem"], "name a readable certificate chain and its key"),
        (["--tls-key=/nowhere.pem"], "tls_key is set without a certificate"),
        (
            ["--trusted-proxies=somewhere"],
            "trusted_proxies 'somewhere' is not an address or network",
        ),
        (
            ["--connections-per-address=0"],
            "connections_per_address 0 would make the service refuse every request",
        ),
        (
            ["--body-budget-bytes=1"],
            "body_budget_bytes 1 would make the service refuse every request",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    assert main([f"--home={tmp_path}", "--port=0", *flags]) == 1
    assert says in capsys.readouterr().err


def test_what_a_proxy_says_of_its_client_is_believed_where_the_proxy_is_trusted(
    tmp_path: Path,
) -> None:
    told = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    with service(tmp_path / "one", "--trusted-proxies=127.0.0.0/8") as trusting:
        assert "Secure" in cookie_of(trusting, **told)
        assert "Secure" not in cookie_of(trusting)
        with trusting.client() as admin:
            entries = [e for e in admin.send(calls.audit()).items if e.action == "sign in"]
        assert [entry.after for entry in entries] == ["from 127.0.0.1", "from 203.0.113.9"]
    with service(tmp_path / "two") as wary:
        assert "Secure" not in cookie_of(wary, **told)


def test_a_trusted_proxy_is_known_on_a_listener_of_both_kinds_of_addresses(tmp_path: Path) -> None:
    told = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    flags = ("--host=::", "--allow-remote-submit", "--connections-per-address=2")
    # On loopback first, which makes the tokens.
    with service(tmp_path):
        pass
    with service(tmp_path, *flags, "--trusted-proxies=127.0.0.0/8") as running:
        port = urlsplit(running.url).port
        assert "Secure" in cookie_of(running, f"http://127.0.0.1:{port}", **told)
        with ExitStack() as kept:
            # More than one address may have; all of them stay.
            opened = [
                kept.enter_context(socket.create_connection(("127.0.0.1", port), 60))
                for _ in range(5)
            ]
            eventually(lambda: metric(running, "brain_connections") >= len(opened))


def test_a_second_service_on_one_sqlite_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with service(tmp_path / "one"):
        link = tmp_path / "link.db"
        link.symlink_to(tmp_path / "one" / "brain.db")
        code = main([f"--home={tmp_path / 'two'}", "--port=0", f"--database-url=sqlite:///{link}"])
    assert code == 1
    assert f"another service already uses database {tmp_path / 'one' / 'brain.db'}" in (
        capsys.readouterr().err
    )


def test_an_address_is_judged_before_it_is_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main([f"--home={tmp_path}", "--host=0.0.0.0", f"--port={port}"]) == 1
    assert "--allow-remote-submit" in capsys.readouterr().err


def test_nobody_can_connect_before_it_is_known_who_may(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as database, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        silent = f"postgresql://brain@127.0.0.1:{database.getsockname()[1]}/brain"
        command = [sys.executable, "-m", "brain.service", f"--home={tmp_path}"]
        command += [f"--port={port}", "--host=0.0.0.0", "--allow-remote-submit"]
        process = subprocess.Popen([*command, f"--database-url={silent}"], stderr=subprocess.PIPE)
        try:
            database.settimeout(100)
            asked, _ = database.accept()
            # It has bound its port, asks its database who may come in, and is not answered.
            with asked, pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 10).close()
        finally:
            process.kill()
            process.communicate()


def test_a_load_balancer_without_a_host_header_gets_the_health(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        bearer = f"Authorization: Bearer {running.token('admin')}\r\n"
        asked = [
            ("GET /livez HTTP/1.0\r\n\r\n", 200),
            ("HEAD /livez HTTP/1.0\r\n\r\n", 200),
            (f"GET /readyz HTTP/1.0\r\n{bearer}\r\n", 200),
            ("GET /readyz HTTP/1.0\r\n\r\n", 401),
            ("GET /livez HTTP/1.0\r\nHost: evil.example\r\n\r\n", 403),
            ("GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n", 403),
        ]
        with wires(running, len(asked)) as balancers:
            for (request, status), balancer in zip(asked, balancers, strict=True):
                balancer.send(request.encode())
                assert balancer.socket.recv(100).startswith(b"HTTP/1.1 %d " % status), request
