"""Telemetry in: 200 means committed, bad samples come back with reasons."""

import gc
import gzip
import json
import re
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
import zstandard

from brain import calls, wire
from brain.api.metrics import SILENCE, Metrics, ServiceCondition
from brain.errors import BadInput, TooLarge, UnknownVersion
from brain.settings import Settings
from brain.types.record import Role
from brain.types.telemetry import GpuReading, Receipt, Sample
from tests.api.app import Api, digits
from tests.builders import NOW, at, host, throughput
from tests.serving import eventually


def _job(api: Api) -> str:
    with api.client() as admin:
        return str(admin.send(calls.submit(digits())).id)


def _send(api: Api, *samples: Sample, job: str, sent_at: datetime = NOW) -> Receipt:
    with api.client(Role.AGENT, job=job) as agent:
        return agent.send(calls.telemetry(samples, sent_at=sent_at))


def _post(api: Api, job: str, content: bytes, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with api.http(api.token(Role.AGENT, job=job)) as http:
        return http.post("/api/v1/telemetry", content=content, headers=named)


def test_what_was_answered_is_stored(api: Api) -> None:
    job = _job(api)
    receipt = _send(api, throughput(job=job), throughput(1, job=job), job=job)
    with api.stores.transaction() as tx:
        stored = tx.telemetry.throughput(wire.convert(job, str), since=NOW)  # type: ignore[arg-type]
    assert (receipt.stored, len(stored)) == (2, 2)


def test_a_repeated_batch_is_absorbed(api: Api) -> None:
    job = _job(api)
    _send(api, throughput(job=job), job=job)
    assert _send(api, throughput(job=job), job=job) == Receipt(stored=0, duplicates=1)


def test_a_refused_body_is_let_go_without_a_collection(api: Api) -> None:
    job = _job(api)
    gc.collect()
    gc.disable()
    try:
        for role in (Role.AGENT, Role.ADMIN):  # one is read on the loop, the other in a thread
            with api.http(api.token(role, job=job if role is Role.AGENT else None)) as http:
                assert http.post("/api/v1/telemetry", content=b"{" * 100_000).status_code == 422
        # The thread lets the error go after it was answered.
        eventually(lambda: not any(isinstance(each, BadInput) for each in gc.get_objects()))
    finally:
        gc.enable()


def test_a_bad_sample_is_listed_and_the_good_ones_are_stored(api: Api) -> None:
    job = _job(api)
    batch = json.loads(wire.encode_batch([throughput(n, job=job) for n in range(3)], sent_at=NOW))
    batch["samples"][1]["step_seconds"] = "fast"
    answer = _post(api, job, json.dumps(batch).encode())
    assert answer.status_code == 200
    assert answer.json()["stored"] == 2
    assert [bad["index"] for bad in answer.json()["rejected"]] == [1]
    assert "step_seconds" in answer.json()["rejected"][0]["reason"]


@pytest.mark.parametrize(
    ("measured_at", "says"),
    [
        (NOW - timedelta(hours=25), "is older than 24 h"),
        (NOW + timedelta(minutes=6), "5 min ahead"),
    ],
)
def test_a_sample_out_of_time_is_rejected(api: Api, measured_at: datetime, says: str) -> None:
    job = _job(api)
    receipt = _send(api, throughput(job=job, measured_at=measured_at), job=job)
    assert receipt.stored == 0
    assert says in receipt.rejected[0].reason


def test_the_age_is_judged_on_service_time(api: Api) -> None:
    job = _job(api)
    slow = timedelta(hours=30)
    sample = throughput(job=job, measured_at=NOW - slow)
    assert _send(api, sample, job=job, sent_at=NOW - slow).stored == 1
    with api.client() as admin:
        health = admin.send(calls.health())
    assert health.skew_seconds == slow.total_seconds()
    assert "agent is 108000 s behind" in health.degraded[0]


def test_the_clock_of_a_sender_that_is_silent_is_forgotten() -> None:
    condition = ServiceCondition(Metrics())
    condition.note_offset("digits", 60.0, NOW)
    said = condition.degraded()
    condition.look_at_clocks(NOW + SILENCE + timedelta(seconds=1))
    assert (said, condition.degraded(), condition.skew_seconds()) == (
        ("the clock of sender digits is 60 s behind; synchronize it with NTP",),
        (),
        0.0,
    )


@pytest.mark.parametrize("minutes", [10, -10])
def test_a_sender_whose_clock_is_off_is_fresh(api: Api, minutes: float) -> None:
    job, off = _job(api), timedelta(minutes=minutes)
    sample = throughput(job=job, measured_at=NOW - off)
    _send(api, sample, job=job, sent_at=NOW - off)
    with api.stores.transaction() as tx:
        stored = tx.telemetry.throughput(wire.convert(job, str), since=at(-1))  # type: ignore[arg-type]
    assert [each.measured_at for each in stored] == [NOW]


def test_a_batch_sent_again_by_a_clock_that_was_set_is_absorbed(api: Api) -> None:
    job, off = _job(api), timedelta(minutes=10)
    sample = throughput(job=job, measured_at=NOW - off)
    _send(api, sample, job=job, sent_at=NOW - off)
    assert _send(api, sample, job=job, sent_at=NOW) == Receipt(stored=0, duplicates=1)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("step", "9223372036854775808", "step 9223372036854775808 does not fit into 64 bits"),
        ("nodes", "-9223372036854775809", "nodes -9223372036854775809 does not fit into 64 bits"),
        ("step", "1" + "0" * 6000, "step: Integer value out of range"),
        ("step_seconds", "NaN", "step_seconds nan is not a finite number"),
        ("examples_per_second", "-Infinity", "examples_per_second -inf is not a finite number"),
        ("step_seconds", "1e999", "step_seconds: Number out of range"),
        ("accelerator", r'"c\u0000pu"', r"accelerator 'c\x00pu' has a NUL"),
    ],
)
@pytest.mark.parametrize("ndjson", [False, True])
def test_what_no_store_can_hold_is_rejected_by_name(
    api: Api, field: str, value: str, says: str, *, ndjson: bool
) -> None:
    job = _job(api)
    lines = [wire.encode_sample(throughput(n, job=job)).decode() for n in range(2)]
    lines[0] = re.sub(rf'"{field}":[^,}}]+', lambda _: f'"{field}":{value}', lines[0])
    head = '{"v": 1, "sent_at": "2026-01-01T12:00:00Z"'
    whole = f'{head}, "samples": [{",".join(lines)}]}}'
    body = "\n".join([head + "}", *lines]) if ndjson else whole
    kind = "application/x-ndjson" if ndjson else "application/json"
    answer = _post(api, job, body.encode(), content_type=kind).json()
    assert (answer["stored"], [bad["index"] for bad in answer["rejected"]]) == (1, [0])
    assert says in answer["rejected"][0]["reason"]


NORMS: dict[str, Any] = {
    **{"gns_steps": 3, "gns_small_batch": 32, "gns_small_square": 4.0},
    **{"gns_big_batch": 128, "gns_big_square": 2.0},
}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (NORMS | {"gns_big_square": None}, "gns_big_square is missing, but gns_big_batch"),
        (NORMS | {"gns_steps": 0}, "gns_steps 0 is too small"),
        (NORMS | {"gns_small_square": -1.0}, "gns_small_square -1 is too small"),
        (NORMS | {"gns_small_square": 1e200}, "gns_small_square 1e+200 is too large"),
        (NORMS | {"gns_big_batch": 32}, "gns_big_batch 32 must be larger than gns_small_batch 32"),
        ({"exchange_wait_seconds": -0.1}, "exchange_wait_seconds -0.1 is negative"),
        ({"gns_unavailable": "x" * 201}, "gns_unavailable has 201 characters"),
        ({"sharded_bytes": -1}, "sharded_bytes -1 is negative; give 0 if the size is unknown"),
    ],
)
def test_gradient_norms_that_cannot_be_are_rejected_by_name(
    api: Api, given: dict[str, Any], says: str
) -> None:
    job = _job(api)
    receipt = _send(api, throughput(0, job=job, **given), throughput(1, job=job, **NORMS), job=job)
    assert (receipt.stored, len(receipt.rejected)) == (1, 1)
    assert says in receipt.rejected[0].reason


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"step_seconds": 0.0}, "step_seconds 0 is not a possible step time"),
        ({"step_seconds": 1e-320}, "step_seconds 9.99989e-321 is not a possible step time"),
        ({"step_seconds_mean": -1.0}, "step_seconds_mean -1 is not a possible step time"),
        ({"accumulation": 0}, "accumulation 0 is too small"),
        ({"steps": 2**31}, "steps 2147483648 is more than 2147483647"),
        (
            {"steps": 10**9, "step_seconds_mean": 1e9},
            "steps 1000000000 of 1e+09 s each take longer",
        ),
        ({"replicas": -1}, "replicas -1 is too small"),
        ({"data_wait_seconds": 1e300}, "data_wait_seconds 1e+300 is too large"),
    ],
)
def test_a_window_that_would_end_every_turn_is_rejected_by_name(
    api: Api, given: dict[str, Any], says: str
) -> None:
    job = _job(api)
    receipt = _send(api, throughput(0, job=job, **given), throughput(1, job=job), job=job)
    assert (receipt.stored, len(receipt.rejected)) == (1, 1)
    assert says in receipt.rejected[0].reason


def test_a_reading_that_adds_up_to_no_number_is_rejected_by_name(api: Api) -> None:
    job = _job(api)
    receipt = _send(api, host(0, job=job, network_send_bytes_per_second=1.7e308), job=job)
    assert "network_send_bytes_per_second 1.7e+308 is too large" in receipt.rejected[0].reason


#: Recorded from probes of before and with gradients; both must stay readable.
RECORDED = (
    '"steps":41,"step_seconds":0.0243,"step_seconds_mean":0.0246,"data_wait_seconds":0.0001,'
    '"accumulation":1,"local_batch":8,"examples_per_second":325.2,"phase":"training","step":46,'
    '"nodes":1,"replicas":2,"accelerator":"cpu","processes":2,"kind":"throughput","sequence":1,'
    '"measured_at":"2026-01-01T12:00:00.000001Z"'
)
GRADIENTS = (
    ',"exchange_wait_seconds":0.0129,"gns_steps":2,"gns_small_batch":8,"gns_small_square":9.608,'
    '"gns_big_batch":16,"gns_big_square":6.1737'
)
UNAVAILABLE = ',"gns_unavailable":"one worker without accumulation"'


@pytest.mark.parametrize(
    ("more", "steps", "why"),
    [
        ("", None, None),
        (GRADIENTS, 2, None),
        (UNAVAILABLE, None, "one worker without accumulation"),
        (',"gns_invented_later":1', None, None),
    ],
)
def test_recorded_samples_are_understood(
    api: Api, more: str, steps: int | None, why: str | None
) -> None:
    job = _job(api)
    place = (
        f'"place":{{"job":"{job}","source":"9f86d081884c7d65","local_rank":0,"rank":0,"replica":0,'
        '"epoch":1,"generation":0}'
    )
    line = f"{{{place},{RECORDED}{more}}}"
    body = f'{{"v":1,"sent_at":"2026-01-01T12:00:00Z","samples":[{line}]}}'
    assert _post(api, job, body.encode()).json()["stored"] == 1
    with api.stores.transaction() as tx:
        (found,) = tx.telemetry.throughput(wire.convert(job, str), since=NOW)  # type: ignore[arg-type]
    assert (found.gns_steps, found.gns_unavailable) == (steps, why)


def test_numbers_of_64_bits_are_stored(api: Api) -> None:
    job = _job(api)
    assert _send(api, throughput(job=job, nodes=2**63 - 1, step=2**63 - 1), job=job).stored == 1


def test_a_nested_reading_is_named_by_its_path(api: Api) -> None:
    job = _job(api)
    gpu = GpuReading(
        index=0, name="L\0", utilization=0.5, memory_used_bytes=1, memory_total_bytes=2
    )
    receipt = _send(api, host(job=job, gpus=(gpu,)), job=job)
    assert "gpus[0].name" in receipt.rejected[0].reason


def test_an_agent_writes_its_own_job_only(api: Api) -> None:
    job = _job(api)
    receipt = _send(api, throughput(job="another"), throughput(job=job), job=job)
    assert receipt.stored == 1
    why = "job another is not the job of this token; send the token of that job"
    assert receipt.rejected[0].reason == why


def test_samples_of_no_job_are_rejected(api: Api) -> None:
    with api.client() as admin:
        receipt = admin.send(calls.telemetry([throughput(job="gone")], sent_at=NOW))
    assert (
        receipt.rejected[0].reason
        == "job 'gone' is not the id of a job; send the id that `brain jobs` shows"
    )


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress), ("identity", bytes)],
)
def test_packed_bodies_are_read(api: Api, encoding: str, pack: object) -> None:
    job = _job(api)
    body = wire.encode_batch([throughput(job=job)], sent_at=NOW)
    assert callable(pack)
    answer = _post(api, job, pack(body), content_encoding=encoding)
    assert answer.json()["stored"] == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_packed_body_is_whole_and_one(api: Api, encoding: str) -> None:
    job = _job(api)
    pack = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor().compress
    packed = pack(wire.encode_batch([throughput(job=job)], sent_at=NOW))
    for body, says in [
        (b"", "its end is missing"),
        (packed[: len(packed) // 2], "its end is missing"),
        (packed[:-1], "its end is missing"),
        (packed * 2, f"{len(packed)} bytes follow the end of the first gzip"),
        (packed + b"\0", "1 bytes follow the end"),
    ]:
        answer = _post(api, job, body, content_encoding=encoding)
        assert (answer.status_code, answer.json()["field"]) == (422, "body")
        assert says in answer.json()["detail"]


def test_ndjson_is_read_line_by_line(api: Api) -> None:
    job = _job(api)
    lines = [
        b'{"v": 1, "sent_at": "2026-01-01T12:00:00Z"}',
        wire.encode_sample(throughput(job=job)),
        b"{broken",
    ]
    answer = _post(api, job, b"\n".join(lines), content_type="application/x-ndjson").json()
    assert (answer["stored"], answer["rejected"][0]["index"]) == (1, 1)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_bomb_is_refused_before_it_is_parsed(api: Api, pack: object) -> None:
    job = _job(api)
    assert callable(pack)
    packed = pack(b" " * (api.settings.body_limit_bytes + 1))
    encoding = "gzip" if pack is gzip.compress else "zstd"
    answer = _post(api, job, packed, content_encoding=encoding)
    assert (answer.status_code, answer.json()["type"]) == (413, f"/problems/{TooLarge.__name__}")
    said = api.http(api.token(Role.SCALER)).get("/metrics").text
    assert 'brain_refusals_total{limit="body_limit_bytes"} 1.0' in said


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b"{", {}, 422, "not JSON"),
        (b'{"v": 1}', {}, 422, "missing"),
        (b'{"v": 9, "sent_at": "2026-01-01T12:00:00Z", "samples": []}', {}, 426, "v 9"),
        (b'{"v": 1, "sent_at": "2026-01-01T12:00:00", "samples": []}', {}, 422, "time zone"),
        (b'{"v": 1, "sent_at": "0001-01-01T00:00:00Z", "samples": []}', {}, 422, "100 years"),
        (b'{"v": 1, "samples": ' + b"[" * 100_000, {}, 422, "nested"),
        (b'{"v": 1, "samples": [NaN]}', {}, 422, "sent_at"),
        (b'{"v": NaN}', {}, 422, "not JSON"),
        (b"x", {"content_encoding": "br"}, 422, "gzip, zstd"),
        (b"x", {"content_encoding": "gzip"}, 422, "decoded as gzip"),
        (b"x", {"content_encoding": "zstd"}, 422, "decoded as zstd"),
        (b"x", {"content_type": "text/csv"}, 422, "application/json"),
        (b"", {"content_type": "application/x-ndjson"}, 422, "the body is empty"),
    ],
)
def test_what_is_no_batch_is_refused_with_the_reason(
    api: Api, body: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    answer = _post(api, _job(api), body, **headers)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_a_query_parameter_is_refused_as_everywhere(api: Api) -> None:
    job = _job(api)
    body = wire.encode_batch([throughput(job=job)], sent_at=NOW)
    with api.http(api.token(Role.AGENT, job=job)) as http:
        answer = http.post("/api/v1/telemetry?dryRun=true", content=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "dryRun")
    assert ("has no query parameter 'dryRun'; the operation takes no parameters") in answer.json()[
        "detail"
    ]
    assert _post(api, job, body).json()["stored"] == 1, "nothing was stored before"


def test_an_unknown_version_is_told_as_such(api: Api) -> None:
    body = b'{"v": 9, "sent_at": "2026-01-01T12:00:00Z", "samples": []}'
    assert _post(api, _job(api), body).json()["type"].endswith(UnknownVersion.__name__)


def test_too_many_samples_are_to_be_split(tmp_path_factory: pytest.TempPathFactory) -> None:
    api = Api(tmp_path_factory.mktemp("home"), settings=Settings(batch_limit=2))
    job = _job(api)
    with pytest.raises(TooLarge, match="split the batch"):
        _send(api, *(throughput(n, job=job) for n in range(3)), job=job)


def test_the_counters_count_samples(api: Api) -> None:
    job = _job(api)
    for _ in range(2):
        _send(api, throughput(job=job), throughput(job="gone"), job=job)
    with api.http(api.token()) as http:
        text = http.get("/metrics").text
    assert 'brain_samples_total{outcome="stored"} 1.0' in text
    assert 'brain_samples_total{outcome="duplicate"} 1.0' in text
    assert 'brain_samples_total{outcome="rejected"} 2.0' in text


def test_a_slightly_late_batch_is_no_skew(api: Api) -> None:
    job = _job(api)
    _send(api, throughput(job=job), job=job, sent_at=at(-1))
    with api.client() as admin:
        assert admin.send(calls.health()).skew_seconds == 0
