"""Actions on several jobs by one request, through the route and by the command."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from brain import calls
from brain.cli import cli
from brain.db import SqlStores
from brain.errors import BadInput, NotAllowed
from brain.types.job import Intent, JobState
from brain.types.record import Role
from tests.api.app import Api, digits
from tests.builders import job
from tests.serving import service


def submit(api: Api, *names: str, project: str = "default") -> None:
    """Jobs of these names."""
    with api.client() as admin:
        for name in names:
            admin.send(calls.submit(digits(name=name, project=project)))


def states(api: Api) -> dict[str, str]:
    """States of all jobs by name."""
    with api.client() as admin:
        return {one.name: one.state for one in admin.send(calls.jobs()).items}


def test_each_job_is_changed_or_refused_by_itself(api: Api) -> None:
    submit(api, "a", "b")
    with api.client() as admin:
        admin.send(calls.cancel("a"))
        outcomes = admin.send(calls.change_jobs("cancel", ["a", "b", "none"])).items
    assert [one.asked for one in outcomes] == ["a", "b", "none"]
    assert [one.job and one.job.state for one in outcomes] == [None, JobState.CANCELLED, None]
    problems = [one.problem and one.problem.type for one in outcomes]
    assert problems == ["/problems/Conflict", None, "/problems/UnknownJob"]


def test_a_name_that_no_database_holds_is_refused_and_changes_no_job(
    tmp_path: Path, database_url: str
) -> None:
    with closing(SqlStores(database_url)) as stores:
        api = Api(tmp_path, stores=stores)
        with api.client() as admin:
            admin.send(calls.submit(digits()))
            with api.http(api.token(Role.ADMIN)) as http:  # our own client refuses the name
                told = http.post("/api/v1/jobs:cancel", json={"jobs": ["\0", "digits"]})
            assert admin.send(calls.job("digits")).job.state is JobState.QUEUED
    assert (told.status_code, told.json()["field"]) == (422, "jobs[0]")


def test_a_filter_is_about_jobs_that_did_not_end(api: Api) -> None:
    submit(api, "first", "second", project="vision")
    submit(api, "third")
    with api.client() as admin:
        suspended = admin.send(calls.change_jobs("suspend", filter="project:vision")).items
        assert {one.job.name for one in suspended if one.job} == {"first", "second"}
        assert all(one.job and one.job.intent is Intent.SUSPEND for one in suspended)
        admin.send(calls.change_jobs("resume", filter="state:Suspended first"))
        assert states(api) == {"first": "Queued", "second": "Suspended", "third": "Queued"}
        admin.send(calls.change_jobs("cancel", filter="owner:me"))
        assert set(states(api).values()) == {"Cancelled"}
        assert admin.send(calls.change_jobs("cancel", filter="owner:me")).items == ()


def test_a_dry_run_changes_none(api: Api) -> None:
    submit(api, "a", "b")
    with api.client() as admin:
        shown = admin.send(calls.change_jobs("cancel", ["a", "b"], dry_run=True)).items
    assert [one.job and one.job.state for one in shown] == ["Cancelled", "Cancelled"]
    assert states(api) == {"a": "Queued", "b": "Queued"}


def test_the_same_request_twice_is_done_once(api: Api) -> None:
    submit(api, "a")
    call = calls.change_jobs("suspend", ["a"])
    with api.client() as admin:
        first = admin.send(call)
        admin.send(calls.resume("a"))
        assert admin.send(call) == first
    assert states(api) == {"a": "Queued"}


def test_a_submitter_changes_no_jobs_of_others(api: Api) -> None:
    submit(api, "a")
    with api.client(Role.SUBMITTER, name="bob") as bob:
        bob.send(calls.submit(digits(name="mine")))
        theirs, mine = bob.send(calls.change_jobs("cancel", ["a", "mine"])).items
    assert (theirs.problem and theirs.problem.status, mine.problem) == (403, None)
    with api.client(Role.VIEWER) as viewer, pytest.raises(NotAllowed):
        viewer.send(calls.change_jobs("cancel", ["a"]))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({}, "give either jobs"),
        ({"jobs": ["a"], "filter": "a"}, "give either jobs"),
        ({"jobs": ["a"] * 501}, "jobs has 501 jobs, but a request may name at most 500 jobs"),
        ({"filter": "status:Running"}, "the key 'status' does not exist"),
        ({"filter": "job"}, "filter matches 501 jobs, but a request may name at most 500 jobs"),
    ],
)
def test_what_cannot_be_meant_is_refused(api: Api, wanted: dict[str, Any], says: str) -> None:
    if wanted == {"filter": "job"}:
        with api.stores.transaction() as tx:
            for number in range(501):
                tx.jobs.add(job(f"{number}", name=f"job{number}"))
    with api.client() as admin, pytest.raises(BadInput, match=says):
        admin.send(
            calls.change_jobs("cancel", wanted.get("jobs", ()), filter=wanted.get("filter", ""))
        )


def test_the_command_names_each_job_that_was_not_changed(tmp_path: Path) -> None:
    with service(tmp_path / "home") as running:
        env = {"BRAIN_URL": running.url, "BRAIN_TOKEN": running.token("admin")}

        def brain(*words: str) -> Any:
            return CliRunner().invoke(cli, words, env=env)

        with running.client() as admin:
            for name in ("a", "b", "c"):
                admin.send(calls.submit({"name": name, "command": ["true"]}))
        gone = brain("suspend", "a", "none", "b", "-o", "name")
        assert gone.stdout.split() == ["a", "b"]
        assert "1 of 3 jobs were not changed" in str(gone.exception)
        assert "none" in str(gone.exception)
        assert brain("cancel", "--filter", "owner:me", "-o", "name").stdout.split() == [
            "c",
            "b",
            "a",
        ]
        assert "give either jobs" in str(brain("cancel").exception)
        assert brain("cancel", "none").stdout == ""
