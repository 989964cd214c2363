"""What commands answer a person who asks a real service."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.cli.terminal import typed
from tests.web.seed import VOLUME


@pytest.fixture
def frozen(service: dict[str, str]) -> Iterator[dict[str, str]]:
    """The service with a job that is frozen meanwhile."""
    typed("freeze", "volume-seg", "--why", "the disk is changed", environment=service)
    yield service
    typed("freeze", "--off", "volume-seg", environment=service)


def test_a_frozen_job_is_listed_by_its_name(frozen: dict[str, str]) -> None:
    listed = typed("freeze", environment=frozen).stdout.splitlines()[1].split()
    assert listed[:3] == ["job", "volume-seg", "admin"]
    assert json.loads(typed("freeze", "-o", "json", environment=frozen).stdout)[0]["target"] == (
        VOLUME
    )


def test_why_a_job_has_its_size_names_the_freeze(frozen: dict[str, str]) -> None:
    said = typed("explain", "volume-seg", environment=frozen).stdout.splitlines()
    assert said[0].startswith("Hold at 1: ")
    assert said[-1] == (
        "Frozen by admin: the disk is changed (`brain freeze --off volume-seg` lifts it)."
    )


def test_figures_that_are_older_than_a_minute_say_their_age(service: dict[str, str]) -> None:
    proposed = typed("explain", "digits", environment=service).stdout
    assert re.search(r"^This prediction is 1\d min old\.$", proposed, re.MULTILINE), proposed
    held = typed("explain", "volume-seg", environment=service).stdout
    assert re.search(r"^This prediction is [3-9] min.* old\.$", held, re.MULTILINE), held


def test_a_size_beyond_the_bounds_is_refused_by_field_value_and_bounds(
    service: dict[str, str],
) -> None:
    refused = typed("resize", "volume-seg", "9", environment=service)
    assert (refused.returncode, refused.stderr) == (
        2,
        "brain: replicas 9 is not within the bounds 1:4 of job volume-seg; ask for 1 to 4, or "
        "submit the job again with other bounds\n",
    )


def test_a_job_of_another_project_is_found_with_what_to_set(service: dict[str, str]) -> None:
    told = typed("job", "asr-net", environment=service)
    assert (told.returncode, told.stderr) == (
        3,
        "brain: no job of project default has the id or name asr-net; among other projects, "
        "speech has a job with this name: set BRAIN_PROJECT=speech, or add ?project=speech\n",
    )
    found = typed("job", "asr-net", environment=service | {"BRAIN_PROJECT": "speech"})
    assert (found.returncode, "asr-net" in found.stdout) == (0, True)


def test_a_job_of_no_project_is_told_where_jobs_are_listed(service: dict[str, str]) -> None:
    told = typed("explain", "nowhere", environment=service)
    assert (told.returncode, told.stderr.endswith("; `brain jobs` lists the jobs\n")) == (
        3,
        True,
    )


@pytest.mark.parametrize(
    ("goal", "known"),
    [("state=Runing", "Queued, Running, Starting"), ("plan=Running", "Superseded, Verified")],
)
def test_a_state_that_never_comes_is_not_waited_for(
    service: dict[str, str], goal: str, known: str
) -> None:
    told = typed("wait", "digits", "--for", goal, environment=service)
    assert (told.returncode, f"--for '{goal}' is not valid" in told.stderr) == (2, True)
    assert known in told.stderr


def test_a_wait_for_a_job_that_failed_says_so_as_every_error_is_said(
    service: dict[str, str],
) -> None:
    told = typed("wait", "tall-with-a-name-of-many-words", environment=service)
    assert (told.returncode, told.stderr.startswith("brain: File")) == (1, True)


def test_a_list_of_freezes_without_one_says_so(service: dict[str, str]) -> None:
    assert typed("freeze", environment=service).stdout == "Nothing is frozen.\n"


def test_a_job_says_once_why_brain_holds_it(service: dict[str, str]) -> None:
    said = typed("job", "volume-seg", environment=service).stdout
    assert said.count("no checkpoint was seen") == 1


def test_the_report_of_a_job_that_ended_unread_asks_for_no_collector(
    service: dict[str, str],
) -> None:
    said = typed("report", "tall-with-a-name-of-many-words", environment=service).stdout
    assert "this job ended before any reading of its machine was taken" in said


def test_the_audit_log_calls_jobs_by_their_names(frozen: dict[str, str]) -> None:
    newest = typed("audit", "--limit", "1", environment=frozen).stdout.splitlines()[1]
    assert "job/volume-seg" in newest
    assert (
        f"job/{VOLUME}" in typed("audit", "--limit", "1", "-o", "wide", environment=frozen).stdout
    )
