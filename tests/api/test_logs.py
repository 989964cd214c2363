"""What workers print, as it is printed."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx2
import pytest

from brain import calls, errors, lifecycle
from brain.api import auth
from brain.api.deps import JobRequest, TokenMonitor
from brain.api.routes.logs import Reader, job_logs, with_heartbeat
from brain.client import BrainClient
from brain.types.record import Role
from launcher.workers.processes.output import OutputStream, Route, finish
from tests import builders
from tests.api.app import Api, digits
from tests.serving import eventually


@pytest.fixture
def job(api: Api) -> str:
    """A job that two replicas printed for."""
    with api.client() as admin:
        id = str(admin.send(calls.submit(digits())).id)
    for replica in ("0", "1"):
        write(
            api.home / "replicas" / id, replica, f"[worker{replica}]: one\n[worker{replica}]: two\n"
        )
    return id


def write(directory: Path, replica: str, text: str) -> None:
    """Let a replica print."""
    (directory / replica).mkdir(parents=True, exist_ok=True)
    with (directory / replica / "output.log").open("a") as file:
        file.write(text)


def test_logs_are_those_of_all_replicas(api: Api, job: str) -> None:
    with api.client() as client:
        lines = client.send(calls.logs("digits")).decode().splitlines()
    assert lines == ["[worker0]: one", "[worker0]: two", "[worker1]: one", "[worker1]: two"]


def test_logs_of_one_replica(api: Api, job: str) -> None:
    with api.client() as client:
        assert client.send(calls.logs(job, replica=1)).decode().startswith("[worker1]")


def test_a_replica_that_never_was_is_not_found_and_those_that_were_are_named(
    api: Api, job: str
) -> None:
    with api.client() as client, pytest.raises(errors.NotFound, match="its replicas: none yet"):
        client.send(calls.logs(job, replica=7))


def test_the_tail_is_whole_lines(api: Api, job: str) -> None:
    with api.http(api.token()) as http:
        assert http.get(f"/api/v1/jobs/{job}/logs?tail=1&replica=0").text == "[worker0]: two\n"


def test_following_ends_with_the_job_and_its_last_words(api: Api, job: str) -> None:
    write(api.home / "replicas" / job, "0", "last words")
    with api.client() as client:
        client.send(calls.cancel(job))
        text = client.send(calls.logs(job, follow=True)).decode()
    assert text.endswith("[worker1]: two\nlast words\n")


def test_following_ends_with_its_job_although_a_later_one_has_its_name(api: Api, job: str) -> None:
    token, _ = auth.mint("ada", Role.VIEWER, now=api.now)
    with api.stores.transaction() as tx:
        tx.access.add_token(token)
    about = JobRequest(api.context, auth.principal_of(token), "digits", "default")
    monitor = TokenMonitor(api.context, token, revocations=api.context.bell.revocations)

    async def followed() -> bytes:
        answer = await job_logs(about, monitor, follow=True)
        parts = cast(AsyncGenerator[bytes], answer.body_iterator)
        told = await anext(parts)
        with api.stores.transaction() as tx:
            lifecycle.cancel(tx, tx.jobs.get(job), by="ada", now=api.now)
            tx.jobs.add(builders.job("later", name="digits", created_at=api.now))
        async with asyncio.timeout(60):
            return told + b"".join([part async for part in parts])

    assert asyncio.run(followed()).endswith(b"[worker1]: two\n")


def test_no_proxy_holds_lines_back(api: Api, job: str) -> None:
    with api.http(api.token()) as http:
        assert http.get(f"/api/v1/jobs/{job}/logs").headers["X-Accel-Buffering"] == "no"


def test_a_silent_log_has_heartbeats_and_ends_as_without_them() -> None:
    async def run() -> None:
        prints, ended = asyncio.Event(), asyncio.Event()

        async def lines() -> AsyncGenerator[bytes]:
            try:
                yield b"one\n"
                await prints.wait()
                yield b"two\n"
            finally:
                ended.set()

        parts = with_heartbeat(lines(), 0.01)
        assert await anext(parts) == b"one\n"
        assert [await anext(parts) for _ in range(3)] == [b"\0"] * 3
        prints.set()
        rest = [part async for part in parts]
        assert rest[-1] == b"two\n"
        assert set(rest[:-1]) <= {b"\0"}
        assert ended.is_set()
        prints.clear()
        ended.clear()
        abandoned = with_heartbeat(lines(), 0.01)
        assert [await anext(abandoned) for _ in range(2)] == [b"one\n", b"\0"]
        await abandoned.aclose()
        assert ended.is_set(), "a reader that left ended the reading"

    asyncio.run(run())


def test_a_client_that_follows_sees_no_heartbeat() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.params["heartbeat"])
        return httpx2.Response(200, content=b"\0\0one\n\n\0two\n\0")

    with BrainClient("http://brain", transport=httpx2.MockTransport(answer)) as client:
        with client.lines(calls.logs("digits", follow=True)) as lines:
            assert list(lines) == ["one", "", "two"]
        assert asked == ["true"]


def test_a_job_that_printed_nothing_has_empty_logs(api: Api) -> None:
    with api.client() as client:
        client.send(calls.submit(digits()))
        assert client.send(calls.logs("digits")) == b""


def test_lines_are_read_once_and_only_when_whole(tmp_path: Path) -> None:
    reader = Reader(tmp_path, None, 100)
    write(tmp_path, "0", "a\nb")
    assert reader.read() == b"a\n"
    write(tmp_path, "0", "c\n")
    write(tmp_path, "1", "new\n")
    assert reader.read() == b"bc\nnew\n"
    assert reader.read() == b""


@contextmanager
def printing(directory: Path, limit_bytes: int) -> Iterator[Callable[[str], None]]:
    """A worker whose agent keeps its output, in a file of about ``limit_bytes`` and one before."""
    log = directory / "0" / "output.log"
    stream = OutputStream(
        Route(console=False, replica_log=log, replica_log_bytes=limit_bytes, tag="[0]:"), 2
    )
    assert stream.fd is not None
    fd = os.dup(stream.fd)
    stream.given()
    stream.read()

    def write_line(line: str) -> None:
        os.write(fd, f"{line}\n".encode())
        eventually(lambda: log.exists() and f"[0]:{line}\n" in log.read_text())

    yield write_line
    os.close(fd)
    finish([stream], 60)


def test_a_log_has_a_bounded_size_and_is_followed_over_its_rotation(tmp_path: Path) -> None:
    reader, read = Reader(tmp_path, None, 100), b""
    with printing(tmp_path, 1000) as write_line:
        for number in range(300):
            write_line(f"{number:05d}")
            read += reader.read() if number % 20 == 0 else b""
        kept = sum(file.stat().st_size for file in (tmp_path / "0").iterdir())
    while new := reader.read():
        read += new
    assert read.decode().split() == [f"[0]:{number:05d}" for number in range(300)]
    assert kept <= 2 * (1000 + 10)


def test_a_line_that_a_full_disk_cut_before_a_rotation_holds_nothing_up(tmp_path: Path) -> None:
    reader = Reader(tmp_path, None, 100)
    write(tmp_path, "0", "whole\ncu")
    log = tmp_path / "0" / "output.log"
    log.rename(f"{log}.1")
    write(tmp_path, "0", "next\n")
    assert [reader.read() for _ in range(4)] == [b"whole\n", b"cu\n", b"next\n", b""]


def test_a_tail_reaches_into_the_file_before(tmp_path: Path) -> None:
    with printing(tmp_path, 1000) as write_line:
        for number in range(150):
            write_line(f"{number:05d}")
    text = b"".join(iter(Reader(tmp_path, None, 110).read, b"")).decode().split()
    assert text == [f"[0]:{number:05d}" for number in range(40, 150)]


def test_the_route_follows_over_a_rotation(api: Api, job: str) -> None:
    def work() -> None:
        with printing(api.home / "replicas" / job, 200) as write_line:
            for number in range(20):
                write_line(f"line {number}")
        with api.client() as client:
            client.send(calls.cancel(job))

    with ThreadPoolExecutor(1) as beside, api.client() as client:
        done = beside.submit(work)
        told = client.send(calls.logs(job, follow=True, replica=0)).decode().splitlines()
        done.result()
    assert told[-1] == "[0]:line 19"
    assert len(told) == len(set(told)), "nothing comes twice"
    assert (api.home / "replicas" / job / "0" / "output.log.1").exists()


def test_a_tail_of_a_long_file_is_exact(tmp_path: Path) -> None:
    write(tmp_path, "0", "".join(f"{n:09d}\n" for n in range(100_000)))
    reader = Reader(tmp_path, None, 50_000)
    text = b"".join(iter(reader.read, b""))
    assert text.count(b"\n") == 50_000
    assert text.startswith(b"000050000\n")
