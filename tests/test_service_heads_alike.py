"""Requests whose heads are known are answered as those that are parsed, however their bytes come.

Two agents send the same requests: one the same heads each time, in pieces; the other each head with
a header of its own, in one piece, so that every one is parsed.
"""

import gzip
import itertools
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agents import PATH, Agent, Answer, without_id
from tests.certificates import self_signed
from tests.serving import Service, Wire, service, wires

_FOREIGN = "01234567-89ab-7def-8123-456789abcdef"
#: Bodies, made by the agent, which remembers the last one.
_BODIES: Mapping[str, Callable[[Agent], bytes]] = {
    "one": lambda agent: agent.batch(),
    "three": lambda agent: agent.batch(3),
    "foreign": lambda agent: agent.batch(job=_FOREIGN),
    "none": lambda agent: b"",
    "damaged": lambda agent: b'{"v": 1, "sent_at": ',
    "many": lambda agent: (
        b'{"v": 1, "sent_at": "2026-01-01T00:00:00Z", "samples": [' + b"{}," * 300 + b"{}]}"
    ),
}
#: Headers beside the usual ones, before the length and behind it.
_AROUND: Mapping[str, tuple[str, str]] = {
    "plain": ("", ""),
    "alive": ("", "Connection: keep-alive\r\n"),
    "alive twice": ("Connection: keep-alive\r\n", "Connection: Keep-Alive\r\n"),
    "ends": ("", "Connection: close\r\n"),
    "alive, then ends": ("Connection: keep-alive\r\n", "Connection: close\r\n"),
    "ends, then alive": ("Connection: close\r\n", "Connection: keep-alive\r\n"),
    "expects": ("", "Expect: 100-continue\r\n"),
    "proxied": ("X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n", ""),
    "upgrades": ("Connection: Upgrade\r\nUpgrade: h2c\r\n", ""),
}
_FORMS = ("length", "lower", "zeros", "chunked", "gzip", "after empty lines")


class Asked(NamedTuple):
    """A request: its body, what stands around its length, and the form of both."""

    body: str
    around: str
    form: str


class Here(NamedTuple):
    """A service with both agents, and a way to let it read all that was sent."""

    running: Service
    known: Agent
    parsed: Agent
    tls: ssl.SSLContext | None
    beside: Wire
    numbers: Iterator[int]

    def read_all(self) -> None:
        """Return once the service has read the bytes that were sent before."""
        self.beside.head("GET /api/v1/health", length=0)
        self.beside.answer()


@pytest.fixture(scope="module", params=["http", "https"])
def here(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Here]:
    home, tls = tmp_path_factory.mktemp("alike"), None
    flags = ["--program-requests-per-second=100000", "--trusted-proxies=127.0.0.0/8"]
    if request.param == "https":
        certificate: Path = self_signed(home / "brain.pem", "brain.example")
        flags.append(f"--tls-certificate={certificate}")
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with service(home / "state", *flags) as running, wires(running, 3, tls) as (one, two, beside):
        known, parsed = Agent(running, one), Agent(running, two, "parsed")
        yield Here(running, known, parsed, tls, beside, itertools.count())


def _head(secret: str, asked: Asked, length: int, number: int | None) -> bytes:
    before, behind = _AROUND[asked.around]
    sizes = {"lower": f"content-length: {length}", "zeros": f"Content-Length: 00{length}"}
    size = sizes.get(asked.form, f"Content-Length: {length}")
    lines = [f"{PATH} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {secret}"]
    if number is not None:
        lines.append(f"X-Number: {number}")
    if asked.form == "gzip":
        lines.append("Content-Encoding: gzip")
    if asked.form == "chunked":
        size = "Transfer-Encoding: chunked"
    empty = "\r\n\r\n" if asked.form == "after empty lines" else ""
    head = empty + "\r\n".join(lines) + f"\r\n{before}{size}\r\n{behind}\r\n"
    return head.encode()


def _written(agent: Agent, asked: Sequence[Asked], numbers: Iterator[int] | None) -> bytes:
    """The bytes of requests, the second of two equal ones with the body of the first."""
    data, bodies = b"", dict[Asked, bytes]()
    for one in asked:
        body = bodies.setdefault(one, _BODIES[one.body](agent))
        body = gzip.compress(body, mtime=0) if one.form == "gzip" else body
        number = None if numbers is None else next(numbers)
        data += _head(agent.secret, one, len(body), number)
        if one.form == "chunked":
            cut = len(body) // 2
            parts = (body[:cut], body[cut:])
            body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
            body += b"0\r\n\r\n"
        data += body
    return data + b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def _answers(stream: BinaryIO) -> Iterator[Answer]:
    """All answers until the service closes."""
    with suppress(ConnectionError):
        while line := stream.readline():
            status = int(line.split()[1])
            lines = iter(stream.readline, b"\r\n")
            pairs = [each.decode().rstrip("\r\n").split(": ", 1) for each in lines]
            headers = {name.lower(): text for name, text in pairs}
            body = stream.read(int(headers.get("content-length", 0)))
            if status != 100:
                yield status, headers, {"body": body}


def _told(here: Here, data: bytes, cuts: Sequence[int]) -> list[object]:
    """What the service answers to data that comes in pieces."""
    with wires(here.running, 1, here.tls) as (connection,):
        edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
        for begin, end in itertools.pairwise(edges):
            connection.send(data[begin:end])
            if end < len(data):
                here.read_all()
        with connection.socket.makefile("rb") as stream:
            return [without_id(_document(answer)) for answer in _answers(stream)]


def _document(answer: Answer) -> Answer:
    """An answer whose body is read, its request's id left out."""
    status, headers, told = answer
    text = told["body"].decode().replace(headers.get("x-request-id", " "), "")
    return status, headers | {"content-length": ""}, {"text": text}


_asked = st.builds(
    Asked,
    st.sampled_from(sorted(_BODIES)),
    st.sampled_from(sorted(_AROUND)),
    st.sampled_from(_FORMS),
)
_cuts = st.lists(st.integers(1, 4000), max_size=4)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(_asked, min_size=1, max_size=4), cuts=_cuts)
def test_pieces_of_known_heads_are_answered_as_parsed_ones(
    here: Here, asked: list[Asked], cuts: list[int]
) -> None:
    once = _told(here, _written(here.parsed, asked, here.numbers), ())
    assert _told(here, _written(here.known, asked, None), cuts) == once


@pytest.mark.parametrize("around", sorted(_AROUND))
def test_a_head_that_came_before_means_the_same_again(here: Here, around: str) -> None:
    asked = [Asked("one", around, "length"), Asked("three", "plain", "length")]
    once = _told(here, _written(here.parsed, asked, here.numbers), ())
    for _ in range(3):
        assert _told(here, _written(here.known, asked, None), ()) == once


def test_a_request_may_be_cut_at_any_byte(here: Here) -> None:
    def written() -> bytes:
        body = here.known.batch()
        return _head(here.known.secret, Asked("one", "plain", "length"), len(body), None) + body

    with wires(here.running, 1, here.tls) as (connection,):
        # A record of TLS costs more than a piece.
        for cut in range(1, len(written()), 1 if here.tls is None else 9):
            data = written()
            connection.send(data[:cut])
            here.read_all()
            connection.send(data[cut:])
            status, _, document = connection.answer()
            assert (status, document["stored"]) == (200, 1), cut
