"""Tokens of open streams are read together."""

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import NoReturn

import pytest

from brain.api import auth
from brain.api.token_watch import TokenWatch
from brain.db import SqlStores
from brain.errors import Unavailable
from brain.inmemory import MemoryStores
from brain.types.record import Role
from tests.builders import NOW
from tests.statements import statements


def test_one_question_is_for_all_streams_until_it_is_old_or_a_token_was_revoked(
    database_url: str,
) -> None:
    tokens = [auth.mint(f"reader-{number}", Role.VIEWER, now=NOW)[0] for number in range(20)]
    revocations, now = 0, 100.0
    with closing(SqlStores(database_url)) as stores, ExitStack() as open_streams:
        with stores.transaction() as tx:
            for token in tokens:
                tx.access.add_token(token)
        watch = TokenWatch(stores, lambda: revocations, lambda: now, seconds=15)
        for token in tokens:
            open_streams.enter_context(watch.watching(token.id))

        def questions() -> int:
            with statements() as asked:
                for token in tokens:
                    assert watch.look(token.id).doubtful <= {tokens[3].id}
            return sum("tokens" in one for one in asked)

        assert questions() == 1
        assert questions() == 0
        with stores.transaction() as tx:
            tx.access.put_token(replace(tokens[3], revoked_at=NOW))
        revocations += 1
        assert questions() == 1
        assert watch.look(tokens[3].id).doubtful == {tokens[3].id}
        now += 8
        assert questions() == 1
        late, _ = auth.mint("late", Role.VIEWER, now=NOW)
        assert late.id in watch.look(late.id).doubtful, "one that nobody stored"


class Away(MemoryStores):
    """Stores that cannot be reached; each attempt takes ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def transaction(self, *, read_only: bool = False) -> NoReturn:
        self.now += 10
        raise Unavailable("nobody answers")


def test_stores_that_are_away_are_waited_for_once() -> None:
    stores = Away()
    watch = TokenWatch(stores, lambda: 0, lambda: stores.now, seconds=15)
    for number in range(20):
        with pytest.raises(Unavailable):
            watch.look(f"token-{number}")
    assert stores.now == 10
    stores.now += 2
    with pytest.raises(Unavailable):
        watch.look("token")
    assert stores.now == 22
