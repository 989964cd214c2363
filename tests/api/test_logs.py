"""What workers print, as it is printed."""

from pathlib import Path

import pytest

from brain import calls, errors
from brain.api.routes.logs import Reader
from tests.api.app import Api, digits


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


def test_a_tail_of_a_long_file_is_exact(tmp_path: Path) -> None:
    write(tmp_path, "0", "".join(f"{n:09d}\n" for n in range(100_000)))
    reader = Reader(tmp_path, None, 50_000)
    text = b"".join(iter(reader.read, b""))
    assert text.count(b"\n") == 50_000
    assert text.startswith(b"000050000\n")
