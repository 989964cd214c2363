"""Encodes values as versioned JSON and decodes them; an error names field, value and remedy.

Messages between programs tolerate unknown fields and carry ``v``. Documents and requests that
people write may not have unknown fields; errors name the nearest known one. Keys of documents are
camelCase, like the keys of an ElasticJob. The keys of everything else are snake_case.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from threading import Lock
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from brain import storable
from brain.errors import BadInput, UnknownVersion
from brain.keys import camel, camel_keys, dataclass_in, hints_of, known_fields, values_of
from brain.types.job import JobDocument
from brain.types.telemetry import HostSample, LossSample, Sample, SaveSample, ThroughputSample

T = TypeVar("T")

#: Version of the messages that this code writes.
VERSION = 1
#: Versions that a service reads: its own and the two before.
SPOKEN = frozenset({1})

SAMPLE_KINDS: Mapping[str, type[Sample]] = {
    "throughput": ThroughputSample,
    "save": SaveSample,
    "host": HostSample,
    "loss": LossSample,
}
#: Most characters of a refused value that an error shows.
_SHOWN = 60
_building = Lock()
_decoders: dict[object, msgspec.json.Decoder[Any]] = {}
_KIND_OF = {kind: name for name, kind in SAMPLE_KINDS.items()}
_MANY: Mapping[str, Any] = {name: list[kind] for name, kind in SAMPLE_KINDS.items()}  # type: ignore[valid-type]
#: A JSON object with this end is of the kind: no quote in it is escaped, and the last of equal keys
#: counts.
_ENDING = b',"kind":'
_KIND_BY_ENDING = {b'%s"%s"}' % (_ENDING, name.encode()): name for name in SAMPLE_KINDS}


def encode(value: object) -> bytes:
    """Return ``value`` as JSON; dataclasses become objects with snake_case keys."""
    return msgspec.json.encode(value)


def plain(value: object) -> Any:
    """Return ``value`` as dictionaries, lists, strings and numbers."""
    return msgspec.to_builtins(value)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Parse a message.

    Raises:
        BadInput: the message is not JSON, or a field is missing or has the wrong type; the error
            names the field.
    """
    try:
        return _decoder(kind).decode(data)  # type: ignore[no-any-return]
    except msgspec.ValidationError as bad:
        raise BadInput(_said(bad), field=_field(bad)) from bad
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadInput(f"not JSON: {bad}") from bad
    except RecursionError as bad:
        raise BadInput("the input is nested too deeply to be decoded; flatten it") from bad


def convert(data: object, kind: type[T]) -> T:
    """Decode plain dictionaries and lists, as ``decode`` does for bytes."""
    _decoder(kind)
    try:
        return msgspec.convert(data, type=kind)
    except msgspec.ValidationError as bad:
        raise BadInput(_said(bad), field=_field(bad)) from bad


def _decoder(kind: object) -> msgspec.json.Decoder[Any]:
    """Return the only decoder of a class, built in one thread at a time.

    msgspec 0.22 analyses a class at its first use, and a second thread that sees the unfinished
    analysis crashes the process.
    """
    known = _decoders.get(kind)
    if known is None:
        with _building:
            known = _decoders[kind] = msgspec.json.Decoder(kind)
    return known


def check_version(v: int, *, sender: str = "the sender") -> None:
    """Refuse messages of unsupported versions.

    Raises:
        UnknownVersion: the error says which side to upgrade.
    """
    if v not in SPOKEN:
        older = v < min(SPOKEN)
        remedy = f"upgrade {sender}" if older else "upgrade this service"
        raise UnknownVersion(
            f"v {v} is not supported; this side supports "
            f"{', '.join(map(str, sorted(SPOKEN)))}; {remedy}",
            field="v",
        )


def decode_body(data: bytes) -> object:
    """Parse the body of a request as dictionaries, lists and values that every store can hold.

    Raises:
        BadInput: the body is not JSON, or a value has more than 64 bits or a NUL character.
    """
    found = decode(data, object)
    if storable.is_suspect(data):
        storable.refuse(found)
    return found


class Envelope(msgspec.Struct, frozen=True):
    """A batch whose samples are not parsed yet. Each sample is parsed separately, so that an
    invalid sample does not affect the others.
    """

    v: int
    sent_at: datetime
    samples: list[msgspec.Raw]


class Lines(Envelope, frozen=True):
    """A batch whose samples are lines, each of which may be anything, even invalid JSON."""


class _Kind(msgspec.Struct):
    kind: str


def encode_batch(samples: Sequence[Sample], *, sent_at: datetime) -> bytes:
    """Return the body of ``POST /api/v1/telemetry``."""
    lines = [plain(sample) | {"kind": _KIND_OF[type(sample)]} for sample in samples]
    return encode({"v": VERSION, "sent_at": sent_at, "samples": lines})


def decode_envelope(data: bytes) -> Envelope:
    """Parse a batch without looking into its samples.

    Raises:
        BadInput: the body is not a batch.
        UnknownVersion: the batch has an unsupported version.
    """
    try:
        envelope = decode(data, Envelope)
    except BadInput:
        lenient = _with_no_numbers(data)
        if not isinstance(lenient, dict) or not isinstance(lenient.get("samples"), list):
            raise
        envelope = convert(lenient | {"samples": []}, Envelope)
        samples = [msgspec.Raw(json.dumps(each).encode()) for each in lenient["samples"]]
        envelope = msgspec.structs.replace(envelope, samples=samples)
    check_version(envelope.v, sender="the collector")
    return envelope


def encode_sample(sample: Sample) -> bytes:
    """Return one sample as JSON with its ``kind``, as a line of a spool or NDJSON."""
    return encode(plain(sample) | {"kind": _KIND_OF[type(sample)]})


def decode_sample(data: bytes | msgspec.Raw) -> Sample:
    """Parse one sample.

    Raises:
        BadInput: the kind is unknown, a field is missing or has the wrong type, a time has no time
            zone, or a value cannot be stored: infinite, NaN, more than 64 bits, or with a NUL
            character.
    """
    line = bytes(data)
    try:
        kind = _KIND_BY_ENDING.get(line[line.rfind(_ENDING) :]) or decode(line, _Kind).kind
        if kind not in SAMPLE_KINDS:
            known = ", ".join(SAMPLE_KINDS)
            raise BadInput(f"kind {kind!r} does not exist; choose one of {known}", field="kind")
        sample = decode(line, SAMPLE_KINDS[kind])
    except BadInput:
        storable.refuse(_with_no_numbers(line))
        raise
    if storable.is_suspect(line):
        storable.refuse(plain(sample))
    if sample.measured_at.tzinfo is None:
        raise BadInput(
            f"measured_at {sample.measured_at.isoformat()} has no time zone; append Z",
            field="measured_at",
        )
    return sample


def decode_alike(lines: Sequence[bytes | msgspec.Raw]) -> Sequence[Sample] | None:
    """Parse samples of one kind together, at half the cost of parsing them one by one.

    Each line is JSON. Returns None if the kinds differ or any sample needs a closer look;
    ``decode_sample`` then parses each sample, or says what is wrong with it.
    """
    texts = [bytes(line) for line in lines]
    name = texts[0][texts[0].rfind(_ENDING) :] if texts else b""
    kind = _KIND_BY_ENDING.get(name)
    if kind is None or not all(text.endswith(name) for text in texts):
        return None
    data = b"[%b]" % b",".join(texts)
    if storable.is_suspect(data):
        return None
    try:
        samples: list[Sample] = decode(data, _MANY[kind])
    except BadInput:
        return None
    if any(sample.measured_at.tzinfo is None for sample in samples):
        return None
    return samples


def _with_no_numbers(data: bytes) -> object:
    """Parse text that is JSON except for NaN or Infinity; None for any other text.

    Python writes NaN and Infinity, and JSON has neither.
    """
    if b"NaN" not in data and b"Infinity" not in data:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def job_document(data: object) -> JobDocument:
    """Parse and check the document of a job.

    Raises:
        UnknownField: a key is unknown; the message names the nearest known one.
        ImpossibleBounds: no replica count satisfies the bounds.
        BadInput: a value cannot be used; the message names the field.
    """
    _refuse_shorthand(data)
    storable.refuse(data)
    read = document(data, JobDocument)
    read.check()
    read.check_submitted()
    return read


def request(data: object, kind: type[T]) -> T:
    """Convert a person's request from dictionaries and lists to ``kind``; refuse unknown fields."""
    return convert(known_fields(data, kind, str), kind)


def document(data: object, kind: type[T]) -> T:
    """Parse a document that a person wrote with camelCase keys; return it as a dataclass.

    Raises:
        UnknownField: a key is unknown; the message names the nearest known one.
        BadInput: a value is missing or has the wrong type; the message names the field.
    """
    found = known_fields(data, kind, camel)
    try:
        return convert(found, kind)
    except BadInput as bad:
        raise _of_another_type(found, kind, "") or bad from bad


_LISTS = (tuple, list, frozenset, Sequence)
#: Remedies for values of the wrong type.
_WRITE: Mapping[Any, str] = {
    int: "not a whole number; write 4, for example",
    float: "not a number; write 1.5, for example",
    bool: "neither true nor false; write one of them without quotes",
    str: "not text; put it in quotes",
    datetime: "not a date and a time; write 2026-12-01T18:00:00Z, for example",
}


def _of_another_type(data: object, kind: Any, path: str) -> BadInput | None:
    """Return an error for the first value of the wrong type; None if the fault is another one.

    The parser's own messages name neither keys of mappings nor a remedy.
    """
    inner, values = dataclass_in(kind), None
    if isinstance(data, Mapping) and inner is not None:
        hints = hints_of(inner)
        parts = [(camel(name), value, hints.get(name, Any)) for name, value in data.items()]
    elif isinstance(data, Mapping) and (values := values_of(kind)) is not None:
        parts = [(str(key), value, values) for key, value in data.items()]
    else:
        return _no_value_of(data, kind, path)
    for name, value, expected in parts:
        try:
            msgspec.convert(value, type=expected)
        except msgspec.ValidationError:
            return _of_another_type(value, expected, f"{path}.{name}" if path else name)
    return None


def _no_value_of(data: object, kind: Any, path: str) -> BadInput | None:
    options = [one for one in get_args(kind) if one is not type(None)] or [kind]
    said = next((_WRITE[one] for one in options if one in _WRITE), None)
    if get_origin(kind) in _LISTS and not isinstance(data, list):
        said = "not a list; write [a], for example"
    if values_of(kind) is not None:
        said = "not a mapping; write {name: value}, for example"
    for one in options:
        if isinstance(one, type) and issubclass(one, Enum):
            said = f"not a known value; choose one of {', '.join(each.value for each in one)}"
    if path.endswith("Bytes"):
        said = f"not a number of bytes; write {4 << 30} for 4 GiB, for example"
    if said is None and (inner := dataclass_in(kind)) is not None:
        first = camel(fields(inner)[0].name)
        said = f"not a group of fields; write the fields below it, for example {first}"
    if said is None or not path:
        return None
    shown = repr(data) if len(repr(data)) <= _SHOWN else f"{repr(data)[:_SHOWN]}…"
    if path.startswith("environment"):  # its values are secret
        shown = "that was given"
    return BadInput(f"{path} {shown} is {said}", field=path)


def _refuse_shorthand(data: object) -> None:
    """Refuse common shorthand, and say how to write it in full; no message shows a secret."""
    if not isinstance(data, Mapping) or not data:
        raise BadInput(
            "the document must be an object that begins with name; "
            "for example {name: digits, command: [python, train.py]}",
            field="name",
        )
    match data:
        case {"replicas": int(size)} if size is not True and size is not False:
            raise BadInput(
                f"replicas {size} is not a range; write {{min: {size}, max: {size}}}",
                field="replicas",
            )
        case {"command": str(line)}:
            words = ", ".join(line.split())
            raise BadInput(f"command is one string; write a list: [{words}]", field="command")
    environment = data.get("environment")
    for name, value in environment.items() if isinstance(environment, Mapping) else ():
        if not isinstance(value, str | Mapping):
            field = f"environment.{name}"
            raise BadInput(f"{field} is not text; put it in quotes", field=field)


def document_plain(document: JobDocument) -> dict[str, Any]:
    """Return the document in the form that a person writes; ``job_document`` parses the result."""
    return camel_keys(plain(document), JobDocument)  # type: ignore[no-any-return]


def _field(bad: msgspec.ValidationError) -> str | None:
    found = re.search(r"`\$\.([^`]*)`$", str(bad))
    return found.group(1) if found else None


def _said(bad: msgspec.ValidationError) -> str:
    field = _field(bad)
    text = re.sub(r" - at `\$\.[^`]*`$", "", str(bad))
    return f"{field}: {text}" if field else text
