"""The contract of ``Stores``: all or nothing, and one consistent state."""

import threading

import pytest

from brain.errors import UnknownJob
from brain.ports import Stores
from tests.builders import JOB, NOW, event, job, throughput


def _write_and_fail(stores: Stores) -> None:
    with stores.transaction() as t:
        t.jobs.add(job())
        t.telemetry.add([throughput()], received_at=NOW)
        print(1 / 0)


class TestStores:
    def test_keeps_what_a_finished_transaction_wrote(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
        with stores.transaction() as t:
            assert t.jobs.get(JOB) == job()

    def test_undoes_everything_when_the_block_raises(self, stores: Stores) -> None:
        with pytest.raises(ZeroDivisionError):
            _write_and_fail(stores)
        with stores.transaction() as t:
            assert not t.telemetry.throughput(JOB, since=NOW)
            with pytest.raises(UnknownJob):
                t.jobs.get(JOB)

    def test_sees_its_own_writes(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
            assert t.jobs.page(after=None, size=10) == [job()]

    def test_reads_without_writing(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
        with stores.transaction(read_only=True) as t:
            assert t.jobs.get(JOB) == job()

    def test_loses_no_write_of_many_threads(self, stores: Stores) -> None:
        def write(_: int) -> None:
            with stores.transaction() as t:
                t.events.add(event())

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        with stores.transaction() as t:
            assert len(t.events.after(0)) == 8

    def test_knows_its_size(self, stores: Stores) -> None:
        assert stores.size_bytes() >= 0
