"""Bytes that nobody meant, into everything that reads what others wrote.

Each decoder answers or refuses by an error of ours, within the memory that it is allowed. `make
fuzz` looks for new examples, and longer: ``BRAIN_TEST_FUZZ`` is their number.
"""

import gzip
import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from brain import wire
from brain.api import ingest
from brain.errors import BadInput, BrainError
from brain.types.job import JobId
from brain.types.resources import Resources
from brain.types.world import DesiredWorld
from collectors.jobs import ReplicaDirectories
from collectors.paths import Home
from collectors.spool import Spool
from launcher.coordinator.world.ledger import WorldLedger
from launcher.data.ledger import ShardLedger, ShardTerms
from launcher.values.config import WorldDocument
from launcher.values.replica import Coordinating, JobPlace, ReplicaPlace
from scaler.kubernetes.kinds.reading import read_elastic_job, read_scale_plan
from scaler.local import LocalBackend, LocalMachine
from tests.builders import NOW, throughput

EXAMPLES = int(os.environ.get("BRAIN_TEST_FUZZ", "60"))
LIMIT_BYTES = 1 << 20
#: What a decoder may hold beside what it was given, in all.
BUDGET_BYTES = 48 << 20
JOB = JobId("01998f00-0000-7000-8000-000000000001")

fuzzed = settings(max_examples=EXAMPLES, deadline=None)


def batch() -> bytes:
    """A batch as a collector sends it."""
    return msgspec.json.encode(
        {"v": 1, "sent_at": NOW, "samples": [wire.plain(throughput(sequence=n)) for n in range(3)]}
    )


DOCUMENT = {
    "name": "digits",
    "command": ["python", "train.py"],
    "replicas": {"min": 1, "max": 4},
    "batch": {"globalSize": 64},
    "checkpoint": {"path": "model.pt"},
    "environment": {"KEY": "value"},
    "resources": {"cpuMillis": 1000, "memoryBytes": 1},
}
PLAN = {
    "apiVersion": "elastic.iml.github.io/v1alpha1",
    "kind": "ScalePlan",
    "metadata": {"name": "grow", "uid": "u", "namespace": "default"},
    "spec": {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": 4}}},
}


def read_batch(data: bytes) -> None:
    for content in ("application/json", "application/x-ndjson"):
        with suppress(BrainError):
            ingest.parse(ingest.envelope_of(data, content), now=NOW)


def read_packed(data: bytes) -> None:
    for encoding in ("gzip", "zstd", "identity", "br"):
        with suppress(BrainError):
            read_batch(ingest.unpacked(data, encoding, LIMIT_BYTES))


def read_document(data: bytes) -> None:
    wire.job_document(wire.decode(data, object))


def read_objects(data: bytes) -> None:
    found = wire.decode(data, dict[str, Any])
    for read in (read_scale_plan, read_elastic_job):
        with suppress(BrainError):
            read(found)


def read_books(data: bytes) -> None:
    ShardLedger.load(wire.decode(data, dict[str, Any]), 0.0)


def read_spool(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / JOB).mkdir()
        (Path(folder) / JOB / "000000000001.ndjson").write_bytes(data)
        spool = Spool(Path(folder))
        while taken := spool.take(JOB, 100):
            spool.acknowledge(taken)
        spool.close()


def read_journal(data: bytes) -> None:
    kinds: Mapping[str, type] = {
        "ledger": WorldLedger,
        "world": WorldDocument,
        "wish": DesiredWorld,
        "coordinator": Coordinating,
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in kinds.items():
            (Path(folder) / f"{name}.json").write_bytes(data)
            with suppress(BadInput):
                JobPlace(Path(folder)).find(name, kind)


def read_replica(data: bytes) -> None:
    """All files of a replica's directory, by the scaler, the collector and the agent."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        replica = home / "replicas" / JOB / "0"
        replica.mkdir(parents=True)
        for name in ("intent", "state", "exit", "gone", "limits"):
            (replica / f"{name}.json").write_bytes(data)
        (replica.parent / "world.json").write_bytes(data)
        (replica / "agent.log").write_bytes(data)
        machine = LocalMachine(capacity=Resources(cpu_millis=1000))
        backend = LocalBackend(home, measure=lambda: machine, name="here")
        backend.observe(JOB, datetime.now(UTC))
        directories = ReplicaDirectories(Home(home), node="here")
        directories.live()
        directories.token(JOB), directories.url(JOB)
        ReplicaPlace(replica).intent()


def books() -> bytes:
    terms = ShardTerms(name="train", size=100, shard=10)
    ledger, _ = ShardLedger(terms).ask("a", None, now=0.0)
    return json.dumps(ledger.dump()).encode()


INTENT = {"job": JOB, "name": "digits", "replica": 0, "command": ["true"], "home": "/h"}
STATE = {"pid": 1, "started_ticks": 1, "generation": 0, "address": "", "phase": "running"}
DECODERS: Mapping[str, tuple[Callable[[bytes], None], tuple[bytes, ...]]] = {
    "batch": (read_batch, (batch(), b'{"v":1,"sent_at":"2026-11-25T20:00:00Z"}\n{"kind":"x"}')),
    "packed": (
        read_packed,
        (gzip.compress(batch()), zstandard.compress(batch()), gzip.compress(bytes(1 << 24))),
    ),
    "document": (read_document, (json.dumps(DOCUMENT).encode(),)),
    "objects": (
        read_objects,
        (json.dumps(PLAN).encode(), json.dumps(PLAN | {"kind": "ElasticJob"}).encode()),
    ),
    "books": (read_books, (books(),)),
    "spool": (read_spool, (batch() + b"\n" + b"torn",)),
    "journal": (read_journal, (json.dumps(STATE | {"epoch": 1}).encode(),)),
    "replica": (read_replica, (json.dumps(INTENT).encode(), json.dumps(STATE).encode())),
}

#: Words that decoders have rules about, beside any.
WORDS = (b"null", b"-1", b"1e308", b"NaN", b"[]", b"{}", b'""', b"0", b"18446744073709551616")


@st.composite
def damaged(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A seed with some parts cut, changed or doubled; or anything."""
    data = draw(st.sampled_from(seeds) | st.binary(max_size=200))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        until = draw(st.integers(at, min(len(data), at + 30)))
        new = draw(st.binary(max_size=6) | st.sampled_from(WORDS) | st.just(data[at:until] * 3))
        data = data[:at] + new + data[until:]
    return data


@st.composite
def retyped(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A seed of JSON of which one value is of another type or size."""
    try:
        value = json.loads(draw(st.sampled_from(seeds)))
    except ValueError:
        return draw(damaged(seeds))
    values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    other = draw(values | st.lists(values, max_size=3) | st.dictionaries(st.text(), values))
    at = value
    while isinstance(at, dict | list) and at:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or draw(st.booleans()):
            at[key] = other
            break
        at = at[key]
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", DECODERS)
@fuzzed
@given(data=st.data())
def test_a_decoder_reads_or_refuses(name: str, data: st.DataObject) -> None:
    read, seeds = DECODERS[name]
    given = data.draw(damaged(seeds) | retyped(seeds))
    tracemalloc.start()
    try:
        with suppress(BrainError):
            read(given)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < BUDGET_BYTES
