"""The demo's story: what it waits for, and what it bears meanwhile."""

import re
import shutil
import time
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from brain import calls
from brain.cli.demo import NotReached, Story, demo
from brain.client import BrainClient
from brain.errors import Unavailable
from brain.types.record import Role
from tests.api.app import URL, Api, AppTransport, digits


class Late(httpx2.BaseTransport):
    """Answers in time only after so many requests that it left without an answer."""

    def __init__(self, then: httpx2.BaseTransport, left: int) -> None:
        self._then = then
        self.left = left

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.left > 0:
            self.left -= 1
            raise httpx2.ReadTimeout("timed out", request=request)
        return self._then.handle_request(request)


def story(home: Path, late: int) -> Story:
    """A story whose service leaves so many of its questions unanswered."""
    api = Api(home)
    with api.client() as client:
        job = client.send(calls.submit(digits())).id
    transport = Late(AppTransport(api.app), late)
    client = BrainClient(URL, api.token(Role.ADMIN, name="demo"), transport=transport)
    return Story(client, job, time.monotonic())


def test_one_late_answer_does_not_end_the_story(tmp_path: Path) -> None:
    found = story(tmp_path, 1).until("a state", 60, lambda detail: detail.job.state)
    assert found == "Queued"


def test_a_service_that_stays_away_ends_the_stage_in_its_time(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="did not answer in time"):
        story(tmp_path, 1_000).until("a state", 0.1, lambda detail: detail.job.state)


def test_a_busy_machine_gets_longer_for_everything(tmp_path: Path) -> None:
    telling = story(tmp_path, 0)
    telling.allow(slow=3.0)
    telling.allow(slow=0.5)

    with pytest.raises(NotReached, match=r"not reached within 0\.3 s"):
        telling.until("nothing", 0.1, lambda _: None)


def test_a_home_that_cannot_be_made_is_refused_by_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(demo, ["--home", str(tmp_path / "file" / "home")])
    assert done.exit_code == 1
    assert "cannot be created: Not a directory; name another" in done.output


def test_a_log_that_a_failed_demo_names_is_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        demo, ["--database-url", "nonsense://here"], env={"TMPDIR": str(tmp_path)}
    )
    named = re.search(r"the whole output is in (\S+)", done.output)
    assert (done.exit_code, named is not None) == (1, True), done.output
    log = Path(named[1]) if named else tmp_path
    assert "nonsense" in log.read_text()
    assert f"{log.parents[1]} is kept for its logs; remove it after reading them" in done.output
    shutil.rmtree(log.parents[1])
