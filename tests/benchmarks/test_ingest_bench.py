"""``make bench-ingest`` counts what was acknowledged, and that is what is stored."""

from datetime import UTC, datetime
from pathlib import Path

from benchmarks.ingest import services
from benchmarks.ingest.load import closed
from brain import calls
from brain.db import SqlStores
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
