"""A job with more plans than a page of the API has."""

import json
from collections.abc import Iterator

import pytest

from brain.api.pages import LARGEST
from tests.cli.terminal import typed
from tests.web.served import with_many_plans


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What commands need for a service whose job digits has more than a page of plans."""
    with with_many_plans(tmp_path_factory.mktemp("crowded")) as running:
        yield {"BRAIN_URL": running.url, "BRAIN_TOKEN": running.admin}


def test_all_plans_of_a_job_are_listed(crowded: dict[str, str]) -> None:
    listed = json.loads(typed("plans", "digits", "-o", "json", environment=crowded).stdout)
    assert [view["plan"]["generation"] for view in listed] == list(range(4 + LARGEST, 0, -1))


@pytest.mark.parametrize("named", ["digits", "digits/4"])
def test_a_proposal_below_a_page_of_other_plans_is_approved(
    crowded: dict[str, str], named: str
) -> None:
    tried = typed("approve", named, "--dry-run", environment=crowded)
    assert tried.returncode == 0, tried.stderr
    assert "digits/4" in tried.stdout
