"""A queue of jobs that do not fit, which every turn looks at while other writers wait."""

from contextlib import closing
from pathlib import Path

from brain import calls, cycle
from brain.db import SqlStores
from brain.pool.rounds import Memo
from brain.types.resources import PoolName
from tests.api.app import Api, digits
from tests.statements import statements


def test_a_turn_takes_as_many_statements_for_many_waiting_jobs_as_for_few(
    tmp_path: Path, database_url: str
) -> None:
    pool = PoolName("local")
    with closing(SqlStores(database_url)) as stores, statements() as asked:
        api, memo = Api(tmp_path, stores=stores), Memo(pool)
        api.add_node(cpus=1)
        taken = []
        with api.client() as ada:
            for first, last in ((0, 5), (5, 25)):
                for number in range(first, last):
                    ada.send(calls.submit(digits(name=f"digits-{number}")))
                # It stores why the new jobs wait and looks at them again; then nothing is left.
                for _ in range(3):
                    asked.clear()
                    cycle.turn(stores, pool, api.settings, api.now, memo=memo)
                taken.append(len(asked))
            waiting = [job.state for job in ada.send(calls.jobs()).items].count("Queued")
    assert waiting >= 20
    assert taken[1] == taken[0]
