"""Streams of a running service are written together, each whole and in order."""

import re
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path

import pytest

from brain import calls
from tests.builders import node
from tests.serving import Service, Wire, eventually, metric, service, wires

#: Far fewer than the events, so that most bunches are written beside the streams' tasks.
EVENTS, PAUSE_SECONDS = 60, 0.05


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Service]:
    """A service whose streams are silent for a second at most."""
    with service(tmp_path, "--heartbeat-seconds=1") as made:
        yield made


def _listen(wire: Wire, running: Service, encoding: str) -> None:
    bearer = f"Bearer {running.token('admin')}"
    wire.send(
        (
            "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: {bearer}\r\nAccept-Encoding: {encoding}\r\n\r\n"
        ).encode()
    )


def _happen(running: Service) -> None:
    with running.client("scaler") as scaler:
        for number in range(EVENTS):
            scaler.send(calls.put_node(node(f"node-{number:03}")))
            time.sleep(PAUSE_SECONDS)


def _whole(wire: Wire) -> bytes:
    """What a stream told until its end."""
    response = HTTPResponse(wire.socket)
    response.begin()
    body = response.read()
    if response.getheader("content-encoding") != "gzip":
        return body
    unpacking = zlib.decompressobj(wbits=31)
    plain = unpacking.decompress(body)
    assert unpacking.eof, "the checksum and the length are those of all that was sent"
    return plain


def _named(told: bytes) -> list[str]:
    """The nodes that were registered, in the order of the events."""
    return re.findall(r'"message":"node (node-\d+) in pool', told.decode())


def test_streams_get_every_event_once_and_in_order_however_they_are_packed(
    running: Service,
) -> None:
    with ExitStack() as opened:
        plain, packed, late = opened.enter_context(wires(running, 3))
        for wire, encoding in ((plain, "identity"), (packed, "gzip"), (late, "identity")):
            _listen(wire, running, encoding)
        eventually(lambda: metric(running, "brain_streams") == 3)
        _happen(running)
        time.sleep(3)  # some heartbeats
        running.stop()
        # ``late`` reads only now.
        told = [_whole(wire) for wire in (plain, packed, late)]
    names = [f"node-{number:03}" for number in range(EVENTS)]
    assert [_named(each) for each in told] == [names] * 3
    assert all(each.endswith(b": heartbeat\n\n") for each in told)
