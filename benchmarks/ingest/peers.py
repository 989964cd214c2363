"""Stores of time series that take node reports: Prometheus and VictoriaMetrics, from Debian.

Both get one remote write per report, with the values that change. The body is protobuf in snappy
blocks that contain only literals, which cost the reader least.
"""

import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.ingest.load import Client
from benchmarks.ingest.services import Running, node_reports
from brain.types.telemetry import HostSample

#: The program of each peer, its options, and the path of remote writes.
_PEERS = {
    "VictoriaMetrics": (
        "victoria-metrics",
        "-httpListenAddr=127.0.0.1:{port} -storageDataPath={directory}/data",
        "/api/v1/write",
    ),
    "Prometheus": (
        "prometheus",
        "--web.listen-address=127.0.0.1:{port} --storage.tsdb.path={directory}/data "
        "--web.enable-remote-write-receiver --config.file={directory}/empty.yml",
        "/api/v1/write",
    ),
}
#: Peers that are not installed here, each by the name of its package.
MISSING = tuple(program for program, _, _ in _PEERS.values() if not shutil.which(program))
_START_SECONDS, _LITERAL_BYTES = 60.0, 65_536
_HOST = (
    "cpu_millis",
    "memory_bytes",
    "job_cpu_millis",
    "job_memory_bytes",
    "network_receive_bytes_per_second",
    "network_send_bytes_per_second",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
)
_GPU = ("utilization", "memory_used_bytes", "power_watts")
_HEADERS = (
    "Content-Type: application/x-protobuf",
    "Content-Encoding: snappy",
    "X-Prometheus-Remote-Write-Version: 0.1.0",
)


@contextmanager
def peers(count: int) -> Iterator[Mapping[str, tuple[Running, Sequence[Client]]]]:
    """Return the installed stores, each with ``count`` clients that send node reports."""
    with ExitStack() as stack:
        yield {
            name: (running, [_sender(running.url, path, number) for number in range(count)])
            for name, (program, options, path) in _PEERS.items()
            if program not in MISSING
            for running in (stack.enter_context(_started(program, options)),)
        }


@contextmanager
def _started(program: str, options: str) -> Iterator[Running]:
    with socket.socket() as free, tempfile.TemporaryDirectory(prefix="brain-ingest-") as directory:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        Path(directory, "empty.yml").touch()
        command = [program, *options.format(port=port, directory=directory).split()]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(f"{url}/-/healthy", process)
            yield Running(url, (process.pid,))
        finally:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            assert process.poll() is None, f"{process.args} ended at its start"
            assert time.monotonic() < until, f"{process.args} does not answer"
            time.sleep(0.1)
        else:
            return


def _sender(url: str, path: str, number: int) -> Client:
    reports, begin, sent = node_reports(f"job-{number}"), time.time_ns() // 10**6 - 600_000, 0

    def body() -> tuple[bytes, int]:
        nonlocal sent
        sent += 1
        # These stores keep milliseconds, and refuse a time that a series has.
        return snappy(written(next(reports), f"node-{number}", begin + sent)), 1

    return Client(url, path, _HEADERS, body)


def written(report: HostSample, node: str, milliseconds: int) -> bytes:
    """Return a report as ``prometheus.WriteRequest``, with a series for each value."""
    figures = [({"__name__": f"node_{name}"}, getattr(report, name)) for name in _HOST]
    figures += [
        ({"__name__": f"gpu_{name}", "gpu": str(gpu.index)}, getattr(gpu, name))
        for gpu in report.gpus
        for name in _GPU
    ]
    series = (_series({**labels, "node": node}, value, milliseconds) for labels, value in figures)
    return b"".join(_field(1, each) for each in series)


def _series(labels: Mapping[str, str], value: float, milliseconds: int) -> bytes:
    told = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, labels[name].encode()))
        for name in sorted(labels)
    )
    return told + _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(milliseconds))


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def snappy(data: bytes) -> bytes:
    """Return a snappy block of literals, each with a length of two bytes."""
    parts = [data[at : at + _LITERAL_BYTES] for at in range(0, len(data), _LITERAL_BYTES)]
    literals = (bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part for part in parts)
    return _varint(len(data)) + b"".join(literals)
