"""BrainClient: one seam, errors translated at the border."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from brain import calls, errors
from brain.client import AsyncBrainClient, BrainClient, TokenFile
from brain.types.job import JobId
from brain.types.world import ReplicaReport
from tests import builders
from tests.api.app import URL


def answering(answer: Callable[[httpx2.Request], httpx2.Response]) -> BrainClient:
    """A client of a service that answers like this."""
    return BrainClient(URL, "brn_x", transport=httpx2.MockTransport(answer))


def silent(request: httpx2.Request) -> httpx2.Response:
    """A service that does not answer."""
    raise httpx2.ConnectError("connection refused", request=request)


def test_a_silent_service_is_unavailable_not_an_http_error() -> None:
    with answering(silent) as client, pytest.raises(errors.Unavailable, match="refused"):
        client.send(calls.health())


def test_no_proxy_is_the_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    with (
        BrainClient("http://127.0.0.1:1") as client,
        pytest.raises(errors.Unavailable, match="refused"),
    ):
        client.send(calls.health())


def test_a_silence_without_words_is_told_by_its_kind() -> None:
    def wordless(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectTimeout("", request=request)

    with (
        answering(wordless) as client,
        pytest.raises(errors.Unavailable, match=r"cannot be reached: ConnectTimeout; check"),
    ):
        client.send(calls.health())


def test_the_same_for_asyncio() -> None:
    async def send() -> None:
        async with AsyncBrainClient(URL, transport=httpx2.MockTransport(silent)) as client:
            await client.send(calls.health())

    with pytest.raises(errors.Unavailable, match="refused"):
        asyncio.run(send())


def test_a_stream_of_a_silent_service_is_unavailable() -> None:
    with (
        answering(silent) as client,
        pytest.raises(errors.Unavailable),
        client.lines(calls.events()) as lines,
    ):
        next(lines)


def test_a_problem_comes_back_as_the_error_it_stands_for() -> None:
    told = {
        "type": "/problems/ImpossibleBounds",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "raise max",
        "field": "replicas.min",
    }
    with (
        answering(lambda request: httpx2.Response(422, json=told)) as client,
        pytest.raises(errors.ImpossibleBounds, match="raise max") as refused,
    ):
        client.send(calls.submit({}))
    assert refused.value.field == "replicas.min"


def test_an_error_of_a_newer_service_is_still_an_error() -> None:
    told = {"type": "/problems/New", "title": "", "status": 418, "detail": "something new"}
    with (
        answering(lambda request: httpx2.Response(418, json=told)) as client,
        pytest.raises(errors.BrainError, match="something new"),
    ):
        client.send(calls.health())


def test_a_proxy_that_answers_without_a_problem_is_unavailable() -> None:
    with (
        answering(lambda request: httpx2.Response(502, text="Bad Gateway")) as client,
        pytest.raises(errors.Unavailable, match="502"),
    ):
        client.send(calls.health())


def test_a_poll_without_change_is_none() -> None:
    with answering(lambda request: httpx2.Response(304)) as client:
        assert client.send(calls.world("j", etag='"1.2"', wait_seconds=1)) is None


def test_the_token_and_a_fresh_key_travel_with_every_action() -> None:
    seen: list[httpx2.Headers] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers)
        return httpx2.Response(503)

    with answering(note) as client:
        for _ in range(2):
            with pytest.raises(errors.Unavailable):
                client.send(calls.cancel("digits"))
    assert [headers["authorization"] for headers in seen] == ["Bearer brn_x"] * 2
    assert seen[0]["idempotency-key"] != seen[1]["idempotency-key"]


def test_names_are_looked_for_in_the_project_that_is_named() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url.query, "ascii"))
        return httpx2.Response(200, json={"items": []})

    with BrainClient(URL, transport=httpx2.MockTransport(answer), project="team") as client:
        client.send(calls.plans_of("digits"))
        client.send(calls.jobs(filter="state:Running"))
        client.send(calls.nodes())

    assert asked[0] == "project=team"
    # Routes that look no name up have no such parameter, and refuse it.
    assert "filter=state" in asked[1]
    assert "project" not in "".join(asked[1:])


def redirecting(request: httpx2.Request) -> httpx2.Response:
    """A proxy that sends everybody to its page for signing in."""
    return httpx2.Response(302, headers={"Location": "https://sso.example/login"}, html="<html>")


def test_a_redirect_is_no_answer_of_brain_and_its_target_is_named() -> None:
    with answering(redirecting) as client:
        with pytest.raises(errors.Unavailable, match=r"redirect to https://sso\.example/login"):
            client.send(calls.health())
        # Nothing is read from this answer, and still the token was not revoked.
        with pytest.raises(errors.Unavailable, match="redirect"):
            client.send(calls.revoke_token("7"))
        with (
            pytest.raises(errors.Unavailable, match="redirect"),
            client.lines(calls.logs("digits")) as lines,
        ):
            next(lines)


def test_a_page_in_the_place_of_an_answer_is_unavailable_and_says_nothing_of_the_request() -> None:
    with (
        answering(lambda request: httpx2.Response(200, html="<html>back soon")) as client,
        pytest.raises(errors.Unavailable, match="is not from Brain, or from another version"),
    ):
        client.send(calls.submit({}))


def test_a_page_in_answer_to_a_report_does_not_count_as_its_delivery() -> None:
    report = ReplicaReport(job=JobId("j"), replicas=(), at=builders.at(0))
    with (
        answering(lambda request: httpx2.Response(200, html="<html>back soon")) as client,
        pytest.raises(errors.Unavailable, match="is not from Brain"),
    ):
        client.send(calls.report_replicas(report))
    with answering(lambda request: httpx2.Response(204)) as client:
        client.send(calls.report_replicas(report))


@pytest.mark.parametrize("url", ["http://brain:port", "http://[::1"])
def test_a_text_that_is_no_url_is_refused_with_the_form_of_one(url: str) -> None:
    with pytest.raises(errors.Unavailable, match=r"is not the URL of a Brain .* http://HOST:PORT"):
        BrainClient(url)


@pytest.mark.parametrize("end", ["\r", "\n", " ", "é"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated(end: str) -> None:
    with pytest.raises(errors.NotSignedIn, match="copy the token again") as refused:
        BrainClient(URL, f"brn_secret{end}")
    assert "brn_secret" not in str(refused.value)


def test_a_name_of_any_characters_stays_one_part_of_the_path() -> None:
    asked: list[bytes] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.raw_path)
        return httpx2.Response(503)

    with answering(note) as client, pytest.raises(errors.Unavailable):
        client.send(calls.job("a?b#c\n%41"))
    assert asked == [b"/api/v1/jobs/a%3Fb%23c%0A%2541"]


@pytest.mark.parametrize("name", ["digits/plans", "../nodes", "..", "."])
def test_a_text_that_is_no_part_of_a_path_is_refused_as_a_name(name: str) -> None:
    with pytest.raises(errors.BadInput, match=re.escape(f"{name!r} is not a name")):
        calls.job(name)
    with pytest.raises(errors.BadInput, match="is not a name"):
        calls.revoke_token(name)


#: A line feed ends a line; other characters that Python counts as ends of lines are a line's own.
PRINTED = "\0\0 10 %\r 20 %\r100 %\na\u2028b\fc\x85d\n\nwindows\r\nlast"
LINES = [" 10 %\r 20 %\r100 %", "a\u2028b\fc\x85d", "", "windows", "last"]


def test_only_a_line_feed_ends_a_line_of_output() -> None:
    with (
        answering(lambda request: httpx2.Response(200, text=PRINTED)) as client,
        client.lines(calls.logs("digits")) as lines,
    ):
        assert list(lines) == LINES


def test_heartbeats_add_nothing_to_output_and_take_no_empty_line_from_it() -> None:
    printed = "\0\n10 %\r\0\0 20 %\r\0\nlast\n\0\0"
    with (
        answering(lambda request: httpx2.Response(200, text=printed)) as client,
        client.lines(calls.logs("digits")) as lines,
    ):
        assert list(lines) == ["", "10 %\r 20 %", "last"]


def test_only_a_line_feed_ends_a_line_for_asyncio_too() -> None:
    async def read() -> list[str]:
        way = httpx2.MockTransport(lambda request: httpx2.Response(200, text=PRINTED))
        async with (
            AsyncBrainClient(URL, transport=way) as client,
            client.lines(calls.logs("digits")) as lines,
        ):
            return [line async for line in lines]

    assert asyncio.run(read()) == LINES


def brain_that_takes(token: str, heard: list[str]) -> httpx2.MockTransport:
    def answer(request: httpx2.Request) -> httpx2.Response:
        heard.append(request.headers["authorization"])
        if heard[-1] == f"Bearer {token}":
            return httpx2.Response(204)
        problem = {"type": "https://brain/errors/NotSignedIn", "title": "", "detail": "no"}
        return httpx2.Response(401, json=problem | {"status": 401})

    return httpx2.MockTransport(answer)


def test_a_refused_token_is_read_again_from_its_file(tmp_path: Path) -> None:
    file, heard = tmp_path / "token", list[str]()
    file.write_text("brn_old\n")
    with BrainClient(URL, TokenFile(file), brain_that_takes("brn_new", heard)) as client:
        with pytest.raises(errors.NotSignedIn):
            client.send(calls.conditions("j", ()))
        file.write_text("brn_new\n")
        client.send(calls.conditions("j", ()))
        client.send(calls.conditions("j", ()))
    tokens = ["brn_old", "brn_old", "brn_new", "brn_new"]
    assert heard == [f"Bearer {token}" for token in tokens]


def test_a_token_file_that_has_bytes_of_no_text_keeps_its_token(tmp_path: Path) -> None:
    file, heard = tmp_path / "token", list[str]()
    file.write_text("brn_old\n")
    with BrainClient(URL, TokenFile(file), brain_that_takes("brn_new", heard)) as client:
        file.write_bytes(b"\xff\xfe")
        with pytest.raises(errors.NotSignedIn, match="no"):
            client.send(calls.conditions("j", ()))
    assert heard == ["Bearer brn_old"]
    with pytest.raises(errors.NotSignedIn, match="a character that no token has"):
        TokenFile(file)


def test_a_token_file_that_is_unreadable_for_a_moment_keeps_its_token(tmp_path: Path) -> None:
    file, heard = tmp_path / "token", list[str]()
    file.write_text("brn_old\n")

    async def ask() -> None:
        client = AsyncBrainClient(URL, TokenFile(file), brain_that_takes("brn_new", heard))
        file.unlink()
        with pytest.raises(errors.NotSignedIn):
            await client.send(calls.conditions("j", ()))
        file.write_text("brn_new\n")
        await client.send(calls.conditions("j", ()))

    asyncio.run(ask())
    assert heard[-1] == "Bearer brn_new"
