"""The service's log as one JSON object a line."""

import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from brain import calls
from brain.service.logs import SeldomFromSdk
from tests.agents import Agent
from tests.api.app import digits
from tests.serving import service, wires


def logged(text: str) -> Iterator[dict[str, Any]]:
    """The lines of a log, each of which is an object."""
    return map(json.loads, text.splitlines())


def test_each_request_is_a_line_with_the_id_of_its_answer(
    tmp_path: Path,
) -> None:
    written = tmp_path / "service.log"
    with (
        written.open("w") as log,
        service(tmp_path, "--log-format=json", log=log) as running,
        wires(running, 1) as (one,),
    ):
        with running.client() as admin:
            job = admin.send(calls.submit(digits())).id
            admin.send(calls.job(job))
        one.head("GET /api/v1/jobs?page_token=x", length=0)
        _, headers, _ = one.answer()
        running.stop()
    lines = [line for line in logged(written.read_text()) if line["logger"] == "brain.requests"]
    (read,) = [line for line in lines if line["path"] == f"/api/v1/jobs/{job}"]
    assert (read["route"], read["status"], read["client"]) == (
        "/api/v1/jobs/{job}",
        200,
        "127.0.0.1",
    )
    assert 0 < read["seconds"] < 60
    (refused,) = [line for line in lines if line["request_id"] == headers["x-request-id"]]
    assert refused | {"time": "", "seconds": 0} == {
        "time": "",
        "level": "INFO",
        "logger": "brain.requests",
        "message": "GET /api/v1/jobs 401",
        "request_id": headers["x-request-id"],
        "method": "GET",
        "path": "/api/v1/jobs",
        "route": "/api/v1/jobs",
        "status": 401,
        "seconds": 0,
        "client": "127.0.0.1",
    }


def test_each_line_of_a_start_is_an_object(tmp_path: Path) -> None:
    with service(tmp_path, "--log-format=json") as running:
        said = list(logged("\n".join(running.said)))
        port = running.url.rpartition(":")[2]
        command = [sys.executable, "-m", "brain.service", f"--home={tmp_path / 'other'}"]
        command += [f"--port={port}", "--log-format=json"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert [line["logger"] for line in said] == ["brain.start"] * len(said)
    assert said[-1]["message"].startswith("Brain ")
    assert second.returncode == 1
    (refused,) = logged(second.stdout + second.stderr)
    assert refused["level"] == "ERROR"
    assert f":{port} is in use" in refused["message"]


def test_bytes_that_are_no_request_are_a_problem_whose_id_is_in_the_log(tmp_path: Path) -> None:
    written = tmp_path / "service.log"
    with (
        written.open("w") as log,
        service(tmp_path, "--log-format=json", "--head-seconds=1", log=log) as running,
        wires(running, 2) as (stranger, slow),
    ):
        stranger.send(b"\x16\x03\x01\x00\r\n\r\n")
        slow.send(b"GET /livez HTTP/1.1\r\n")
        answers = [stranger.answer(), slow.answer()]
        running.stop()
    lines = list(logged(written.read_text()))
    for (status, headers, told), expected in zip(answers, (400, 408), strict=True):
        assert (status, headers["content-type"]) == (expected, "application/problem+json")
        assert (told["status"], told["request_id"]) == (expected, headers["x-request-id"])
        (line,) = [line for line in lines if line.get("request_id") == told["request_id"]]
        assert (line["logger"], line["status"]) == ("brain.requests", expected)
        assert line["client"] == "127.0.0.1"


def test_text_has_no_line_for_a_request_nor_for_what_is_no_http(
    tmp_path: Path,
) -> None:
    written = tmp_path / "service.log"
    with (
        written.open("w") as log,
        service(tmp_path, log=log) as running,
        wires(running, 1) as (stranger,),
    ):
        stranger.send(b"\x00\r\n\r\n")
        assert stranger.socket.recv(100).startswith(b"HTTP/1.1 400 ")
        running.stop()
    assert written.read_text() == ""


def test_the_line_of_a_bug_has_the_id_that_its_answer_gives(tmp_path: Path) -> None:
    written = tmp_path / "service.log"
    with (
        written.open("w") as log,
        service(tmp_path, log=log) as running,
        wires(running, 2) as (one, other),
    ):
        agent = Agent(running, one)
        assert agent.send(agent.batch())[0] == 200
        with closing(sqlite3.connect(tmp_path / "brain.db")) as database:
            database.execute("ALTER TABLE audit RENAME TO audit_elsewhere")
            database.execute("ALTER TABLE throughput_rows RENAME TO rows_elsewhere")
        other.head("GET /api/v1/audit", length=0, Authorization=f"Bearer {running.token('admin')}")
        answers = [other.answer(), agent.send(agent.batch())]
        running.stop()
    assert [status for status, _, _ in answers] == [500, 500]
    lines = written.read_text().splitlines()
    for _, headers, told in answers:
        assert headers["x-request-id"] == told["request_id"]
        said = f" ERROR brain.api the request failed (request {told['request_id']})"
        assert len([line for line in lines if line.endswith(said)]) == 1


def test_another_format_is_refused_by_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "brain.service", f"--home={tmp_path}", "--log-format=xml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "brain: log_format 'xml' is not allowed; choose one of text, json\n"


def test_the_sdk_says_the_same_once_a_minute_and_everybody_else_as_often_as_they_like() -> None:
    def kept(logger: str, at: float, line: int = 1) -> bool:
        record = logging.LogRecord(logger, logging.ERROR, "file.py", line, "failed", (), None)
        record.created = at
        return seldom.filter(record)

    seldom, sdk = SeldomFromSdk(), "opentelemetry.exporter"
    assert [kept(sdk, 0.0), kept(sdk, 59.0), kept(sdk, 60.0)] == [True, False, True]
    assert [kept(sdk, 61.0, line=2), kept("brain.tick", 61.0), kept("brain.tick", 61.0)] == [
        True
    ] * 3
