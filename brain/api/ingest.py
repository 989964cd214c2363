"""Parses telemetry requests, and checks each sample separately.

The module is pure: the time, and the jobs whose samples are refused, are arguments.
``routes/telemetry.py`` commits the result, so that a failure of the database never counts as an
error in a sample. A batch is one JSON object (``brain.wire.encode_batch``), or NDJSON: a first line
``{"v": 1, "sent_at": …}``, then one sample per line.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

import msgspec
import zstandard

from brain import wire
from brain.errors import BadInput, TooLarge
from brain.types.job import JobId
from brain.types.telemetry import HostSample, RejectedSample, Sample, SaveSample, ThroughputSample

#: A sample is rejected if its time is more than this later than the sending of its batch.
FUTURE = timedelta(minutes=5)
#: Largest accepted offset of a sender's clock; a clock that was reset begins at 1970.
_CENTURY = timedelta(days=36525)
#: Most characters of a reason why gradients cannot be compared, and of a source's name. Longer
#: texts do not fit PostgreSQL's indexes, and their batch could never be stored.
_REASON = _SOURCE = 200
#: Largest accepted values: of seconds of a step and of a window, of squared gradient norms, and of
#: other numbers. Sums of larger values could overflow.
_LONGEST_STEP, _LARGEST_SQUARE, _LARGEST = 1e9, 1e100, 1e30
_SHORTEST_STEP = 1 / _LONGEST_STEP
#: Largest count of samples, and of steps in a window, because counts are stored in 32 bits.
_LARGEST_COUNT = 2**31 - 1
_COUNTS = ("nodes", "replicas", "processes", "accumulation", "steps")
_STEPS = ("step_seconds", "step_seconds_mean")
_RATES = tuple(
    f"{what}_bytes_per_second"
    for what in ("network_receive", "network_send", "disk_read", "disk_write")
)
_counts, _steps, _rates = attrgetter(*_COUNTS), attrgetter(*_STEPS), attrgetter(*_RATES)
_NORMS = ("gns_steps", "gns_small_batch", "gns_small_square", "gns_big_batch", "gns_big_square")
_norms = attrgetter(*_NORMS)
#: Samples of workers, whose job and source are in their ``place``.
_PLACED = (ThroughputSample, SaveSample)
_NO_NORMS = (None,) * len(_NORMS)


class Parsed(NamedTuple):
    """A batch with its parsed samples."""

    sent_at: datetime
    #: Position in the batch, and the sample or the reason why it cannot be parsed.
    samples: tuple[tuple[int, Sample | str], ...]

    @property
    def jobs(self) -> frozenset[JobId]:
        """Return the jobs to which the parsed samples belong."""
        read = (sample for _, sample in self.samples if not isinstance(sample, str))
        return frozenset(map(job_of, read))


class Judged(NamedTuple):
    """A checked batch: the samples that may be stored, and the rejected ones with reasons."""

    good: tuple[Sample, ...]
    #: Position of each good sample in the batch.
    positions: Sequence[int]
    rejected: tuple[RejectedSample, ...]
    #: The service's clock minus the sender's, measured when the batch arrived.
    offset: timedelta


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the decompressed body, according to its ``Content-Encoding``.

    Raises:
        BadInput: the encoding is not gzip, zstd or identity, or the data is damaged.
        TooLarge: the data unpacks to more than ``limit`` bytes.
    """
    unpack = _UNPACKING.get(encoding)
    if unpack is None:
        raise BadInput(
            f"Content-Encoding {encoding!r} is not supported; use gzip, zstd or identity",
            field="Content-Encoding",
        )
    try:
        data = unpack(body, limit)
    except (zlib.error, zstandard.ZstdError, EOFError) as damaged:
        raise BadInput(
            f"the body cannot be decoded as {encoding}: {damaged}; send it again, or fix the "
            "Content-Encoding header",
            field="body",
        ) from damaged
    if len(data) > limit:
        raise TooLarge(
            f"the body unpacks to more than body_limit_bytes {limit}; split the batch",
            limit="body_limit_bytes",
        )
    return data


def envelope_of(data: bytes, content_type: str) -> wire.Envelope:
    """Parse a batch, but not its samples.

    Raises:
        BadInput: the data is not a batch, or has a content type that this service does not read.
        UnknownVersion: the batch has a version that this service does not know.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("", "application/json"):
        return wire.decode_envelope(data)
    if kind not in ("application/x-ndjson", "application/ndjson"):
        raise BadInput(
            f"Content-Type {kind!r} is not supported; send application/json or "
            "application/x-ndjson",
            field="Content-Type",
        )
    head, *lines = [line for line in data.split(b"\n") if line.strip()] or [b""]
    if not head:
        raise BadInput(
            "the body is empty; begin it with a line that has v and sent_at, and add one line per "
            "sample",
            field="body",
        )
    first = wire.decode(head, dict[str, object])
    envelope = wire.convert(first | {"samples": []}, wire.Lines)
    wire.check_version(envelope.v, sender="the collector")
    return msgspec.structs.replace(envelope, samples=[msgspec.Raw(line) for line in lines])


def parse(envelope: wire.Envelope, *, now: datetime) -> Parsed:
    """Parse each sample of a batch.

    Raises:
        BadInput: ``sent_at`` has no time zone, or is more than 100 years from ``now``.
    """
    sent_at = _possible(envelope.sent_at, now)
    apart = isinstance(envelope, wire.Lines) or len(envelope.samples) < 2
    alike = None if apart else wire.decode_alike(envelope.samples)
    samples = map(_read, envelope.samples) if alike is None else alike
    return Parsed(sent_at=sent_at, samples=tuple(enumerate(samples)))


def judge(
    parsed: Parsed, *, now: datetime, keep: timedelta, refused: Mapping[JobId, str]
) -> Judged:
    """Return the samples that may be stored, and the rejected ones.

    ``refused`` has the jobs whose samples this sender may not send, each with the reason. Samples
    that were older than ``keep`` when the batch was sent are rejected; their age is measured by the
    sender's clock.
    """
    sent_at = parsed.sent_at
    oldest, newest = sent_at - keep, sent_at + FUTURE
    good: list[Sample] = []
    positions: list[int] = []
    rejected: list[RejectedSample] = []
    for index, sample in parsed.samples:
        if isinstance(sample, str):
            rejected.append(RejectedSample(index=index, reason=sample))
            continue
        reason = None
        if not oldest <= sample.measured_at <= newest:
            reason = _refusal(sample.measured_at, sent_at, keep)
        if reason is None and refused:
            reason = refused.get(job_of(sample))
        reason = reason or (None if _is_ordinary(sample) else _impossible(sample))
        if reason is None:
            good.append(sample)
            positions.append(index)
        else:
            rejected.append(RejectedSample(index=index, reason=reason))
    return Judged(
        good=tuple(good), positions=positions, rejected=tuple(rejected), offset=now - sent_at
    )


def job_of(sample: Sample) -> JobId:
    if isinstance(sample, _PLACED):
        return sample.place.job
    return sample.job


def in_batch(judged: Judged, rejected: Iterable[RejectedSample]) -> list[RejectedSample]:
    """Return the samples that the store rejected, with their positions in the sent batch."""
    return [replace(each, index=judged.positions[each.index]) for each in rejected]


def _read(raw: msgspec.Raw) -> Sample | str:
    try:
        return wire.decode_sample(raw)
    except BadInput as bad:
        return str(bad)


def _refusal(at: datetime, sent_at: datetime, keep: timedelta) -> str | None:
    if at < sent_at - keep:
        hours = keep / timedelta(hours=1)
        return (
            f"measured_at {at.isoformat()} is older than {hours:g} h, the time for which Brain "
            "keeps samples; drop the sample"
        )
    if at > sent_at + FUTURE:
        return (
            f"measured_at {at.isoformat()} is more than 5 min ahead of sent_at; "
            "set the sender's clock"
        )
    return None


def _impossible(sample: Sample) -> str | None:
    """Return the reason why a value of a sample is impossible; None if all values are possible.

    An impossible value would make every turn of the job's pool fail.
    """
    of = sample.place if isinstance(sample, _PLACED) else sample
    if len(of.source) > _SOURCE:
        return f"source has {len(of.source)} characters; shorten it to at most {_SOURCE}"
    if not 0 <= sample.sequence <= _LARGEST_COUNT:
        return (
            f"sequence {sample.sequence} is not between 0 and {_LARGEST_COUNT}; start a new "
            "source, whose sequence begins at 0"
        )
    if isinstance(sample, HostSample):
        return _beyond(_RATES, _rates(sample), _LARGEST) or _impossible_share(sample)
    if not isinstance(sample, ThroughputSample):
        return None
    for name, value in zip(_COUNTS, _counts(sample), strict=True):
        if value < 1:
            return f"{name} {value} is too small; it must be at least 1"
    others = sample.data_wait_seconds, sample.examples_per_second or 0.0
    return (
        _impossible_steps(sample)
        or _beyond(("data_wait_seconds", "examples_per_second"), others, _LARGEST)
        or _impossible_gradients(sample)
        or _impossible_part(sample)
    )


def _impossible_steps(sample: ThroughputSample) -> str | None:
    """Return the reason why the number or the time of a window's steps is impossible, or None."""
    if sample.steps > _LARGEST_COUNT:
        return f"steps {sample.steps} is more than {_LARGEST_COUNT}; split the window"
    for name, seconds in zip(_STEPS, _steps(sample), strict=True):
        if not _SHORTEST_STEP <= seconds <= _LONGEST_STEP:
            return f"{name} {seconds:g} is not a possible step time; leave this window out"
    if sample.steps * sample.step_seconds_mean > _LONGEST_STEP:
        return (
            f"steps {sample.steps} of {sample.step_seconds_mean:g} s each take longer than any "
            "window; leave this window out"
        )
    return None


def _is_ordinary(sample: Sample) -> bool:
    """True if a sample passes all checks; the slower ``_impossible`` finds the reason if not."""
    return (
        isinstance(sample, ThroughputSample)
        and len(sample.place.source) <= _SOURCE
        and 0 <= sample.sequence <= _LARGEST_COUNT
        and sample.nodes >= 1 <= sample.replicas
        and sample.processes >= 1 <= sample.accumulation
        and 1 <= sample.steps <= _LARGEST_COUNT
        and _SHORTEST_STEP <= sample.step_seconds <= _LONGEST_STEP
        and _SHORTEST_STEP <= sample.step_seconds_mean <= _LONGEST_STEP
        and sample.steps * sample.step_seconds_mean <= _LONGEST_STEP
        and -_LARGEST <= sample.data_wait_seconds <= _LARGEST
        and -_LARGEST <= (sample.examples_per_second or 0.0) <= _LARGEST
        and 0 <= (sample.exchange_wait_seconds or 0.0) <= _LONGEST_STEP
        and sample.gns_unavailable is None
        and sample.sharded_bytes is None
        and _norms(sample) == _NO_NORMS
    )


def _beyond(names: Sequence[str], values: Sequence[float], most: float) -> str | None:
    for name, value in zip(names, values, strict=True):
        if abs(value) > most:
            return f"{name} {value:g} is too large to be a measurement; leave it out"
    return None


def _impossible_share(sample: HostSample) -> str | None:
    """Return the reason why the values of a replica's control group are impossible, or None."""
    share, used = sample.throttled_share, sample.replica_memory_bytes
    if share is not None and not 0 <= share <= 1:
        return f"throttled_share {share:g} is not between 0 and 1; give a share in that range"
    if used is not None and used < 0:
        return f"replica_memory_bytes {used} is negative; leave it out"
    return None


def _impossible_part(sample: ThroughputSample) -> str | None:
    """Return the reason why the size of a worker's part of the state is impossible, or None."""
    held = sample.sharded_bytes or 0
    if held < 0:
        return f"sharded_bytes {held} is negative; give 0 if the size is unknown"
    return _beyond(("sharded_bytes",), (held,), _LARGEST)


def _impossible_gradients(sample: ThroughputSample) -> str | None:
    """Return the reason why gradient norms or the wait for gradients are impossible, or None."""
    wait, why = sample.exchange_wait_seconds, sample.gns_unavailable
    if wait is not None and wait < 0:
        return f"exchange_wait_seconds {wait:g} is negative; measure it with a monotonic clock"
    if wait is not None and wait > _LONGEST_STEP:
        return f"exchange_wait_seconds {wait:g} is longer than any step; leave it out"
    if why is not None and len(why) > _REASON:
        return f"gns_unavailable has {len(why)} characters; shorten it to at most {_REASON}"
    fields = {name: getattr(sample, name) for name in _NORMS}
    missing = [name for name, value in fields.items() if value is None]
    if len(missing) == len(fields):
        return None
    if missing:
        return (
            f"{missing[0]} is missing, but {', '.join(sorted(set(fields) - set(missing)))} "
            "were sent without it; send all of these fields or none"
        )
    for name, value in fields.items():
        if value < (0 if name.endswith("square") else 1):
            return (
                f"{name} {value:g} is too small; leave out all gns_ fields if no gradient noise "
                "was measured"
            )
        if value > _LARGEST_SQUARE:
            return (
                f"{name} {value:g} is too large; leave out all gns_ fields while training diverges"
            )
    if fields["gns_small_batch"] >= fields["gns_big_batch"]:
        return (
            f"gns_big_batch {fields['gns_big_batch']} must be larger than gns_small_batch "
            f"{fields['gns_small_batch']}; noise can be estimated only from gradients of two "
            "batch sizes"
        )
    return None


def _possible(sent_at: datetime, now: datetime) -> datetime:
    if sent_at.tzinfo is None:
        wrong = "has no time zone; append Z"
    elif abs(now - sent_at) > _CENTURY:
        wrong = "is more than 100 years off; set the sender's clock"
    else:
        return sent_at
    raise BadInput(f"sent_at {sent_at.isoformat()} {wrong}", field="sent_at")


def _gunzip(body: bytes, limit: int) -> bytes:
    unzip = zlib.decompressobj(wbits=31)
    data = unzip.decompress(body, limit + 1)
    if len(data) <= limit:
        _check_whole(unzip)
    return data


def _unzstd(body: bytes, limit: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        data = reader.read(limit + 1)
    if len(data) <= limit:
        # The reader limits the unpacked bytes but does not report trailing data; this object does.
        unzip = zstandard.ZstdDecompressor().decompressobj()
        unzip.decompress(body)
        _check_whole(unzip)
    return data


_UNPACKING: Mapping[str, Callable[[bytes, int], bytes]] = {
    "": lambda body, limit: body,
    "identity": lambda body, limit: body,
    "gzip": _gunzip,
    "zstd": _unzstd,
}


def _check_whole(unzip: "zlib._Decompress | zstandard.ZstdDecompressionObj") -> None:
    """Raise for a truncated body, and for a body with more than one member or frame.

    Raises:
        EOFError: the message says which of the two errors occurred.
    """
    if not unzip.eof:
        raise EOFError("its end is missing")
    if unzip.unused_data:
        more = len(unzip.unused_data)
        raise EOFError(
            f"{more} bytes follow the end of the first gzip member or zstd frame, but only one "
            "member or frame is allowed"
        )
