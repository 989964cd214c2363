"""Jobs over HTTP: what a person sends, and what comes back."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brain import calls
from brain.errors import (
    BadInput,
    Conflict,
    ImpossibleBounds,
    KeyReused,
    NameTaken,
    NotAllowed,
    UnknownField,
    UnknownJob,
    VersionMismatch,
)
from brain.types.job import Intent, JobState
from brain.types.record import Role
from tests.api.app import Api, digits, run_for_a_minute


def test_a_submitted_job_is_queued_and_found_by_its_name(api: Api) -> None:
    with api.client(Role.SUBMITTER, name="ada") as client:
        submitted = client.send(calls.submit(digits()))
        found = client.send(calls.job("digits"))
    assert (submitted.state, submitted.owner) == (JobState.QUEUED, "ada")
    assert found.job.id == submitted.id


def test_submitting_wakes_the_tick(api: Api) -> None:
    with api.client() as client:
        client.send(calls.submit(digits()))
    assert api.woken == 1


@pytest.mark.parametrize(
    ("document", "error", "says"),
    [
        (digits(replica=3), UnknownField, "did you mean replicas"),
        (digits(replicas={"min": 3, "max": 2}), ImpossibleBounds, "raise max or lower min"),
        (digits(replicas={"min": 5, "max": 7, "unit": 4}), ImpossibleBounds, "no multiple"),
        (digits(command=[]), BadInput, "command is empty"),
        (digits(name="../x:y"), BadInput, "letters, digits"),
        (digits(project=""), BadInput, "1 to 63"),
        (digits(replicas={"min": 1, "max": "two"}), BadInput, "replicas.max"),
        (digits(environment={"K": {"fromSecret": "k"}}), BadInput, "use fromFile"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_field_and_remedy(
    api: Api, document: dict[str, Any], error: type[BadInput], says: str
) -> None:
    with api.client() as client, pytest.raises(error, match=says) as refused:
        client.send(calls.submit(document))
    assert isinstance(refused.value, BadInput)
    assert refused.value.field


def test_more_than_the_machine_has_is_refused(api: Api) -> None:
    api.add_node(cpus=2)
    with api.client() as client, pytest.raises(BadInput, match="does not fit the pool"):
        client.send(calls.submit(digits(replicas={"min": 8, "max": 9})))


def test_a_form_is_no_document(api: Api) -> None:
    with api.http(api.token()) as http:
        answer = http.post("/api/v1/jobs", data={"name": "digits"})
    assert (answer.status_code, answer.json()["field"]) == (422, "Content-Type")


def test_a_name_in_use_is_refused(api: Api) -> None:
    with api.client() as client:
        client.send(calls.submit(digits()))
        with pytest.raises(NameTaken):
            client.send(calls.submit(digits()))


def test_an_unknown_job_is_a_problem_of_its_own_type(api: Api) -> None:
    with api.client() as client, pytest.raises(UnknownJob, match="nothing"):
        client.send(calls.job("nothing"))


def test_a_dry_run_answers_the_same_and_keeps_nothing(api: Api) -> None:
    with api.client() as client:
        would = client.send(calls.submit(digits(), dry_run=True))
        assert would.state is JobState.QUEUED
        with pytest.raises(UnknownJob):
            client.send(calls.job("digits"))


def test_a_repeated_submit_with_its_key_is_one_job(api: Api) -> None:
    call = calls.submit(digits())
    with api.client() as client:
        first, second = client.send(call), client.send(call)
        listed = client.send(calls.jobs())
    assert first.id == second.id
    assert len(listed.items) == 1


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd, identity"])
def test_a_compressed_document_is_refused_by_its_encoding(api: Api, encoding: str) -> None:
    body, headers = gzip.compress(b"{}"), {"Content-Encoding": encoding}
    with api.http(api.token()) as http:
        refused = http.post("/api/v1/jobs", content=body, headers=headers)
        plain = http.post("/api/v1/jobs", json=digits(), headers={"Content-Encoding": "identity"})
    assert (refused.status_code, refused.json()["field"]) == (422, "Content-Encoding")
    assert plain.status_code == 201


def test_a_key_with_another_body_is_refused(api: Api) -> None:
    key = {"Idempotency-Key": "k1"}
    with api.http(api.token()) as http:
        http.post("/api/v1/jobs", json=digits(), headers=key)
        again = http.post("/api/v1/jobs", json=digits(name="other"), headers=key)
    assert (again.status_code, again.json()["type"]) == (422, f"/problems/{KeyReused.__name__}")


def test_a_key_with_another_query_is_refused_and_acts_on_no_other_job(api: Api) -> None:
    key = {"Idempotency-Key": "k1"}
    with api.http(api.token()) as http:
        for project in ("a", "b"):
            assert http.post("/api/v1/jobs", json=digits(project=project)).status_code == 201
        path = "/api/v1/jobs/digits:cancel"
        first, again, other = (
            http.post(path, params={"project": project}, headers=key) for project in "aab"
        )
        tried = http.post(path, params={"project": "b", "dry_run": "true"}, headers=key)
        left = http.get("/api/v1/jobs/digits", params={"project": "b"})
    assert (first.status_code, again.json()) == (200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (other.status_code, other.json()["type"]) == (422, f"/problems/{KeyReused.__name__}")
    assert tried.status_code == 200
    assert left.json()["job"]["state"] != "Cancelled"


def test_a_stale_version_is_refused_and_the_present_one_taken(api: Api) -> None:
    with api.http(api.token()) as http:
        created = http.post("/api/v1/jobs", json=digits())
        stale = http.post("/api/v1/jobs/digits:cancel", headers={"If-Match": '"7"'})
        fresh = http.post(
            "/api/v1/jobs/digits:cancel", headers={"If-Match": created.headers["ETag"]}
        )
    assert stale.status_code == 412
    assert stale.json()["type"].endswith(VersionMismatch.__name__)
    assert fresh.json()["state"] == "Cancelled"


def test_suspend_resume_and_cancel_move_the_job(api: Api) -> None:
    with api.client() as client:
        client.send(calls.submit(digits()))
        assert client.send(calls.suspend("digits")).intent is Intent.SUSPEND
        assert client.send(calls.resume("digits")).intent is Intent.RUN
        assert client.send(calls.cancel("digits")).state is JobState.CANCELLED
        with pytest.raises(Conflict, match="already"):
            client.send(calls.cancel("digits"))


def only_advise(api: Api) -> None:
    with api.stores.transaction() as tx:
        tx.jobs.put(replace(tx.jobs.get("digits", "default"), advise_only="two rollbacks"))


def test_advise_only_is_lifted_once_and_the_audit_says_by_whom(api: Api) -> None:
    with api.client() as admin, api.client(Role.SUBMITTER, name="ada") as ada:
        ada.send(calls.submit(digits()))
        only_advise(api)
        assert ada.send(calls.lift_advise_only("digits", dry_run=True)).advise_only is None
        assert ada.send(calls.job("digits")).job.advise_only == "two rollbacks"
        assert ada.send(calls.lift_advise_only("digits")).advise_only is None
        with pytest.raises(Conflict, match="not advise-only"):
            ada.send(calls.lift_advise_only("digits"))
        (entry,) = [e for e in admin.send(calls.audit()).items if "lift" in e.action]
    assert (entry.actor, entry.action) == ("ada", "job.lift-advise-only")
    assert entry.before == "two rollbacks"


def test_advise_only_is_lifted_for_the_version_that_was_seen(api: Api) -> None:
    with api.http(api.token()) as http:
        http.post("/api/v1/jobs", json=digits())
        only_advise(api)
        path, key = "/api/v1/jobs/digits:lift-advise-only", {"Idempotency-Key": "once"}
        seen = http.get("/api/v1/jobs/digits").headers["ETag"]
        stale = http.post(path, headers={"If-Match": '"77"'})
        answers = [http.post(path, headers=key | {"If-Match": seen}) for _ in range(2)]
    assert stale.status_code == 412
    assert [answer.json()["advise_only"] for answer in answers] == [None, None]


def test_a_submitter_lifts_advise_only_of_no_job_but_their_own(api: Api) -> None:
    with api.client(Role.SUBMITTER, name="ada") as ada:
        ada.send(calls.submit(digits()))
    only_advise(api)
    with api.client(Role.SUBMITTER, name="bob") as bob, pytest.raises(NotAllowed, match="ada"):
        bob.send(calls.lift_advise_only("digits"))
    with api.client(Role.VIEWER) as viewer, pytest.raises(NotAllowed):
        viewer.send(calls.lift_advise_only("digits"))


def test_a_submitter_cannot_end_another_ones_job(api: Api) -> None:
    with api.client(Role.SUBMITTER, name="ada") as ada:
        ada.send(calls.submit(digits()))
    with api.client(Role.SUBMITTER, name="bob") as bob, pytest.raises(NotAllowed, match="ada"):
        bob.send(calls.cancel("digits"))


def test_values_of_the_environment_are_for_the_scaler_alone(
    api: Api, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mine = tmp_path_factory.mktemp("mine")
    secret = mine / "secret"
    secret.write_text("from a file\n")
    environment = {"KEY": "s3cr3t", "FILE": {"fromFile": str(secret)}}
    with api.client() as admin, api.client(Role.SCALER) as scaler:
        admin.send(calls.submit(digits(environment=environment, directory=str(mine))))
        shown = admin.send(calls.job("digits"))
        values = scaler.send(calls.environment("digits"))
        with pytest.raises(NotAllowed, match="scaler"):
            admin.send(calls.environment("digits"))
    assert shown.document["environment"] == {"KEY": "", "FILE": ""}
    assert values == {"KEY": "s3cr3t", "FILE": "from a file"}


def test_a_file_outside_of_the_jobs_directory_is_refused_when_it_is_named(
    api: Api, tmp_path: Path
) -> None:
    for path in ("/etc/hostname", "../other", "a/../../b"):
        wanted = digits(environment={"KEY": {"fromFile": path}}, directory=str(tmp_path))
        with (
            api.client(Role.ADMIN) as ada,
            pytest.raises(BadInput, match=rf"KEY.fromFile {path} is outside the job's directory"),
        ):
            ada.send(calls.submit(wanted))


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (
            lambda mine, home: (mine / "key").symlink_to(home / "admin.token"),
            "is outside the job's",
        ),
        (lambda mine, home: (mine / "key").symlink_to("/etc/hostname"), "is outside the job's"),
        (lambda mine, home: None, "No such file"),
        (lambda mine, home: (mine / "key").mkdir(), "Is a directory"),
        (lambda mine, home: (mine / "key").write_bytes(b"\xff"), "is not UTF-8"),
        (lambda mine, home: (mine / "key").write_bytes(b"x" * 131073), "more than 128 KiB"),
    ],
)
def test_a_file_that_is_no_value_is_told_to_the_scaler(
    api: Api,
    tmp_path_factory: pytest.TempPathFactory,
    prepare: Callable[[Path, Path], object],
    why: str,
) -> None:
    (api.home / "admin.token").write_text("all of it")
    mine = tmp_path_factory.mktemp("mine")
    prepare(mine, api.home)
    wanted = digits(environment={"KEY": {"fromFile": "key"}}, directory=str(mine))
    with api.client() as admin, api.client(Role.SCALER) as scaler:
        admin.send(calls.submit(wanted))
        with pytest.raises(BadInput, match=f"environment.KEY.fromFile key.* {why}"):
            scaler.send(calls.environment("digits"))


def test_the_services_own_files_are_read_for_no_job(api: Api) -> None:
    (api.home / "admin.token").write_text("all of it")
    environment = {"KEY": {"fromFile": "admin.token"}}
    with api.client() as admin, api.client(Role.SCALER) as scaler:
        admin.send(calls.submit(digits(environment=environment, directory=str(api.home))))
        with pytest.raises(BadInput, match="outside the job's directory"):
            scaler.send(calls.environment("digits"))


def test_the_list_is_paged_newest_first(api: Api) -> None:
    with api.client() as client:
        for name in ("a", "b", "c"):
            client.send(calls.submit(digits(name=name)))
        first = client.send(calls.jobs(page_size=2))
        rest = client.send(calls.jobs(page_size=2, page_token=first.next_page_token or ""))
    assert [job.name for job in (*first.items, *rest.items)] == ["c", "b", "a"]
    assert rest.next_page_token is None


def test_the_list_is_filtered_as_the_grammar_says(api: Api) -> None:
    with api.client(name="ada") as ada:
        ada.send(calls.submit(digits(name="vision-1", project="vision")))
        ada.send(calls.submit(digits(name="digits")))
        found = ada.send(calls.jobs(filter="state:queued project:vision owner:me vis"))
        with pytest.raises(BadInput, match="did you mean Running"):
            ada.send(calls.jobs(filter="state:Runing"))
    assert [job.name for job in found.items] == ["vision-1"]


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"name": "x"', b"\xff"])
def test_a_body_that_is_no_document_is_refused(api: Api, body: bytes) -> None:
    with api.http(api.token()) as http:
        refused = http.post("/api/v1/jobs", content=body)
    assert refused.status_code == 422
    assert json.loads(refused.content)["request_id"]


def test_an_agent_learns_nothing_of_other_projects(api: Api) -> None:
    api.add_node(cpus=16)
    with api.client() as admin:
        own = admin.send(calls.submit(digits(name="own"))).id
        admin.send(calls.submit(digits(project="secret")))
        with pytest.raises(
            UnknownJob, match="secret has a job with this name: set BRAIN_PROJECT=secret"
        ):
            admin.send(calls.job("digits"))
    with (
        api.client(Role.AGENT, job=own) as agent,
        pytest.raises(UnknownJob, match=r"`brain jobs` lists the jobs$"),
    ):
        agent.send(calls.job("digits"))


@pytest.mark.parametrize("steps", [10**14, 10**400])
def test_a_job_that_declares_steps_for_millennia_is_listed_without_its_end(
    api: Api, steps: int
) -> None:
    id = run_for_a_minute(api)
    with api.stores.transaction() as tx:
        job = tx.jobs.get(id)
        tx.jobs.put(replace(job, document=replace(job.document, steps=steps)))
    with api.client() as admin:
        (shown,) = admin.send(calls.jobs()).items
    assert (shown.step, shown.ends_at) == (600, None)
