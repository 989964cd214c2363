"""What is open ends with the token that opened it; who may sign in, and from where."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from brain import calls
from brain.client import BrainClient
from brain.db import SqlStores
from brain.errors import NotSignedIn
from brain.types.job import JobState
from brain.views import NewToken
from tests.api.app import digits
from tests.builders import throughput
from tests.serving import Service, eventually, metric, service

#: Far beyond the time that a test may take: only a revocation itself can end what is open.
NEVER = "--heartbeat-seconds=3600"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that tests share."""
    with service(tmp_path_factory.mktemp("service"), NEVER) as made:
        yield made


@contextmanager
def following(running: Service, token: str, call: Any) -> Iterator[threading.Thread]:
    """Follow lines until they end, in a thread that is there once the first line came."""
    begun = threading.Event()

    def follow() -> None:
        with BrainClient(running.url, token) as client, client.lines(call) as lines:
            for _ in lines:
                begun.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(60)
    yield thread
    thread.join(60)


def viewer(running: Service) -> NewToken:
    """A token that only reads."""
    with running.client() as admin:
        return admin.send(calls.mint_token("eve", "viewer"))


def printed(running: Service) -> str:
    """A job with one line of output."""
    with running.client() as admin:
        job = admin.send(calls.submit(digits())).id
    output = running.home / "replicas" / job / "0" / "output.log"
    output.parent.mkdir(parents=True)
    output.write_text("first line\n")
    return job


def test_streams_and_followed_logs_end_when_their_token_is_revoked(running: Service) -> None:
    token, job = viewer(running), printed(running)
    logs = calls.logs(job, follow=True)
    with (
        following(running, token.secret, calls.events()) as stream,
        following(running, token.secret, logs) as log,
        running.client() as admin,
    ):
        admin.send(calls.revoke_token(token.id))
    assert not stream.is_alive()
    assert not log.is_alive()
    eventually(lambda: metric(running, "brain_streams") == 0)


def test_a_stream_ends_that_another_process_revoked(tmp_path: Path) -> None:
    with service(tmp_path, "--heartbeat-seconds=0.5") as running:
        token = viewer(running)
        with (
            following(running, token.secret, calls.events()) as stream,
            closing(SqlStores(f"sqlite:///{tmp_path / 'brain.db'}")) as stores,
            stores.transaction() as tx,
        ):
            known = next(one for one in tx.access.tokens() if one.id == token.id)
            tx.access.put_token(replace(known, revoked_at=datetime.now(UTC)))
        assert not stream.is_alive()


def test_a_long_poll_ends_when_its_token_is_revoked(running: Service) -> None:
    with running.client() as admin:
        scaler = admin.send(calls.mint_token("second", "scaler"))
        refused: list[Exception] = []

        def poll() -> None:
            with BrainClient(running.url, scaler.secret) as client:
                known = client.send(calls.wishes("local"))
                assert known is not None
                try:
                    client.send(calls.wishes("local", etag=f'"{known.version}"', wait_seconds=60))
                except NotSignedIn as ended:
                    refused.append(ended)

        waiting = threading.Thread(target=poll, daemon=True)
        waiting.start()
        eventually(lambda: _used(admin, scaler.id))
        admin.send(calls.revoke_token(scaler.id))
        waiting.join(60)
        assert not waiting.is_alive()
    assert len(refused) == 1


def _used(admin: BrainClient, id: str) -> bool:
    return any(one.id == id and one.last_used_at for one in admin.send(calls.tokens()).items)


def test_an_agents_token_ends_with_its_cancelled_job(running: Service) -> None:
    with running.client() as admin:
        job = admin.send(calls.submit(digits(name="cancelled"))).id
        with running.client("scaler") as scaler:
            secret = scaler.send(calls.mint_agent_token(job)).secret
        now = datetime.now(UTC)
        sample = calls.telemetry([throughput(job=job, measured_at=now)], sent_at=now)
        with BrainClient(running.url, secret) as agent:
            assert agent.send(sample).stored == 1
            assert admin.send(calls.cancel(job)).state is JobState.CANCELLED
            for call in (sample, calls.world(job)):
                with pytest.raises(NotSignedIn, match="ended with its job, which is Cancelled"):
                    agent.send(call)


def sign_in(home: Path, *arguments: str, terminal: bool) -> tuple[int, str]:
    """Run ``brain sign-in``; its exit code and what it printed."""
    command = [sys.executable, "-m", "brain.cli", "sign-in", *arguments]
    environment = {key: text for key, text in os.environ.items() if not key.startswith("BRAIN_")}
    environment |= {"BRAIN_HOME": str(home)}
    if not terminal:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        return done.returncode, done.stdout + done.stderr
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0, closefd=True) as screen:
        process = subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs)
        os.close(theirs)
        code, shown = process.wait(100), screen.read(4096)
    return code, shown.decode()


def test_a_sign_in_link_goes_to_a_terminal_only_and_names_whom_it_is_for(running: Service) -> None:
    code, shown = sign_in(running.home, "--for", "Ada L.", terminal=True)
    assert code == 0, shown
    found = re.search(r"sign in as Ada L\.; it works once: (\S+)/#signin=(\S+)", shown)
    assert found
    assert found[1] == running.url
    secret = httpx2.URL(f"{running.url}/?{found[2]}").query.decode()
    body = {"code": re.sub("%20", " ", secret)}
    with httpx2.Client(base_url=running.url) as browser:
        assert browser.post("/api/v1/sign-in", json=body | {"code": secret}).status_code == 401
        assert browser.post("/api/v1/sign-in", json=body).json()["who"] == "Ada L."
    with running.client() as admin:
        entry = next(one for one in admin.send(calls.audit()).items if one.action == "sign in")
    assert (entry.actor, entry.after) == ("Ada L.", "from 127.0.0.1")


def test_no_log_has_a_sign_in_link(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        code, said = sign_in(tmp_path, terminal=False)
        with running.client() as admin:
            assert [one.action for one in admin.send(calls.audit()).items] == []
        running.stop()
        told = [*running.said, *running.printed]
    assert code == 2
    assert "kubectl exec -it" in said
    assert not any("signin=" in line for line in [said, *told])
