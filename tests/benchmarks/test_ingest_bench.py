"""``make bench-ingest`` counts what was acknowledged, and that is what is stored."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from benchmarks.ingest import peers, services
from benchmarks.ingest.load import closed
from brain import calls
from brain.db import SqlStores
from tests.patience import Patience
from tests.serving import service


def test_samples_that_were_acknowledged_are_those_that_are_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bench.db"
    with service(tmp_path / "home", f"--database-url={url}") as running:
        senders = services.job_senders(running, 3, batch=5)
        told = closed(senders, seconds=1.0)
        with running.client() as admin:
            jobs = [job.id for job in admin.send(calls.jobs()).items]
    stores = SqlStores(url)
    with stores.transaction(read_only=True) as tx:
        since = datetime(2000, 1, 1, tzinfo=UTC)
        stored = sum(len(tx.telemetry.throughput(job, since=since)) for job in jobs)
    stores.close()
    assert set(told.statuses) == {200}
    assert told.samples == stored > 0
    assert services.size_of(services.Database(url), "throughput")[1] == stored


@pytest.mark.skipif(bool(peers.MISSING), reason=f"apt-get install {' '.join(peers.MISSING)}")
def test_stores_of_time_series_hold_the_reports_that_they_acknowledged() -> None:
    query = urlencode({"query": 'count_over_time(gpu_power_watts{node="node-1",gpu="7"}[1h])'})
    with peers.peers(2) as stores:
        assert list(stores) == ["VictoriaMetrics", "Prometheus"]
        for running, clients in stores.values():
            told = closed(clients[1:], seconds=0.5)
            # VictoriaMetrics shows samples some seconds after it took them.
            patience, asked = Patience(60), f"{running.url}/api/v1/query?{query}"
            while (shown := _shown(asked)) != told.samples and not patience.over:
                time.sleep(0.2)
            assert shown == told.samples > 0


def _shown(url: str) -> int:
    with urlopen(url, timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return int(found[0]["value"][1]) if found else 0
