"""Answers, files and streams go out compressed, for those who take it."""

import asyncio
import json
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import zstandard

from brain import calls
from brain.api import compression
from brain.types.record import Role
from tests.api.app import URL, Api, digits
from tests.api.served import served
from tests.api.test_ui import showing

UNPACK = {
    "gzip": lambda data: zlib.decompress(data, 16 + zlib.MAX_WBITS),
    "zstd": lambda data: zstandard.ZstdDecompressor().decompress(data),
    None: lambda data: data,
}


def raw(api: Api, path: str, accepted: str, **headers: str) -> httpx2.Response:
    """An answer as it came over the line."""
    given = {"Accept-Encoding": accepted, "Authorization": f"Bearer {api.token()}"} | headers

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(api.app)
        async with (
            httpx2.AsyncClient(base_url=URL, transport=transport) as http,
            http.stream("GET", path, headers=given) as answer,
        ):
            body = b"".join([chunk async for chunk in answer.aiter_raw()])
        kept = [(k, v) for k, v in answer.headers.items() if k != "content-encoding"]
        encoding = answer.headers.get("content-encoding")
        return httpx2.Response(
            answer.status_code,
            headers=kept,
            content=UNPACK[encoding](body),
            extensions={"encoding": encoding, "length": len(body)},
        )

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("accepted", "used"),
    [
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, deflate", "gzip"),
        ("*", "zstd"),
        ("zstd;q=0, gzip;q=0.5", "gzip"),
        ("gzip;q=0.000", None),
        ("identity", None),
        ("", None),
    ],
)
def test_a_list_is_packed_as_the_client_takes_it(api: Api, accepted: str, used: str | None) -> None:
    with api.client() as admin:
        for number in range(5):
            admin.send(calls.submit(digits(name=f"digits-{number}")))
    plain, packed = raw(api, "/api/v1/jobs", ""), raw(api, "/api/v1/jobs", accepted)
    assert packed.extensions["encoding"] == used
    assert packed.json() == plain.json()
    assert {answer.headers["vary"] for answer in (plain, packed)} == {"Accept-Encoding"}
    if used is not None:
        assert packed.extensions["length"] * 4 < plain.extensions["length"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_large_answer_is_packed_beside_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    pack, in_loop = compression._QUICKLY[encoding], []

    def noting(data: bytes) -> bytes:
        in_loop.append(threading.current_thread() is threading.main_thread())
        return pack(data)

    monkeypatch.setitem(compression._QUICKLY, encoding, noting)  # type: ignore[arg-type]
    with api.client() as admin:
        for number in range(5):
            admin.send(calls.submit(digits(name=f"digits-{number}")))
    assert raw(api, "/api/v1/jobs", encoding).json()["items"]
    large = raw(api, "/api/v1/openapi.json", encoding)
    assert (len(large.content) > 64 * 1024, large.extensions["encoding"]) == (True, encoding)
    assert in_loop == [True, False]


def test_another_encoding_has_another_validator_that_acting_takes(api: Api) -> None:
    with api.client() as admin:
        admin.send(calls.submit(digits(environment={f"NAME_{n}": "x" * 20 for n in range(60)})))
    plain = raw(api, "/api/v1/jobs/digits", "")
    etag = raw(api, "/api/v1/jobs/digits", "gzip").headers["etag"]
    assert etag == f"W/{plain.headers['etag']}"
    with api.http(api.token()) as http:
        answer = http.post("/api/v1/jobs/digits:suspend", headers={"If-Match": etag})
    assert answer.status_code == 200


def test_what_may_not_be_kept_and_what_is_short_stay_as_they_are(api: Api) -> None:
    with api.client() as admin:
        admin.send(calls.submit(digits(environment={"TOKEN": "secret" * 500})))
    given = {"Authorization": f"Bearer {api.token(Role.SCALER)}"}
    secret = raw(api, "/api/v1/jobs/digits/environment", "gzip", **given)
    assert (secret.extensions["encoding"], len(secret.content) > 3000) == (None, True)
    assert raw(api, "/api/v1/freeze", "gzip").extensions["encoding"] is None


def test_a_stream_of_events_is_packed_and_readable_chunk_by_chunk(api: Api) -> None:
    async def heard(url: str) -> tuple[str, list[str]]:
        headers = {"Authorization": f"Bearer {api.token()}", "Accept-Encoding": "gzip"}
        async with (
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as http,
            api.aclient() as admin,
            http.stream("GET", "/api/v1/events") as answer,
        ):
            lines = answer.aiter_lines()
            found = [await anext(lines), await anext(lines)]
            for name in ("one", "two"):
                await admin.send(calls.submit(digits(name=name)))
                while "job.Queued" not in (line := await anext(lines)):
                    pass
                found.append(json.loads(line.removeprefix("data: "))["kind"])
            return answer.headers["content-encoding"], found

    with served(api.app) as url:
        try:
            encoding, found = asyncio.run(heard(url))
        finally:
            api.context.bell.close()
    assert encoding == "gzip"
    assert found == ["retry: 1000", ": hello", "job.Queued", "job.Queued"]


def test_a_packed_stream_that_ends_is_whole() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for part in (b"one " * 100, b"two " * 100, b"one " * 100):
            yield part

    async def packed() -> bytes:
        return b"".join([part async for part in compression.gzipped_stream(chunks())])

    plain = b"one " * 100 + b"two " * 100 + b"one " * 100
    assert UNPACK["gzip"](asyncio.run(packed())) == plain


def test_files_are_packed_once_and_not_sent_again(api: Api, tmp_path: Path) -> None:
    assets = tmp_path / "dist" / "assets"
    assets.mkdir(parents=True)
    (tmp_path / "dist" / "index.html").write_text("<title>Brain</title>")
    (assets / "app-1.js").write_text("let brain = 1;\n" * 500)
    with showing(api, tmp_path / "dist"):
        plain = raw(api, "/assets/app-1.js", "")
        packed = {name: raw(api, "/assets/app-1.js", name) for name in ("gzip", "zstd")}
        etags = {answer.headers["etag"] for answer in (plain, *packed.values())}
        again = {"If-None-Match": packed["gzip"].headers["etag"]}
        known = raw(api, "/assets/app-1.js", "gzip", **again)
        other = raw(api, "/assets/app-1.js", "zstd", **again)
    assert {answer.content for answer in packed.values()} == {plain.content}
    assert all(each.extensions["length"] * 10 < len(plain.content) for each in packed.values())
    assert len(etags) == 3
    assert {plain.headers["vary"], known.headers["vary"]} == {"Accept-Encoding"}
    assert (known.status_code, known.content, other.status_code) == (304, b"", 200)
