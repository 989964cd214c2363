"""Who failed first, of what, and what follows."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.health.staged import CASES, machine, play, signs
from brain.types.diagnosis import FailureKind
from brain.types.resources import NodeName
from launcher.values.diagnosis import slowness
from launcher.values.diagnosis.first import Failed, FinishedWorker, GoneNode, diagnose
from launcher.values.diagnosis.kinds import cause, exception_in, place_in
from launcher.values.diagnosis.policy import Occurrence, consequence
from launcher.values.diagnosis.signs import Signs
from launcher.workers.processes import evidence

RESET = (
    'Traceback (most recent call last):\n  File "t.py", line 9, in <module>\n'
    "RuntimeError: Connection closed by peer [10.0.0.2]:3\n"
)
BUG = 'Traceback (most recent call last):\n  File "/job/train.py", line 17, in step\nKeyError: 3\n'


def failed(rank: int, *, code: int = 1, at: float = 10.0, said: str = "", **more: object) -> Failed:
    made = Signs(traceback=said, **more)  # type: ignore[arg-type]
    return Failed(
        rank=rank, replica=rank, node=NodeName("n"), code=code, message="", signs=made, heard_at=at
    )


def bug(step: int | None, **changes: object) -> Occurrence:
    known = {"kind": FailureKind.CODE, "node": NodeName("n"), "signature": "KeyError at t.py:1"}
    return Occurrence(**(known | {"step": step, "replica": 1} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [c for c in CASES if not c.real], ids=lambda case: case.name)
def test_what_was_recorded_is_named(case: object) -> None:
    told = play(case)  # type: ignore[arg-type]
    assert told is not None
    assert (told.kind, told.rank) == (case.kind, case.rank)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("TimeoutError: The read operation timed out", FailureKind.NETWORK),
        ("socket.timeout: timed out", FailureKind.NETWORK),
        ("http.client.RemoteDisconnected: Remote end closed", FailureKind.NETWORK),
        ("urllib3.exceptions.IncompleteRead: IncompleteRead(3 bytes)", FailureKind.NETWORK),
        ("ssl.SSLError: [SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC]", FailureKind.NETWORK),
        ("requests.exceptions.HTTPError: 503 Server Error: x for url: u", FailureKind.STORAGE),
        ("google.api_core.exceptions.ServiceUnavailable: 503 x", FailureKind.STORAGE),
        (
            "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling PutObject",
            FailureKind.STORAGE,
        ),
        ("urllib.error.HTTPError: HTTP Error 502: Bad Gateway", FailureKind.STORAGE),
        ("ValueError: 503 is no label", FailureKind.CODE),
        ("KeyError: 'timeout'", FailureKind.CODE),
        ("RuntimeError: CUDA error: misaligned address", FailureKind.CODE),
        ("urllib.error.HTTPError: HTTP Error 404: Not Found", FailureKind.CODE),
    ],
)
def test_a_fault_that_may_pass_is_no_bug_of_the_script(words: str, kind: FailureKind) -> None:
    said = f'Traceback (most recent call last):\n  File "/job/t.py", line 9, in f\n{words}\n'
    assert cause(1, "", Signs(traceback=said)).kind is kind


def test_a_rank_that_lost_its_peer_is_not_the_first_although_it_was_heard_first() -> None:
    found = diagnose([failed(0, at=9, said=RESET), failed(1, at=11, said=BUG)])
    assert found is not None
    assert (found.rank, found.kind) == (1, FailureKind.CODE)
    assert found.sentence == (
        "rank 1 exited with code 1: KeyError: 3 (train.py:17); it failed first, on n: "
        "an error in the script"
    )


GLOO = BUG.replace(
    "KeyError: 3", "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed"
)
S3 = BUG.replace("KeyError: 3", "ConnectionResetError: [Errno 104] Connection reset by peer")


@pytest.mark.parametrize(
    ("said", "heard_at", "culprit"),
    [(GLOO, 5.0, 0), (GLOO, 11.0, 1), (S3, 5.0, 1), (BUG, 5.0, 1)],
    ids=["left its peer", "ended later", "another network", "a bug"],
)
def test_a_rank_that_ended_with_0_is_blamed_for_a_broken_collective_only(
    said: str, heard_at: float, culprit: int
) -> None:
    left = FinishedWorker(rank=0, replica=0, node=NodeName("n"), heard_at=heard_at)
    found = diagnose([failed(1, said=said)], finished=[left])
    assert found is not None
    assert found.rank == culprit


CHAIN = (
    'Traceback (most recent call last):\n  File "t.py", line 1\n{first}\n\n'
    "The above exception was the direct cause of the following exception:\n\n"
    'Traceback (most recent call last):\n  File "t.py", line 2\n{last}\n'
)


@pytest.mark.parametrize(
    ("first", "last", "kind"),
    [
        ("OSError: [Errno 28] No space left on device", "SaveFailed: x", FailureKind.STORAGE),
        ("KeyError: 3", "ValueError: no such layer", FailureKind.CODE),
        ("KeyError: 3", "RuntimeError: CUDA out of memory", FailureKind.DEVICE_MEMORY),
    ],
)
def test_the_origin_tells_the_kind_where_the_last_exception_does_not(
    first: str, last: str, kind: FailureKind
) -> None:
    assert cause(1, "", Signs(traceback=CHAIN.format(first=first, last=last))).kind is kind


def test_a_save_that_failed_with_space_left_is_no_full_disk() -> None:
    signs = Signs(traceback=BUG, saving="/data/model.pt", free_bytes=1 << 30)
    assert cause(1, "", signs).kind is FailureKind.CODE


def test_of_two_bugs_the_one_that_was_raised_first_counts() -> None:
    late = failed(0, at=10, said=BUG)
    early = failed(1, at=12, said=BUG, lag_seconds=5.0)
    found = diagnose([late, early])
    assert found is not None
    assert found.rank == 1


TIMED_OUT = BUG.replace("KeyError: 3", "RuntimeError: Watchdog caught collective operation timeout")


@pytest.mark.parametrize("said", [BUG, TIMED_OUT], ids=["a bug", "a collective that timed out"])
def test_a_rank_that_was_ended_while_its_error_was_on_its_way_out_is_the_first(said: str) -> None:
    victim = failed(0, at=10, said=RESET)
    culprit = Failed(
        rank=1,
        replica=1,
        node=NodeName("n"),
        code=-signal.SIGKILL,
        message="",
        signs=Signs(traceback=said, lag_seconds=2.0),
        heard_at=11,
        stopped=True,
    )
    found = diagnose([victim, culprit])
    assert found is not None
    assert (found.rank, found.exit_code) == (1, 1)


def test_a_rank_that_lost_its_peers_as_all_were_asked_to_end_is_no_failure() -> None:
    asked = replace(failed(0, said=RESET), stopped=True)
    assert diagnose([asked]) is None


def test_ranks_that_were_asked_to_end_are_no_failures() -> None:
    asked = Failed(
        rank=0,
        replica=0,
        node=NodeName("n"),
        code=-signal.SIGTERM,
        message="",
        signs=Signs(),
        heard_at=1,
        stopped=True,
    )
    assert diagnose([asked]) is None


def test_a_bug_counts_before_a_node_that_went_with_it() -> None:
    gone = [GoneNode(replica=2, node=NodeName("m"))]
    found = diagnose([failed(1, said=BUG)], gone=gone)
    assert found is not None
    assert found.kind is FailureKind.CODE


def test_the_innermost_frame_of_the_script_is_the_place() -> None:
    text = BUG.replace(
        "KeyError: 3",
        '  File "/env/lib/python3.11/site-packages/torch/x.py", line 5, in f\nKeyError',
    )
    assert (place_in(text), exception_in(text)) == ("train.py:17", "KeyError")


def test_ranks_in_front_of_lines_are_looked_through() -> None:
    text = "".join(f"[rank1]: {line}\n" for line in BUG.splitlines())
    assert exception_in(text) == "KeyError: 3"


def test_a_kill_is_no_want_of_memory_where_the_kernel_counted_none(tmp_path: Path) -> None:
    machine(tmp_path, oom_kill=3, host_oom_kill=3)
    before = evidence.baseline(tmp_path)
    assert cause(-9, "", signs(tmp_path, -9, before)).kind is FailureKind.KILLED


def test_a_want_of_memory_elsewhere_is_not_ours(tmp_path: Path) -> None:
    machine(tmp_path, oom_kill=3, host_oom_kill=3)
    before = evidence.baseline(tmp_path)
    machine(tmp_path, oom_kill=3, host_oom_kill=4)
    assert signs(tmp_path, -9, before).host_oom_kills == 0


def test_an_xid_of_before_is_an_old_one(tmp_path: Path) -> None:
    said = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus."
    machine(tmp_path, log=f"4,1,1000000,-;{said}\n4,2,9000000,-;{said.replace('79', '31')}\n")
    assert evidence.xids(2.0, tmp_path) == ("31 0000:3b:00",)


def test_an_xid_that_scripts_make_is_no_broken_card() -> None:
    found = cause(1, "", Signs(traceback=BUG, xids=("31 0000:3b:00",)))
    assert found.kind is FailureKind.CODE


def test_a_bug_at_its_step_again_ends_the_job() -> None:
    told = consequence([bug(12), bug(12)], spare=True)
    assert told.give_up.startswith("KeyError at t.py:1 failed 2 times at step 12")


def test_device_memory_that_was_short_at_its_step_again_ends_the_job() -> None:
    short = bug(12, kind=FailureKind.DEVICE_MEMORY)
    assert consequence([short, short], spare=True).give_up.endswith("too, with this batch")


def test_device_memory_that_was_short_twice_before_the_first_step_ends_the_job() -> None:
    short = bug(None, kind=FailureKind.DEVICE_MEMORY)
    assert consequence([short], spare=True).give_up == ""
    told = consequence([short, short], spare=True)
    assert told.give_up == (
        "KeyError at t.py:1 failed 2 times before the first step; another restart would fail "
        "there, too, with this batch"
    )


@pytest.mark.parametrize(
    "before",
    [
        bug(11),
        bug(12, signature="ValueError at t.py:1"),
        bug(12, kind=FailureKind.NETWORK),
        bug(None),
    ],
)
def test_another_bug_or_another_step_is_tried_again(before: Occurrence) -> None:
    assert consequence([before, bug(12)], spare=True).give_up == ""


def test_others_that_stayed_are_not_said_to_go_back() -> None:
    told = consequence([bug(3)], spare=True, staying=True).told
    assert told == (
        "the other replicas continue at once; the failed replica restarts in place and joins them"
    )


def test_what_never_stepped_is_tried_as_often_as_is_allowed() -> None:
    assert consequence([bug(None)] * 5, spare=True).give_up == ""


def test_a_broken_card_is_left_at_once_where_the_others_are_enough() -> None:
    card = bug(3, kind=FailureKind.DEVICE)
    assert consequence([card], spare=True).leave == (1,)
    assert consequence([card], spare=False).leave == ()


def test_a_node_that_fails_first_three_times_in_a_row_is_left() -> None:
    crash = bug(3, kind=FailureKind.CRASH)
    other = bug(4, kind=FailureKind.CRASH, node=NodeName("m"))
    assert consequence([crash, crash, crash], spare=True).leave == (1,)
    assert consequence([crash, other, crash], spare=True).leave == ()


def test_transient_faults_restart_in_place() -> None:
    told = consequence([bug(3, kind=FailureKind.NETWORK)], spare=True)
    assert (told.leave, told.give_up, told.told) == (
        (),
        "",
        "the workers restart in place, from the last checkpoint",
    )


def a_time(replica: int, own: float, samples: int = 20) -> slowness.RankTime:
    return slowness.RankTime(
        rank=replica,
        replica=replica,
        node=NodeName(f"n{replica}"),
        step_seconds=1.5,
        wait_seconds=1.5 - own,
        samples=samples,
    )


def test_the_rank_that_does_not_wait_is_the_slow_one() -> None:
    found = slowness.slowest([a_time(0, 1.0), a_time(1, 1.0), a_time(2, 1.45)], 1.15)
    assert found is not None
    assert (found.replica, found.ratio) == (2, pytest.approx(1.45))


def test_without_waits_nobody_is_called_slow() -> None:
    assert slowness.slowest([a_time(0, 1.0), a_time(1, 1.45, samples=0)], 1.15) is None


def test_a_little_slower_is_not_worth_a_replica() -> None:
    slow = slowness.SlowSuspect(replica=1, node=NodeName("n"), ratio=1.15, usual_seconds=1.0)
    left = {"replicas": 4, "left": 3, "restart_seconds": 30.0}
    assert not slowness.pays(slow, horizon_seconds=1e6, **left)  # type: ignore[arg-type]
    eight = {"replicas": 8, "left": 7, "restart_seconds": 30.0}
    assert slowness.pays(slow, horizon_seconds=1e6, **eight)  # type: ignore[arg-type]
    assert not slowness.pays(slow, horizon_seconds=60.0, **eight)  # type: ignore[arg-type]


BUS = (
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory. Please try to raise your shared memory limit."
)


@pytest.mark.parametrize(
    ("code", "signs"),
    [
        (1, Signs(traceback=BUG.replace("KeyError: 3", BUS), shm_bytes=64 << 20)),
        (1, Signs(tail=f"ERROR: {BUS}", shm_bytes=64 << 20)),
        (-signal.SIGBUS, Signs(shm_bytes=64 << 20)),
    ],
    ids=["a loader's worker", "in the tail", "the rank itself"],
)
def test_a_bus_error_of_loaders_is_full_shared_memory_and_says_the_remedy(
    code: int, signs: Signs
) -> None:
    found = cause(code, "", signs)
    assert found.kind is FailureKind.SHARED_MEMORY
    assert "/dev/shm, which has 64 MiB" in found.meaning
    assert "--shm-size" in found.meaning


def test_a_bus_error_with_shared_memory_in_plenty_is_a_crash() -> None:
    assert cause(-signal.SIGBUS, "", Signs(shm_bytes=8 << 30)).kind is FailureKind.CRASH


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (-signal.SIGPIPE, "nobody reads any more"),
        (-signal.SIGALRM, "a timer that it had set ran out"),
        (-signal.SIGXCPU, "its own limit on processor time"),
        (128 + signal.SIGXCPU, "its own limit on processor time"),
        (-signal.SIGXFSZ, "its own limit on the size of files"),
        (-signal.SIGTERM, "a person or program killed the process"),
        (128 + signal.SIGKILL, "a person or program killed the process"),
    ],
)
def test_a_signal_that_the_process_brought_upon_itself_is_no_kill_by_others(
    code: int, meaning: str
) -> None:
    found = diagnose([replace(failed(0), code=code)])
    assert found is not None
    assert meaning in found.sentence
