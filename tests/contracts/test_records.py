"""The contracts of ``EventStore``, ``AuditStore``, ``AccessStore`` and ``FreezeStore``."""

import pytest

from brain.errors import Conflict, NotFound
from brain.ports import Stores
from brain.types.job import JobId
from brain.types.pool import Freeze, FreezeScope
from brain.types.record import AuditEntry, Role
from tests.builders import JOB, NOW, at, event, job, token


class TestEventStore:
    def test_gives_rising_ids(self, stores: Stores) -> None:
        with stores.transaction() as t:
            first, second = t.events.add(event()), t.events.add(event())
        with stores.transaction() as t:
            third = t.events.add(event())
            assert 0 < first.id < second.id < third.id == t.events.last_id()

    def test_returns_every_field_as_it_was_given(self, stores: Stores) -> None:
        with stores.transaction() as t:
            stored = t.events.add(event("world.formed", subject=3, data={"cause": "plan"}))
            assert t.events.after(0) == [stored]

    def test_begins_with_nothing(self, stores: Stores) -> None:
        with stores.transaction() as t:
            assert (t.events.last_id(), t.events.after(0)) == (0, [])

    def test_resumes_after_an_id(self, stores: Stores) -> None:
        with stores.transaction() as t:
            stored = [t.events.add(event()) for _ in range(5)]
            assert t.events.after(stored[1].id, limit=2) == stored[2:4]
            assert t.events.after(stored[-1].id) == []

    def test_shows_the_events_of_one_job(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.events.add(event(job=None))
            t.events.add(event(job="another"))
            mine = t.events.add(event())
            assert t.events.after(0, job=JOB, limit=1) == [mine]


class TestAuditStore:
    def test_pages_from_the_newest(self, stores: Stores) -> None:
        entry = AuditEntry(at=NOW, actor="ada", action="approve", target="plan/x/1", why="faster")
        with stores.transaction() as t:
            stored = [t.audit.add(entry) for _ in range(5)]
            first = t.audit.page(after=None, size=2)
            rest = t.audit.page(after=(first[-1].id,), size=10)
        assert [*first, *rest] == stored[::-1]


class TestTokens:
    def test_are_found_by_their_hash(self, stores: Stores) -> None:
        mine = token("t1", role=Role.AGENT, job=JOB, expires_at=at(1))
        with stores.transaction() as t:
            t.access.add_token(mine)
            assert t.access.token(mine.sha256) == mine
            assert t.access.token("another") is None

    def test_are_replaced_by_id(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.add_token(token())
            t.access.put_token(token(revoked_at=at(1), last_used_at=at(2)))
            assert t.access.tokens() == [token(revoked_at=at(1), last_used_at=at(2))]

    def test_are_listed_newest_first(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.add_token(token("a", created_at=at(1)))
            t.access.add_token(token("b", created_at=at(0)))
            assert [each.id for each in t.access.tokens()] == ["a", "b"]

    def test_are_stored_once(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.add_token(token("a"))
            with pytest.raises(Conflict):
                t.access.add_token(token("b", sha256=token("a").sha256))

    def test_cannot_be_replaced_before_they_were_stored(self, stores: Stores) -> None:
        with stores.transaction() as t, pytest.raises(NotFound):
            t.access.put_token(token())

    def test_are_forgotten_once_they_ended(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.add_token(token("session", expires_at=at(5)))
            t.access.add_token(token("signed out", expires_at=at(50), revoked_at=at(5)))
            t.access.add_token(token("good", expires_at=at(50)))
            t.access.add_token(token("just revoked", expires_at=at(50), revoked_at=at(10)))
            t.access.add_token(token("revoked, without an end", revoked_at=at(5)))
            t.access.add_token(token("without an end"))
            assert t.access.forget_tokens(before=at(10)) == 2
            left = {each.id for each in t.access.tokens()}
        assert left == {"good", "just revoked", "revoked, without an end", "without an end"}


class TestTokenUses:
    def test_are_noted_and_undo_no_revocation(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.add_token(token())
            t.access.put_token(token(revoked_at=at(1)))
        with stores.transaction() as t:
            t.uses.note([token().id], at(2))
            assert t.access.tokens() == [token(revoked_at=at(1), last_used_at=at(2))]

    def test_are_doubtful_of_a_token_that_ended_or_whose_row_is_gone(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("running"))
            t.jobs.add(job("over", name="over", finished_at=at(3)))
            t.access.add_token(token("good"))
            t.access.add_token(token("revoked", revoked_at=at(1)))
            t.access.add_token(token("of a running job", job=JobId("running")))
            t.access.add_token(token("of a job that is over", job=JobId("over")))
            t.access.add_token(token("forgotten", expires_at=at(9), revoked_at=at(1)))
            ids = {each.id for each in t.access.tokens()}
            assert t.access.forget_tokens(before=at(2)) == 1
        with stores.transaction() as t:
            assert t.uses.doubtful(ids) == ids - {"good", "of a running job"}

    def test_of_a_token_that_is_gone_change_nothing(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.uses.note(["gone"], at(2))
            assert t.access.tokens() == []


class TestSignInCodes:
    def test_are_used_once(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.put_code("hash", expires_at=at(60))
        with stores.transaction() as t:
            assert t.access.take_code("hash", now=at(59))
            assert not t.access.take_code("hash", now=at(59))

    def test_expire(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.put_code("hash", expires_at=at(60))
            assert not t.access.take_code("hash", now=at(60))

    def test_must_be_known(self, stores: Stores) -> None:
        with stores.transaction() as t:
            assert not t.access.take_code("hash", now=NOW)


def answered(stores: Stores, key: str, *, seconds: float = 0) -> None:
    """Remember an answer to ada's POST of a job."""
    with stores.transaction() as t:
        t.access.remember(
            key, "ada", "POST /jobs", body_sha256="b", status=201, body="{}", at=at(seconds)
        )


class TestAnswers:
    def test_are_given_again_for_key_principal_and_route(self, stores: Stores) -> None:
        answered(stores, "k")
        with stores.transaction() as t:
            assert t.access.answer("k", "ada", "POST /jobs") == ("b", 201, "{}")
            assert t.access.answer("k", "bob", "POST /jobs") is None
            assert t.access.answer("k", "ada", "POST /plans") is None

    def test_are_never_replaced(self, stores: Stores) -> None:
        answered(stores, "k")
        with pytest.raises(Conflict, match="in the meantime"):
            answered(stores, "k")

    def test_are_forgotten_with_codes_when_old(self, stores: Stores) -> None:
        answered(stores, "old", seconds=0)
        answered(stores, "new", seconds=10)
        with stores.transaction() as t:
            t.access.put_code("hash", expires_at=at(5))
            assert t.access.forget_answers(before=at(10)) == 2
            assert t.access.answer("old", "ada", "POST /jobs") is None
            assert t.access.answer("new", "ada", "POST /jobs")


class TestSecrets:
    def test_are_kept_per_job(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.access.put_secrets(JOB, b"\x00\xff")
            t.access.put_secrets(JOB, b"\x00\xfe")
            assert t.access.secrets(JOB) == b"\x00\xfe"
            assert t.access.secrets(JobId("another")) is None


class TestFreezeStore:
    def test_replaces_a_freeze_of_the_same_scope_and_target(self, stores: Stores) -> None:
        everything = Freeze(scope=FreezeScope.ALL, by="ada", why="release", at=NOW)
        mine = Freeze(scope=FreezeScope.JOB, target=JOB, by="ada", why="demo", at=at(2))
        again = Freeze(scope=FreezeScope.ALL, by="bob", why="release 2", at=at(1))
        with stores.transaction() as t:
            for freeze in (everything, mine, again):
                t.freezes.put(freeze)
            assert t.freezes.all() == [again, mine]

    def test_thaws_what_is_frozen(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.freezes.put(Freeze(scope=FreezeScope.PROJECT, target="x", by="a", why="w", at=NOW))
            assert t.freezes.remove("project", "x")
            assert not t.freezes.remove("project", "x")
            assert t.freezes.all() == []
