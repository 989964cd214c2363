"""How an operator starts while the API server is away, starts up, or refuses it."""

import logging
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from aiohttp import web

from brain.errors import BadInput
from launcher.workers.processes.process import free_port
from scaler.kubernetes.operator.starting import ServerWait
from scaler.kubernetes.runtime.cluster import ClientLimits, Cluster, Unreachable
from scaler.kubernetes.runtime.cluster.transport import TransportAnswer
from tests.certificates import self_signed
from tests.kubernetes.apiserver.server import kubeconfig
from tests.kubernetes.apiserver.wire.listening import Listening
from tests.kubernetes.clusters import namespace
from tests.kubernetes.operating import until
from tests.kubernetes.real import Ground, ground
from tests.kubernetes.shelf import THING, Shelf, VirtualClock, refused, thing

TEAM = namespace("starting")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path) as running:
        running.hands.create(("", "namespaces"), {"metadata": {"name": TEAM}})
        yield running
        running.discard(TEAM)


@dataclass
class Command:
    """An operator that a user started."""

    process: subprocess.Popen[bytes]
    home: Path
    port: int

    def answer(self, path: str) -> tuple[int, str]:
        """What a probe or Prometheus gets; 0: the port does not answer yet."""
        try:
            found = httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=5)
        except httpx2.HTTPError:
            return 0, ""
        return found.status_code, found.text

    @property
    def log(self) -> str:
        return (self.home / "operator.log").read_text()


@contextmanager
def started(config: Path) -> Iterator[Command]:
    home, port = config.parent / "home", free_port("127.0.0.1")
    home.mkdir()
    words = [
        f"--kubeconfig={config}",
        f"--home={home}",
        f"--namespace={TEAM}",
        f"--own-namespace={TEAM}",
        f"--metrics=127.0.0.1:{port}",
    ]
    with (home / "operator.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "scaler.cli", "--kubernetes", "--brain=none", *words],
            stdout=log,
            stderr=log,
        )
    try:
        yield Command(process, home, port)
    finally:
        process.kill()
        process.wait(60)


class Stranger(Listening):
    """A server with a certificate that no kubeconfig trusts."""

    def __init__(self, directory: Path) -> None:
        super().__init__("stranger")
        self.ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ssl_context.load_cert_chain(self_signed(directory / "stranger.pem", "stranger"))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self._port}"

    def application(self) -> web.Application:
        """Return what nobody gets to see."""
        return web.Application()

    def end_watches(self) -> None:
        """Do nothing: there are none."""


def refuses(config: Path) -> str:
    """What an operator says that ends at once."""
    with started(config) as operator:
        assert operator.process.wait(60) == 1
        return operator.log


def test_an_operator_that_starts_in_an_outage_waits_alive_and_goes_on_after_it(server: Ground):
    server.stop()
    with started(server.kubeconfig) as operator:
        until("it says that it waits", lambda: "refused" in operator.answer("/readyz")[1])
        waits = f"waits for the API server at {server.url}: GET /readyz:"
        code, why = operator.answer("/readyz")
        assert (code, why.startswith(waits)) == (503, True)
        assert operator.answer("/livez") == (200, "ok\n")
        metrics = operator.answer("/metrics")[1]
        assert 'leader_election_master_status{name="brain-scaler"} 0.0' in metrics
        assert 'rest_client_requests_total{code="<error>"' in metrics

        server.start()

        until("it is ready", lambda: operator.answer("/readyz") == (200, "ok\n"))
        until("it leads", lambda: "INFO leads" in operator.log)
        assert "does not answer, and this process waits for it" in operator.log
        assert f"the API server at {server.url} answers after" in operator.log
        assert operator.process.poll() is None


def test_an_operator_that_waits_for_the_api_server_obeys_sigterm(server: Ground):
    with server.outage(), started(server.kubeconfig) as operator:
        until("it waits", lambda: operator.answer("/readyz")[0] == 503)
        operator.process.send_signal(signal.SIGTERM)
        assert operator.process.wait(60) == 0


def test_refused_credentials_end_an_operator_with_the_remedy(server: Ground):
    server.faults.answer(401, times=99)
    said = refuses(server.kubeconfig)
    assert f"the API server at {server.url} refuses the credentials of this process" in said
    assert "renew the token" in said


def test_a_missing_permission_ends_an_operator_with_the_remedy(server: Ground):
    server.faults.answer(403, times=99, path="/elasticjobs")
    said = refuses(server.kubeconfig)
    assert "lacks a permission" in said
    assert "brain doctor --cluster" in said


def test_an_untrusted_certificate_ends_an_operator_with_the_remedy(tmp_path: Path):
    server = Stranger(tmp_path)
    server.start()
    try:
        said = refuses(kubeconfig(tmp_path, server.url, "admin", "", TEAM))
    finally:
        server.close()
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "set certificate-authority in the kubeconfig" in said


def asked(answers: Sequence[TransportAnswer | Exception | None]) -> tuple[VirtualClock, object]:
    """Ask a scripted server for an object of ours, and wait in virtual time; the answer's name."""
    shelf, clock = Shelf(), VirtualClock()
    shelf.put(thing("a"))
    shelf.faults.extend(answers)
    cluster = Cluster(shelf, ClientLimits(attempts=1), clock=clock)
    wait = ServerWait(cluster, stopped=lambda: False, clock=clock, sleep=clock.sleep)
    found = wait.ask(lambda: cluster.get(THING, "team", "a")["metadata"]["name"])
    assert not wait.trouble
    return clock, found


def test_the_log_names_an_outage_once_a_minute(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    clock, found = asked([Unreachable("refused")] * 60)
    assert found == "a"
    said = [record.getMessage() for record in caplog.records]
    assert clock.seconds > 150
    assert len(said) == 1 + clock.seconds // 60 + 1
    assert said[-1] == f"the API server at http://shelf answers after {clock.seconds:.0f} s"


@pytest.mark.parametrize("code", [401, 403])
def test_a_server_that_has_just_started_may_refuse_what_it_does_not_know_yet(code: int):
    clock, found = asked([Unreachable("away"), refused(code), refused(500), refused(code)])
    assert (found, clock.seconds > 1.0) == ("a", True)


@pytest.mark.parametrize(("code", "why"), [(401, "refuses the credentials"), (403, "lacks")])
def test_a_refusal_that_outlasts_the_servers_start_is_an_error(code: int, why: str):
    with pytest.raises(BadInput, match=why):
        asked([Unreachable("away"), *[refused(code)] * 999])


def test_a_server_that_keeps_its_readiness_to_itself_is_asked_all_the_same():
    clock, found = asked([refused(403), None])
    assert (found, clock.seconds) == ("a", 0.0)


def test_an_outage_between_two_questions_is_waited_for():
    clock, found = asked([refused(404), refused(503), refused(404), None])
    assert (found, clock.seconds > 0.0) == ("a", True)
