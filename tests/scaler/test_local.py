"""Agents as processes of this machine: who owns them, and who may die when."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from brain.confinement import job_directory, keep_in, make_place
from brain.types.job import JobId
from brain.types.resources import Resources
from brain.types.world import ReplicaExit
from launcher.values.replica import ReplicaIntent
from scaler.files import locked, read_json
from scaler.local import LocalBackend, LocalMachine
from scaler.local.directory import how, started_ticks
from scaler.ports import ReplicaPhase, ReplicaSeen
from scaler.reconcile import Close, Start, decide
from tests.disks import full_disk
from tests.scaler.wished import AGENT, JOB, NOW, end_all, eventually, order, wish

ROOT = Path(__file__).parents[2]
OTHER = JobId("01998f00-0000-7000-8000-000000000002")
ROOMY = LocalMachine(capacity=Resources(cpu_millis=8000, memory_bytes=2**33))


def backend_at(
    home: Path, *, machine: LocalMachine = ROOMY, base: dict[str, str] | None = None
) -> LocalBackend:
    return LocalBackend(
        home,
        measure=lambda: machine,
        name="here",
        url="http://127.0.0.1:1",
        agent=AGENT,
        base=dict(os.environ) if base is None else base,
    )


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LocalBackend]:
    made = backend_at(tmp_path)
    yield made
    end_all(made)


@contextmanager
def restarted(home: Path) -> Iterator[LocalBackend]:
    """A backend in the place of one that is gone."""
    made = backend_at(home)
    yield made
    end_all(made)


def at(home: Path, replica: int = 0) -> Path:
    return home / "replicas" / JOB / str(replica)


def running(backend: LocalBackend, replica: int = 0) -> ReplicaSeen:
    return reaching(backend, ReplicaPhase.RUNNING, replica)


def reaching(backend: LocalBackend, phase: ReplicaPhase, replica: int = 0) -> ReplicaSeen:
    def found() -> ReplicaSeen | None:
        replicas = {seen.id: seen for seen in backend.observe(JOB, NOW).replicas}
        seen = replicas.get(replica)
        return seen if seen is not None and seen.phase is phase else None

    return eventually(f"replica {replica} {phase}", found)


def reconcile(backend: LocalBackend, replicas: int = 1) -> None:
    asked = order(wish(replicas))
    for action in decide(asked, backend.observe(JOB, NOW), NOW):
        match action:
            case Start(replica, _):
                backend.start(wish(replicas), replica, {}, NOW)
            case Close(replica, exit, detail):
                backend.close(JOB, replica, exit, detail, NOW)


def pid_of(home: Path, replica: int = 0) -> int:
    return int(json.loads((at(home, replica) / "state.json").read_text())["pid"])


def killed(backend: LocalBackend, *pids: int) -> None:
    """Kill agents, and wait until the backend has collected their exit codes."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)

    def collected() -> bool | None:
        backend.observe(JOB, NOW)
        return None if any(Path(f"/proc/{pid}").exists() for pid in pids) else True

    eventually("agents are collected", collected)


def starts(home: Path) -> dict[int, int]:
    """How often an agent took the lock of each replica."""
    folders = [path for path in (home / "replicas" / JOB).iterdir() if path.is_dir()]
    return {
        int(path.name): len((path / "starts").read_text().splitlines())
        for path in folders
        if (path / "starts").exists()
    }


def test_the_intent_is_what_the_agent_reads(backend: LocalBackend, tmp_path: Path):
    asked = wish(2, generation=5, checkpoint={"path": "model.pt"}, resources={"gpus": 0})
    backend.start(asked, 0, {}, NOW)

    intent = read_json(at(tmp_path) / "intent.json", ReplicaIntent)
    assert intent is not None
    assert (intent.job, intent.generation, intent.command) == (JOB, 5, ("python", "train.py"))
    assert (intent.checkpoint.path, intent.directory) == ("model.pt", "/")
    assert intent.token_file == str(tmp_path / "replicas" / JOB / "token")


def test_nothing_is_readable_by_others(backend: LocalBackend, tmp_path: Path):
    backend.start(wish(), 0, {"KEY": "value"}, NOW)
    backend.put_token(JOB, "brn_secret")
    running(backend)

    ours = [
        tmp_path / "replicas",
        at(tmp_path).parent / "token",
        at(tmp_path),
        at(tmp_path) / "intent.json",
        at(tmp_path) / "agent.log",
    ]
    assert [path.name for path in ours if path.stat().st_mode & 0o077] == []


def test_no_value_of_the_environment_is_written(backend: LocalBackend, tmp_path: Path):
    backend.start(wish(), 0, {"KEY": "hunter2"}, NOW)
    running(backend)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []


def test_an_agent_has_a_clean_environment_and_the_jobs_over_it(tmp_path: Path):
    base = dict(os.environ) | {"BRAIN_TOKEN": "brn_admin", "LANG": "C", "LC_ALL": "C.UTF-8"}
    backend = backend_at(tmp_path, base=base)
    backend.start(wish(), 0, {"LANG": "de_DE.UTF-8"}, NOW)
    running(backend)

    pairs = Path(f"/proc/{pid_of(tmp_path)}/environ").read_text().split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs if pair)
    end_all(backend)
    assert (environment["LANG"], environment["LC_ALL"]) == ("de_DE.UTF-8", "C.UTF-8")
    assert "BRAIN_TOKEN" not in environment


def test_an_agent_has_a_session_and_a_directory_of_its_own(backend: LocalBackend, tmp_path: Path):
    backend.start(wish(directory=str(tmp_path)), 0, {}, NOW)
    running(backend)

    pid = pid_of(tmp_path)
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == tmp_path
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)


def test_a_directory_that_does_not_exist_fails_with_its_name(backend: LocalBackend):
    backend.start(wish(directory="/no/such/place"), 0, {}, NOW)

    seen = reaching(backend, ReplicaPhase.ENDED)
    assert seen.exit is ReplicaExit.FAILED
    assert "/no/such/place: No such file or directory" in seen.detail


@pytest.mark.parametrize("environment", [{"A=B": "1"}, {"A": "1\0"}])
def test_an_environment_that_no_process_can_have_fails_that_replica_alone(
    backend: LocalBackend, environment: dict[str, str]
):
    backend.start(wish(), 0, environment, NOW)

    seen = reaching(backend, ReplicaPhase.ENDED)
    assert seen.exit is ReplicaExit.FAILED
    assert "no agent can be started" in (seen.detail or "")


def test_one_that_dies_before_its_lock_says_how(backend: LocalBackend):
    backend.start(wish(), 0, {"FAKE_AGENT": "mute"}, NOW)

    seen = reaching(backend, ReplicaPhase.GONE)
    assert seen.detail == "its agent exited with code 1; its last output: no such interpreter"


def test_one_that_is_killed_says_by_what(backend: LocalBackend, tmp_path: Path):
    backend.start(wish(), 0, {}, NOW)
    running(backend)
    os.kill(pid_of(tmp_path), signal.SIGKILL)

    assert reaching(backend, ReplicaPhase.GONE).detail == "its agent was ended by SIGKILL"


def test_one_that_is_still_ending_is_gone_once_its_exit_code_is_known(
    backend: LocalBackend, tmp_path: Path
):
    backend.start(wish(), 0, {"FAKE_AGENT": "linger"}, NOW)
    eventually("the lock is let go", lambda: (at(tmp_path) / "let-go").exists() or None)

    assert running(backend).alive
    backend.stop(JOB, 0, force=False, now=NOW)
    assert reaching(backend, ReplicaPhase.GONE).detail == "its agent exited with code 9"


def test_an_agent_that_is_slow_to_take_its_lock_is_waited_for(
    backend: LocalBackend, tmp_path: Path
):
    backend.start(wish(), 0, {"FAKE_AGENT": "slow"}, NOW)

    assert reaching(backend, ReplicaPhase.STARTING).alive
    with restarted(tmp_path) as second:
        assert reaching(second, ReplicaPhase.STARTING).alive
        reconcile(second)
        (at(tmp_path) / "go").touch()
        assert running(second).alive
    assert starts(tmp_path) == {0: 1}


def test_a_restarted_scaler_adopts_what_runs(backend: LocalBackend, tmp_path: Path):
    reconcile(backend, 2)
    running(backend, 0)
    running(backend, 1)

    with restarted(tmp_path) as second:
        reconcile(second, 2)
        assert [seen.phase for seen in second.observe(JOB, NOW).replicas] == [
            ReplicaPhase.RUNNING
        ] * 2
    assert starts(tmp_path) == {0: 1, 1: 1}


def test_an_adopted_agent_can_be_asked_to_leave(backend: LocalBackend, tmp_path: Path):
    reconcile(backend)
    running(backend)

    with restarted(tmp_path) as second:
        second.stop(JOB, 0, force=False, now=NOW)
        assert reaching(second, ReplicaPhase.ENDED).exit is ReplicaExit.LEFT


def test_two_scalers_at_once_start_every_replica_once(backend: LocalBackend, tmp_path: Path):
    sight = backend.observe(JOB, NOW)
    actions = decide(order(wish(3)), sight, NOW)

    with restarted(tmp_path) as second:
        for action in actions:
            assert isinstance(action, Start)
            backend.start(wish(3), action.replica, {}, NOW)
            second.start(wish(3), action.replica, {}, NOW)
        for replica in range(3):
            running(second, replica)
    assert starts(tmp_path) == {0: 1, 1: 1, 2: 1}


def test_after_a_reboot_a_lost_replica_is_followed_by_another(tmp_path: Path):
    before = backend_at(tmp_path)
    before.start(wish(), 0, {}, NOW)
    running(before)
    # What a reboot leaves: files, and neither processes nor locks; the pid means somebody else.
    end_all(before)
    state = at(tmp_path) / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"pid": os.getpid()}))

    with restarted(tmp_path) as after:
        reconcile(after)
        running(after, 1)
        ended = after.observe(JOB, NOW).replicas[0]
    assert (ended.exit, ended.detail) == (
        ReplicaExit.LOST,
        "its agent disappeared without writing a reason",
    )


def test_a_stranger_with_the_agents_number_is_never_signalled(
    backend: LocalBackend, tmp_path: Path
):
    backend.start(wish(), 0, {}, NOW)
    running(backend)
    agent, state = pid_of(tmp_path), at(tmp_path) / "state.json"
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state.write_text(json.dumps(json.loads(state.read_text()) | {"pid": stranger.pid}))

    with restarted(tmp_path) as second:
        second.stop(JOB, 0, force=True, now=NOW)
        assert stranger.poll() is None
        os.kill(agent, signal.SIGKILL)
    stranger.communicate(b"\n", timeout=20)
    assert stranger.returncode == 0


def test_a_process_that_a_job_names_as_its_agent_is_neither_ended_nor_read(
    backend: LocalBackend, tmp_path: Path
):
    backend.start(wish(), 0, {"KEY": "own"}, NOW)
    running(backend)
    assert backend.environment(JOB, frozenset({"KEY"})) == {"KEY": "own"}

    command = [sys.executable, "-c", "input()", "--replica-dir", "/another"]
    secret = os.environ | {"KEY": "another's"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=secret) as stranger:
        state, agent = at(tmp_path) / "state.json", pid_of(tmp_path)
        named = {"pid": stranger.pid, "started_ticks": started_ticks(stranger.pid)}
        state.write_text(json.dumps(json.loads(state.read_text()) | named))
        with restarted(tmp_path) as second:
            second.stop(JOB, 0, force=True, now=NOW)
            assert second.environment(JOB, frozenset({"KEY"})) is None
            assert stranger.poll() is None
            os.kill(agent, signal.SIGKILL)
        stranger.communicate(b"\n", timeout=20)
    assert stranger.returncode == 0


def test_a_directory_that_a_job_makes_is_not_another_job_s(backend: LocalBackend, tmp_path: Path):
    place = make_place(tmp_path, "eve")
    planted = place / "brain" / "replicas" / JOB
    planted.mkdir(parents=True)

    backend.put_token(JOB, "secret")
    reconcile(backend)
    running(backend)

    assert list(planted.iterdir()) == []
    assert job_directory(tmp_path, JOB) == tmp_path / "replicas" / JOB


def test_a_job_that_is_kept_apart_stays_so_when_it_has_no_member_any_more(
    backend: LocalBackend, tmp_path: Path
):
    """The service after a restart may find that this machine keeps no job apart."""
    place = make_place(tmp_path, "ada")
    keep_in(tmp_path, place, JOB).mkdir(parents=True)

    assert wish().member is None
    backend.start(wish(), 0, {}, NOW)

    intent = read_json(job_directory(tmp_path, JOB) / "0" / "intent.json", ReplicaIntent)
    assert backend.jobs() == [JOB]
    assert intent is not None
    assert intent.home == str(place / "brain")


@pytest.mark.parametrize("name", ["intent.json", "state.json", "limits.json", "lock", "exit.json"])
def test_a_job_that_damages_its_own_directory_keeps_no_other_from_starting(
    backend: LocalBackend, tmp_path: Path, name: str
):
    damaged = tmp_path / "replicas" / OTHER / "0" / name
    damaged.mkdir(parents=True)
    (damaged.parents[1] / "\N{SUPERSCRIPT TWO}").mkdir()
    (damaged.parent / "state.json").touch()

    reconcile(backend)

    assert running(backend).alive


def test_a_lock_that_is_held_outweighs_every_record(backend: LocalBackend, tmp_path: Path):
    backend.start(wish(), 0, {}, NOW)
    running(backend)
    record = {"exit": "lost", "detail": "rumour", "at": NOW.isoformat()}
    (at(tmp_path) / "gone.json").write_text(json.dumps(record))

    assert running(backend).alive
    assert locked(at(tmp_path) / "lock")


def test_a_directory_without_an_intent_only_uses_its_number_up(
    backend: LocalBackend, tmp_path: Path
):
    at(tmp_path, 6).mkdir(parents=True)

    seen = backend.observe(JOB, NOW)
    assert (seen.replicas, seen.next_id) == ((), 7)


def test_a_replica_whose_record_is_damaged_still_counts_while_it_lives(
    backend: LocalBackend, tmp_path: Path
):
    reconcile(backend, 2)
    running(backend, 0)
    running(backend, 1)
    (at(tmp_path, 1) / "intent.json").write_text("{")

    assert [seen.phase for seen in backend.observe(JOB, NOW).replicas] == [ReplicaPhase.RUNNING] * 2


def test_a_damaged_one_counts_until_its_exit_code_is_known(backend: LocalBackend, tmp_path: Path):
    backend.start(wish(), 0, {"FAKE_AGENT": "linger"}, NOW)
    eventually("the lock is let go", lambda: (at(tmp_path) / "let-go").exists() or None)
    (at(tmp_path) / "intent.json").write_text("{")

    assert running(backend).alive
    backend.stop(JOB, 0, force=False, now=NOW)
    eventually("it has ended", lambda: not backend.observe(JOB, NOW).replicas or None)


def test_what_was_damaged_before_it_started_only_uses_its_number_up(
    backend: LocalBackend, tmp_path: Path
):
    at(tmp_path).mkdir(parents=True)
    (at(tmp_path) / "intent.json").write_text("{")

    seen = backend.observe(JOB, NOW)
    assert (seen.replicas, seen.next_id) == ((), 1)


def test_the_world_document_names_who_may_not_be_removed(backend: LocalBackend, tmp_path: Path):
    reconcile(backend)
    members = [{"replica": 0, "group_rank": 0}, {"replica": 3, "group_rank": 1}]
    document = {"v": 1, "epoch": 2, "members": members}
    (at(tmp_path).parent / "world.json").write_text(json.dumps(document))

    assert backend.observe(JOB, NOW).named == {0, 3}


def test_replicas_get_devices_of_their_own(tmp_path: Path):
    machine = LocalMachine(
        capacity=Resources(cpu_millis=8000, gpus=2), accelerator="H200", gpus=("4", "6")
    )
    backend = backend_at(tmp_path, machine=machine)
    for replica in range(2):
        backend.start(wish(2, resources={"gpus": 1}), replica, {}, NOW)
        running(backend, replica)

    environments = [
        Path(f"/proc/{pid_of(tmp_path, replica)}/environ").read_text() for replica in range(2)
    ]
    free = backend.observe(JOB, NOW).free.gpus
    end_all(backend)
    assert ["CUDA_VISIBLE_DEVICES=4\0" in environments[0], free] == [True, 0]
    assert "CUDA_VISIBLE_DEVICES=6\0" in environments[1]


def test_replicas_fail_with_the_reason_if_their_jobs_directory_was_deleted(
    backend: LocalBackend, tmp_path: Path
):
    for replica in range(2):
        backend.start(wish(2), replica, {}, NOW)
        running(backend, replica)
    pids = [pid_of(tmp_path, replica) for replica in range(2)]
    shutil.rmtree(tmp_path / "replicas" / JOB)

    seen = backend.observe(JOB, NOW)
    killed(backend, *pids)
    assert [one.exit for one in seen.replicas] == [ReplicaExit.FAILED] * 2
    assert seen.replicas[0].detail.startswith("its directory is gone: somebody deleted")
    assert not any(isinstance(each, Start) for each in decide(order(wish(2)), seen, NOW))
    assert backend.observe(JOB, NOW).replicas == seen.replicas


def test_nothing_is_kept_of_a_finished_job_whose_directory_was_deleted(
    backend: LocalBackend, tmp_path: Path
):
    backend.start(wish(), 0, {}, NOW)
    running(backend)
    pid = pid_of(tmp_path, 0)
    shutil.rmtree(tmp_path / "replicas" / JOB)
    backend.observe(JOB, NOW)
    killed(backend, pid)

    assert backend.jobs() == [JOB]
    backend.clear(JOB)
    assert (backend.jobs(), backend.observe(JOB, NOW).replicas) == ([], ())


def test_a_replica_whose_directory_alone_was_deleted_is_replaced(
    backend: LocalBackend, tmp_path: Path
):
    for replica in range(2):
        backend.start(wish(2), replica, {}, NOW)
        running(backend, replica)
    pid = pid_of(tmp_path, 1)
    shutil.rmtree(at(tmp_path, 1))

    seen = backend.observe(JOB, NOW)
    killed(backend, pid)
    assert [one.exit for one in seen.replicas] == [None, ReplicaExit.LOST]
    assert Start(2, 0) in decide(order(wish(2)), seen, NOW)


def test_a_deaf_agent_is_ended_by_force(backend: LocalBackend):
    backend.start(wish(), 0, {"FAKE_AGENT": "deaf"}, NOW)
    running(backend)
    backend.stop(JOB, 0, force=False, now=NOW)
    first = running(backend).asked_at
    backend.stop(JOB, 0, force=True, now=NOW + timedelta(seconds=20))

    assert reaching(backend, ReplicaPhase.GONE).asked_at == first == NOW


def test_killed_at_any_point_the_scaler_goes_on_without_a_second_start(tmp_path: Path):
    kills = 0
    while True:
        home = tmp_path / str(kills)
        ran = subprocess.run(
            [sys.executable, "-m", "tests.scaler.killed_scaler", str(home), str(kills + 1)],
            cwd=ROOT,
            timeout=60,
            capture_output=True,
            text=True,
        )
        with restarted(home) as second:
            reconcile(second)
            alive = [seen.id for seen in second.observe(JOB, NOW).replicas if seen.alive]
            assert len(alive) == 1, f"after kill {kills + 1}: {alive} live"
            running(second, alive[0])
        assert set(starts(home).values()) == {1}, f"after kill {kills + 1}: {starts(home)}"
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        kills += 1
    assert kills >= 8, "the scaler does more than this to start a replica"


def test_a_full_disk_leaves_no_directory_of_a_replica_that_never_was(
    backend: LocalBackend,
) -> None:
    with full_disk(), pytest.raises(OSError, match="File too large"):
        backend.start(wish(1), 0, {}, NOW)

    assert backend.observe(JOB, NOW).next_id == 0


def test_an_agent_ended_by_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert how(-40, "") == "its agent was ended by signal 40"
