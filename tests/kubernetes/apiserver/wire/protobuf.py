"""The little of Kubernetes' protobuf that ``kubectl create namespace`` speaks: names and labels."""

from collections.abc import Iterator

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.objects.errors import unsupported_media

_MAGIC = b"k8s\x00"
_TEXTS = {1: "name", 2: "generateName", 3: "namespace"}
_MAPS = {11: "labels", 12: "annotations"}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) of a message's strings and messages; numbers are passed over."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        length, at = _varint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + length]
            at += length
        elif tag & 7 != 0:
            raise unsupported_media(("application/json", "application/yaml"))


def decoded(body: bytes) -> Json:
    """Return an object that has nothing but metadata; refuses (415) any other."""
    if not body.startswith(_MAGIC):
        raise unsupported_media(("application/json", "application/yaml"))
    envelope = dict(_fields(body[len(_MAGIC) :]))
    told = {number: text.decode() for number, text in _fields(envelope[1])}
    metadata: Json = {}
    for number, value in _fields(envelope.get(2, b"")):
        if number == 1:
            metadata = _metadata(value)
        elif not _blank(value):
            raise unsupported_media(("application/json", "application/yaml"))
    return {"apiVersion": told[1], "kind": told[2], "metadata": metadata}


def _blank(data: bytes) -> bool:
    """Return whether a spec or status says nothing."""
    return all(not value for _, value in _fields(data))


def _metadata(data: bytes) -> Json:
    metadata: Json = {}
    for number, value in _fields(data):
        if number in _TEXTS and value:
            metadata[_TEXTS[number]] = value.decode()
        elif number in _MAPS:
            pair = {part: text.decode() for part, text in _fields(value)}
            metadata.setdefault(_MAPS[number], {})[pair[1]] = pair.get(2, "")
    return metadata
