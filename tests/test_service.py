"""The service as a process: started, refused, stopped, killed, started again."""

import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from brain import calls, cycle
from brain.api.bell import Bell
from brain.api.metrics import Metrics, ServiceCondition
from brain.client import BrainClient, Call
from brain.db import SqlStores
from brain.errors import Unavailable
from brain.inmemory import MemoryStores
from brain.ports import Clock, Stores
from brain.service.start import main
from brain.service.tick import Ticker, Turn
from brain.settings import Settings
from brain.types.job import JobId, JobState
from brain.types.record import Role
from brain.types.resources import PoolName
from tests.api.app import Api, digits
from tests.builders import NOW, event, job
from tests.serving import service


def test_a_first_start_makes_keys_and_tokens_that_only_the_owner_reads(tmp_path: Path) -> None:
    with service(tmp_path / "home", cold=True) as running:
        with running.client() as admin, running.client("scaler") as scaler:
            roles = [client.send(calls.health()).role for client in (admin, scaler)]
        modes = {
            name: stat.S_IMODE((running.home / name).stat().st_mode)
            for name in ("", "key", "admin.token", "scaler.token", "service.json")
        }
    assert roles == [Role.ADMIN, Role.SCALER]
    assert modes.pop("") == 0o700
    assert set(modes.values()) == {0o600}
    assert " at http://127.0.0.1:" in running.said[-1]


def test_the_service_ends_although_streams_and_polls_are_open(tmp_path: Path) -> None:
    opened = threading.Barrier(4)

    # Both bear that they are cut: a service that is slow to end waits for nobody beyond its time.
    def listen(client: BrainClient, call: "Call[bytes]") -> None:
        with client, suppress(Unavailable), client.lines(call) as lines:
            next(lines)
            opened.wait(30)
            for _ in lines:
                pass

    def poll(url: str, token: str) -> None:
        with (
            suppress(ConnectionError),
            closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as http,
        ):
            _ask(http, token, calls.wishes("local"))
            with http.getresponse() as known:
                etag, _ = known.getheader("ETag"), known.read()
            # On its way before the service is told to stop, on a connection that it accepted.
            _ask(http, token, calls.wishes("local", etag=etag, wait_seconds=60))
            opened.wait(30)
            http.getresponse().read()

    with service(tmp_path) as running:
        with running.client() as admin:
            id = admin.send(calls.submit(digits())).id
        output = tmp_path / "replicas" / id / "0" / "output.log"
        output.parent.mkdir(parents=True)
        output.write_text("first line\n")
        threads = [
            threading.Thread(target=listen, args=(running.client(), calls.events())),
            threading.Thread(target=listen, args=(running.client(), calls.logs(id, follow=True))),
            threading.Thread(target=poll, args=(running.url, running.token("scaler"))),
        ]
        for thread in threads:
            thread.start()
        opened.wait(30)
        seconds = running.stop()
        for thread in threads:
            thread.join(60)
    assert seconds < 30  # of the poll's 60
    assert running.process.returncode == 0
    assert not any(thread.is_alive() for thread in threads)
    assert not (tmp_path / "service.json").exists()


def _ask(http: HTTPConnection, token: str, call: "Call[Any]") -> None:
    """Send a call, and do not wait for its answer."""
    headers = dict(call.headers) | {"Authorization": f"Bearer {token}"}
    http.request(call.method, f"{call.path}?{urlencode(call.query)}", headers=headers)


def test_a_killed_service_comes_back_with_everything_once(tmp_path: Path) -> None:
    submit = calls.submit(digits(environment={"KEY": "s3cr3t"}))
    with service(tmp_path) as first:
        with first.client() as admin:
            before = admin.send(submit)
        secret = (tmp_path / "admin.token").read_text()
        first.stop(signal.SIGKILL)
    with (
        service(tmp_path) as second,
        second.client() as admin,
        second.client("scaler") as scaler,
    ):
        again = admin.send(submit)
        listed = admin.send(calls.jobs()).items
        values = scaler.send(calls.environment(before.id))
        kinds = [event.kind for event in admin.send(calls.job_events(before.id)).items]
    assert (tmp_path / "admin.token").read_text() == secret
    assert [one.id for one in listed] == [before.id] == [again.id]
    assert values == {"KEY": "s3cr3t"}
    assert kinds.count("job.Queued") == 1


def test_a_taken_port_is_told_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code = main([f"--home={tmp_path}", f"--port={taken.getsockname()[1]}"])
    assert code == 1
    assert "is in use; stop the program that listens there, or choose another with --port" in (
        capsys.readouterr().err
    )


def test_a_second_service_on_one_home_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with service(tmp_path):
        assert main([f"--home={tmp_path}", "--port=0"]) == 1
    assert "another service already uses" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--host=0.0.0.0"], "--allow-remote-submit"),
        (["--host=0.0.0.0", "--allow-remote-submit"], "no token exists"),
        (["--policy-mode=always"], "choose one of off, shadow, approve, auto"),
        (["--tick-seconds=soon"], "tick_seconds 'soon'"),
        (["--port=70000"], "not a TCP port"),
        (["--host=nowhere.invalid", "--allow-remote-submit"], "cannot listen on"),
        (["--database-url=mysql://x/y"], "only sqlite and postgresql"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    assert main([f"--home={tmp_path}", "--port=0", *flags]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "says"),
    [("tick_second = 1", "did you mean tick_seconds"), ("port = ", "brain.toml")],
)
def test_settings_that_cannot_be_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, says: str
) -> None:
    (tmp_path / "brain.toml").write_text(written)
    assert main([f"--home={tmp_path}", "--port=0"]) == 1
    assert says in capsys.readouterr().err


def test_migrating_alone_makes_the_database_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert main([f"--home={home}", "--migrate-only"]) == 0
    assert main([f"--home={home}", "--migrate-only"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("migrated the database from nothing")
    assert said[1] == "nothing to do"


def test_a_check_names_what_a_migration_would_do_and_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def migrate(*flags: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "brain.cli", "migrate", f"--home={home}", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        return done.returncode, done.stdout

    before = migrate("--check")
    assert not home.exists()
    migrate()
    assert before[0] == 1
    assert before[1].startswith("the database lacks the migrations 0001, 0002, ")
    assert before[1].endswith("; run brain migrate\n")
    assert migrate("--check") == (0, "nothing to do\n")


def test_a_home_that_is_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main([f"--home={tmp_path / 'file'}", "--port=0"]) == 1
    assert "choose another with --home" in capsys.readouterr().err


@dataclass
class Ticking:
    """A ticker over stores in memory, with a clock that tests set."""

    home: Path
    stores: Stores
    now: datetime = NOW

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.condition = ServiceCondition(self.metrics)
        self.turned: list[PoolName] = []

    def ticker(self, turn: Turn | None = None, clock: Clock | None = None) -> Ticker:
        """A ticker whose turns are noted, or done by ``turn``."""

        def noted(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> None:
            self.turned.append(pool)

        return Ticker(
            self.stores,
            Settings(),
            clock or (lambda: self.now),
            home=self.home,
            bell=Bell(),
            metrics=self.metrics,
            condition=self.condition,
            turn=turn or noted,
        )


@pytest.fixture
def ticking(tmp_path: Path) -> Ticking:
    """Two pools with a job each."""
    stores = MemoryStores()
    with stores.transaction() as tx:
        tx.jobs.add(job("j1", name="a", pool=PoolName("one")))
        tx.jobs.add(job("j2", name="b", pool=PoolName("two")))
    return Ticking(tmp_path, stores)


def test_each_pool_with_unfinished_jobs_is_turned(ticking: Ticking) -> None:
    ticking.ticker().tick()
    assert sorted(ticking.turned) == ["one", "two"]


def test_a_pool_whose_lease_another_holds_is_left_alone(ticking: Ticking) -> None:
    with ticking.stores.transaction() as tx:
        until = NOW + timedelta(seconds=15)
        tx.leases.acquire(PoolName("one"), "another", until=until, now=NOW)
    ticking.ticker().tick()
    assert ticking.turned == ["two"]


def test_a_turn_writes_nothing_once_another_brain_has_the_lease(
    database_url: str, tmp_path: Path
) -> None:
    with closing(SqlStores(database_url)) as stores:
        with stores.transaction() as tx:
            tx.jobs.add(job("j1", name="a", pool=PoolName("one")))
        late, other = Ticking(tmp_path / "late", stores), Ticking(tmp_path / "other", stores)

        def slow(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> None:
            with stores.transaction() as tx:
                tx.events.add(event("first", job="j1"))
            # It is stopped for longer than its lease: an hour by the clock of both.
            late.now = other.now = NOW + timedelta(hours=1)
            other.ticker().tick()
            with stores.transaction() as tx:
                tx.events.add(event("late", job="j1"))

        late.ticker(slow).tick()
        with stores.transaction(read_only=True) as tx:
            kinds = [each.kind for each in tx.events.after(0)]
    assert other.turned == ["one"]
    assert "first" in kinds
    assert "late" not in kinds
    assert b'brain_lease_held{pool="one"} 0.0' in late.metrics.text()
    assert late.condition.degraded() == (), "the other Brain decides, so nothing is wrong"


def test_a_turn_that_is_slower_than_its_lease_goes_on_if_nobody_took_it(ticking: Ticking) -> None:
    def slow(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> None:
        ticking.now += timedelta(hours=1)
        with stores.transaction() as tx:
            tx.events.add(event("late", job=None))
        ticking.turned.append(pool)

    ticking.ticker(slow).tick()
    assert sorted(ticking.turned) == ["one", "two"]


def test_a_turn_that_fails_is_told_and_the_others_go_on(ticking: Ticking) -> None:
    def failing(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> None:
        if pool == "one":
            raise ZeroDivisionError("no steps")
        ticking.turned.append(pool)

    ticking.ticker(failing).tick()
    assert ticking.turned == ["two"]
    assert (
        "Brain cannot decide about pool one: ZeroDivisionError"
    ) in ticking.condition.degraded()[0]
    assert b'brain_ticks_total{outcome="failed",pool="one"} 1.0' in ticking.metrics.text()
    ticking.ticker().tick()
    assert ticking.condition.degraded() == ()


def test_a_job_that_a_turn_went_on_without_is_told(ticking: Ticking) -> None:
    def partly(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> cycle.Turn:
        return cycle.Turn(pool=pool, at=now, undecided={JobId("j1"): ZeroDivisionError("no steps")})

    ticking.ticker(partly).tick()
    assert "job j1: ZeroDivisionError: no steps" in ticking.condition.degraded()[0]
    assert b'brain_jobs_undecided{pool="one"} 1.0' in ticking.metrics.text()
    assert b'brain_ticks_total{outcome="partly",pool="one"} 1.0' in ticking.metrics.text()


def test_a_database_that_goes_and_comes_is_told_and_mended(ticking: Ticking) -> None:
    def lost(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> None:
        raise Unavailable("the disk is full")

    ticking.ticker(lost).tick()
    assert ticking.condition.degraded() == ("the disk is full",)
    ticking.ticker().tick()
    assert ticking.condition.degraded() == ()


def test_a_clock_set_back_an_hour_costs_no_lease_and_no_turn(ticking: Ticking) -> None:
    ticker = ticking.ticker()
    ticker.tick()
    ticking.now -= timedelta(hours=1)
    ticker.tick()
    ticking.ticker().tick()
    assert len(ticking.turned) == 6


def test_a_stopped_ticker_lets_go_of_its_leases(ticking: Ticking) -> None:
    ticker = ticking.ticker()
    ticker.start()
    ticker.stop(seconds=30)
    with ticking.stores.transaction() as tx:
        until = NOW + timedelta(seconds=15)
        taken = tx.leases.acquire(PoolName("one"), "another", until=until, now=NOW)
    assert taken is not None


def test_the_cycle_itself_admits_what_fits(tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
        metrics = Metrics()
        Ticker(
            api.stores,
            api.settings,
            lambda: api.now,
            home=tmp_path,
            bell=Bell(),
            metrics=metrics,
            condition=ServiceCondition(metrics),
        ).tick()
        assert admin.send(calls.job("digits")).job.state is JobState.STARTING


def test_what_is_over_goes_directories_of_ended_jobs_and_silent_nodes(tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.add_node()
    with api.client() as admin:
        id = admin.send(calls.submit(digits())).id
        admin.send(calls.cancel(id))
    directory = tmp_path / "replicas" / id
    (directory / "0").mkdir(parents=True)
    metrics = Metrics()
    ticker = Ticker(
        api.stores,
        api.settings,
        lambda: api.now,
        home=tmp_path,
        bell=Bell(),
        metrics=metrics,
        condition=ServiceCondition(metrics),
    )
    ticker.retain()
    assert directory.exists()
    api.now += timedelta(days=31)
    with api.stores.transaction() as tx:
        assert tx.nodes.of()
    ticker.retain()
    assert not directory.exists()
    with api.stores.transaction() as tx:
        assert not tx.nodes.of(), "nothing was heard of the node for a day"


def test_a_tick_that_takes_long_rests_as_long_although_it_is_hurried(ticking: Ticking) -> None:
    spans: list[tuple[float, float]] = []

    def turn(stores: Stores, pool: PoolName, settings: Settings, now: datetime) -> None:
        began = time.monotonic()
        time.sleep(0.2)
        spans.append((began, time.monotonic()))

    ticker = ticking.ticker(turn)
    ticker.start()
    while len(spans) < 6:
        ticker.hurry()
        time.sleep(0.01)
    ticker.stop(60)

    assert spans[2][0] - spans[1][1] >= spans[1][1] - spans[0][0] >= 0.4


def test_turns_go_on_while_old_samples_and_directories_are_deleted(ticking: Ticking) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def clock() -> datetime:
        if threading.current_thread().name == "retention":
            begun.set()
            assert go_on.wait(60)
        return NOW

    ticker = ticking.ticker(clock=clock)
    ticker.retain_at = 0.0
    ticker.tick()
    assert begun.wait(60)
    ticker.retain_at = 0.0
    ticker.tick()
    go_on.set()
    assert len(ticking.turned) == 4


def test_sessions_that_ended_are_forgotten_a_month_later(tmp_path: Path) -> None:
    api = Api(tmp_path)
    with api.http(api.token()) as admin:
        code = admin.post("/api/v1/sign-in-codes", json={"name": "ada"}).json()["code"]
    with api.http() as browser:
        browser.post("/api/v1/sign-in", json={"code": code})
    metrics = Metrics()
    ticker = Ticker(
        api.stores,
        api.settings,
        lambda: api.now,
        home=tmp_path,
        bell=Bell(),
        metrics=metrics,
        condition=ServiceCondition(metrics),
    )
    listed = []
    for days in (0, 36, 2):
        api.pass_time(days=days)
        ticker.retain()
        with api.client() as client:
            listed.append("ada" in [each.name for each in client.send(calls.tokens()).items])
    assert listed == [True, True, False]
