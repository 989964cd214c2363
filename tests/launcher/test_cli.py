"""``brain-run`` as a person meets it: help, refusals, codes, signals, a real process group."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from brain.errors import BadInput
from launcher.command.entrypoint import Entrypoint, parse_command
from launcher.command.torchrun.devices import processes_of
from launcher.options import launch_config, nodes
from launcher.values.config import Std
from tests.launcher.elastic import eventually

BRAIN_RUN = [sys.executable, "-m", "launcher.cli"]


def brain_run(
    directory: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*BRAIN_RUN, *arguments],
        cwd=directory,
        env=dict(os.environ) | {"HOME": str(directory)} | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def a_script(directory: Path, lines: str) -> str:
    (directory / "train.py").write_text(lines)
    return "train.py"


def options(tmp_path: Path, *arguments: str) -> Entrypoint:
    a_script(tmp_path, "")
    return parse_command(["brain-run", *arguments, "train.py"], os.environ, str(tmp_path))


def test_help_is_there_before_a_person_waits_and_without_heavy_modules(tmp_path: Path) -> None:
    lines = (
        "import sys, launcher.cli\n"
        "code = launcher.cli.main(['--help'])\n"
        "heavy = {'torch', 'asyncio', 'httpx2', 'msgspec', 'numpy'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else code)\n"
    )
    command = [sys.executable, "-c", lines]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert all(word in ran.stdout for word in ("--rdzv-conf", "--node_unit", "--brain"))


def test_an_agent_imports_no_http_client_before_it_has_a_brain_to_talk_to() -> None:
    lines = (
        "import sys, launcher.agent.program\n"
        "sys.exit(str({'httpx2', 'brain.client', 'brain.views'} & set(sys.modules) or ''))\n"
    )
    ran = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)
    assert ran.stderr.strip() == ""


def test_help_takes_less_than_300_ms() -> None:
    def seconds() -> float:
        """Of a processor, which no neighbour on the machine can make longer."""
        before = os.times()
        subprocess.run([*BRAIN_RUN, "--help"], capture_output=True, timeout=60, check=True)
        after = os.times()
        return after.children_user + after.children_system - sum(before[2:4])

    assert min(seconds() for _ in range(5)) < 0.3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope.py"], "nope.py does not exist in"),
        (["--bogus", "train.py"], "--bogus"),
        (["--nnodes=3:1", "train.py"], "--nnodes=3:1: MIN must be at least 1 and at most MAX"),
        (["--nproc-per-node=many", "train.py"], "--nproc-per-node=many"),
        (["--nproc-per-node=0", "train.py"], "give 1 or more"),
        (["--tee=7", "train.py"], "--tee=7 is not valid"),
        (["--local-ranks-filter=a", "train.py"], "--local-ranks-filter=a"),
        (["--signals-to-handle=SIGKILL", "train.py"], "a process cannot handle SIGKILL"),
        (
            ["--checkpoint-signal=USR1", "train.py"],
            "--checkpoint-signal: a process cannot handle USR1",
        ),
        (["--rdzv-conf=a", "train.py"], "--rdzv-conf=a is not KEY=VALUE"),
        (
            ["--rdzv-conf=keep_alive_interval=a", "train.py"],
            "keep_alive_interval=a is not a number",
        ),
        (
            ["--local-addr=192.0.2.1", "train.py"],
            "--local-addr=192.0.2.1 is not an address of this",
        ),
        (
            ["--rdzv-conf=keep_alive_interval=inf", "train.py"],
            "interval=inf is not a number above 0",
        ),
        (["--log-dir=train.py", "train.py"], "is a file; give a directory"),
        (["--max-restarts=-1", "train.py"], "--max-restarts=-1 must be at least 0"),
        (["--node_unit=0", "train.py"], "--node-unit=0 must be at least 1"),
        (["--node_unit=2", "train.py"], "give --nnodes=2 or more"),
        (
            ["--event-log-handler=x", "train.py"],
            "--event-log-handler=x is not valid",
        ),
        (["--numa-binding=node", "train.py"], "0 GPUs for 1 workers; drop the flag"),
        (["--logs-specs=nobody", "train.py"], "no entry point nobody in torchrun.logs_specs"),
        (["--log-dir=/proc/nowhere", "train.py"], "--log-dir=/proc/nowhere: no directory"),
        (["--straggler-ratio=1", "train.py"], "--straggler-ratio=1 must be above 1"),
    ],
)
def test_what_cannot_be_used_is_code_2_and_a_sentence(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    a_script(tmp_path, "print('ran')")
    ran = brain_run(tmp_path, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_script_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xe8.py")
    (tmp_path / name).write_text("import os; os.write(1, b'ran')")
    ran = brain_run(tmp_path, name)
    assert (ran.returncode, ran.stdout) == (0, "ran"), ran.stderr


PLACE = """
import os, sys
parent = open(f"/proc/{os.getppid()}/cmdline").read().split(chr(0))
threads = len(os.listdir("/proc/self/task"))
ours = [name for name in sys.modules if name.startswith("_brain")]
os.write(1, f"{any(each.endswith('torchrun') for each in parent)} {threads} {ours}".encode())
"""


def test_brain_off_is_plain_torchrun_without_probe_lease_and_fork(tmp_path: Path) -> None:
    given = ["--job=mine", "--preload", "torch", "--network_check", a_script(tmp_path, PLACE)]
    ran = brain_run(tmp_path, *given, environment={"BRAIN_OFF": "1"})
    assert (ran.returncode, ran.stdout) == (0, "True 1 []"), ran.stderr
    said = "because torchrun does not have them: --job, --preload, --network_check"
    assert said in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("off", ["0", ""])
def test_brain_off_may_say_no(tmp_path: Path, off: str) -> None:
    ran = brain_run(tmp_path, a_script(tmp_path, PLACE), environment={"BRAIN_OFF": off})
    assert ("_brain_bootstrap" in ran.stdout, "plain" in ran.stderr) == (True, False), ran.stderr


def test_brain_off_without_a_torch_is_refused(tmp_path: Path) -> None:
    alone = tmp_path / "bin" / "python"
    alone.parent.mkdir()
    alone.symlink_to("/bin/false")
    given = {"BRAIN_OFF": "1", "PYTHON_EXEC": str(alone)}
    ran = brain_run(tmp_path, a_script(tmp_path, ""), environment=given)
    assert (ran.returncode, f"no torch was found for {alone}" in ran.stderr) == (2, True)


def test_brain_off_that_is_neither_yes_nor_no_is_refused(tmp_path: Path) -> None:
    ran = brain_run(tmp_path, a_script(tmp_path, ""), environment={"BRAIN_OFF": "true"})
    assert (ran.returncode, "BRAIN_OFF=true must be 0 or 1" in ran.stderr) == (2, True)


def test_warnings_that_a_script_takes_for_errors_are_none_of_the_launchers(tmp_path: Path) -> None:
    script = a_script(tmp_path, "import os; os.write(1, b'ran')")
    ran = brain_run(tmp_path, script, environment={"PYTHONWARNINGS": "error"})
    assert (ran.returncode, ran.stdout) == (0, "ran"), ran.stderr
    assert "Warning" not in ran.stderr


def test_it_ends_with_the_code_of_the_worker_that_failed(tmp_path: Path) -> None:
    script = a_script(tmp_path, "import os, sys; sys.exit(7 * int(os.environ['RANK']))")
    ran = brain_run(tmp_path, "--nproc-per-node=2", script)
    assert (ran.returncode, "exitcode  : 7" in ran.stderr) == (7, True)


FAILS_ON_RECORD = (
    "from torch.distributed.elastic.multiprocessing.errors import record\n"
    "@record\n"
    "def main():\n"
    "    raise ValueError('the loss is a banana')\n"
    "main()\n"
)


def test_whoever_started_us_finds_the_root_cause_in_our_error_file(tmp_path: Path) -> None:
    ours = {"TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}
    brain_run(tmp_path, a_script(tmp_path, FAILS_ON_RECORD), environment=ours)
    assert "the loss is a banana" in (tmp_path / "error.json").read_text()


def test_an_error_file_that_cannot_be_written_does_not_change_the_code(tmp_path: Path) -> None:
    ours = {"TORCHELASTIC_ERROR_FILE": str(tmp_path / "missing" / "error.json")}
    ran = brain_run(tmp_path, a_script(tmp_path, FAILS_ON_RECORD), environment=ours)
    assert (ran.returncode, "FILE cannot be written" in ran.stderr) == (1, True)


def test_a_full_disk_under_standard_error_does_not_stop_a_run(tmp_path: Path) -> None:
    script = a_script(tmp_path, "import os, sys; sys.exit(7 * int(os.environ['RANK']))")
    with open("/dev/full", "w") as full:
        command = [*BRAIN_RUN, "--nproc-per-node=2", script]
        assert subprocess.run(command, cwd=tmp_path, stderr=full, timeout=60).returncode == 7


def test_help_is_printed_where_standard_output_is_ascii(tmp_path: Path) -> None:
    ran = brain_run(tmp_path, "--help", environment={"PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, "--nproc-per-node" in ran.stdout) == (0, True), ran.stderr


def test_restarts_are_counted_and_seen_by_the_script(tmp_path: Path) -> None:
    script = a_script(
        tmp_path,
        "import os, sys\n"
        "count = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "print('attempt', count, flush=True); sys.exit(count < 2)\n",
    )
    ran = brain_run(tmp_path, "--max-restarts=2", script)
    assert (ran.returncode, ran.stdout.split()) == (
        0,
        ["attempt", "0", "attempt", "1", "attempt", "2"],
    )


def test_in_a_deleted_directory_a_sentence_says_so(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    # The shell deletes it after it went there, as a person at another terminal does.
    command = ["sh", "-c", f'rmdir "{gone}"; exec "$@"', "sh", *BRAIN_RUN, "/dev/null"]
    ran = subprocess.run(command, cwd=gone, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("brain-run: the working directory was deleted; ")


def signalled(directory: Path, signum: signal.Signals) -> tuple[str, int]:
    """What a job printed that was signalled when it was ready, and the launcher's code."""
    script = a_script(
        directory,
        "import signal, sys, time\n"
        "def leave(*_): print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave); signal.signal(signal.SIGINT, leave)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.1)\n",  # a pause that begins as the signal comes never ends
    )
    with subprocess.Popen(
        [*BRAIN_RUN, script],
        cwd=directory,
        env=dict(os.environ) | {"HOME": str(directory)},
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        agent.send_signal(signum)
        said, _ = agent.communicate(timeout=60)
    return said, agent.returncode


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_workers_first(tmp_path: Path, signum: signal.Signals) -> None:
    assert signalled(tmp_path, signum)[0] == "saved\n"


def test_a_run_that_was_interrupted_does_not_look_finished(tmp_path: Path) -> None:
    assert signalled(tmp_path, signal.SIGINT)[1] == 128 + signal.SIGINT


def test_a_signal_after_the_end_of_the_job_changes_nothing(tmp_path: Path) -> None:
    script = a_script(
        tmp_path,
        "import pathlib, time\n"
        "pathlib.Path('ready').touch()\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n",
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    agent = subprocess.Popen(
        [*BRAIN_RUN, script],
        cwd=tmp_path,
        env=dict(os.environ) | {"HOME": str(tmp_path), "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
        eventually((tmp_path / "ready").exists, "a worker")
        guard = children.read_text().split()[0]
        assert b"\0guard" in Path(f"/proc/{guard}/cmdline").read_bytes()
        os.kill(int(guard), signal.SIGSTOP)  # the agent waits for it at its very end
        (tmp_path / "go").touch()
        eventually(lambda: children.read_text().split() == [guard], "the end of the fork server")

        def interrupted() -> bool:
            agent.send_signal(signal.SIGINT)
            return agent.poll() is not None

        eventually(interrupted, "the agent's end")
        os.kill(int(guard), signal.SIGCONT)
        assert (agent.returncode, agent.communicate()[1]) == (0, "")
        eventually(lambda: not list(temporary.iterdir()), "the end of the agent's directory")
    finally:
        agent.kill()
        agent.wait()


@pytest.mark.parametrize("module", ["launcher.command.flags", "launcher.agent.by_hand"])
def test_an_interrupt_while_brain_run_imports_its_modules_prints_nothing(
    module: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        # A parent may have ignored it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def hook(event, said):\n"
        f"    if event == 'import' and said[0] == {module!r}:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.addaudithook(hook)\n"
    )
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "brain-run"), a_script(tmp_path, "")],
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (-signal.SIGINT, "")


def test_nor_does_a_signal_while_the_interpreter_ends(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()): kill(pid, 15)\n"
        "late = Late() if 'launcher.cli' in sys.orig_argv else None\n"
    )
    ran = brain_run(tmp_path, a_script(tmp_path, ""), environment={"PYTHONPATH": str(tmp_path)})
    assert (ran.returncode, ran.stderr) == (0, "")


def test_modules_in_an_archive_come_before_others_of_their_names(tmp_path: Path) -> None:
    for path in (OWN := Path(__file__).parent / "scripts" / "own").rglob("*"):
        name = path.relative_to(OWN)
        name = Path("__main__.py") if name.name == "train.py" else name
        with zipfile.ZipFile(tmp_path / "train.pyz", "a") as archive:
            archive.write(path, str(name))
    plain = subprocess.run(
        [sys.executable, "train.pyz"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert plain.stdout.count(" own") == 5
    for _ in range(2):
        assert brain_run(tmp_path, "--no-probe", "train.pyz").stdout == plain.stdout


@pytest.mark.parametrize(
    ("closed", "fds"), [("2>&-", {2}), (">&-", {1}), ("<&- >&- 2>&-", {0, 1, 2})]
)
def test_no_file_of_ours_takes_the_place_of_a_closed_stream(
    tmp_path: Path, closed: str, fds: set[int]
) -> None:
    looks = (
        "print('lost')\n"
        "import os\n"
        "names = [f'/proc/self/fd/{fd}' for fd in range(3)]\n"
        "gone = {fd for fd, name in enumerate(names) if not os.path.exists(name)}\n"
        "open('said', 'w').write(repr(gone))\n"
    )
    a_script(tmp_path, looks)
    for flags in ("", "--preload=none"):
        command = f"{' '.join(BRAIN_RUN)} {flags} train.py {closed}"
        ran = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env=dict(os.environ) | {"HOME": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
        assert (ran.returncode, (tmp_path / "said").read_text()) == (0, repr(fds))


def test_workers_really_train_together(tmp_path: Path) -> None:
    script = a_script(
        tmp_path,
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "mine = torch.tensor([dist.get_rank() + 1.0]); dist.all_reduce(mine)\n"
        "os.write(1, f'sum {mine.item()}\\n'.encode())\n"
        "os._exit(0)\n",  # torch 2.13 now and then aborts as it takes the group apart
    )
    ran = brain_run(tmp_path, "--nproc-per-node=2", "--no-probe", script)
    said = (ran.returncode, sorted(ran.stdout.splitlines()))
    assert said == (0, ["sum 3.0", "sum 3.0"]), ran.stderr


def test_events_are_told_in_torchruns_words(tmp_path: Path) -> None:
    script = a_script(tmp_path, "import os; os._exit(3 * int(os.environ['RANK']))")
    flags = ["--event-log-handler=console", "--nproc-per-node=2", "--role=trainer"]
    said = brain_run(tmp_path, *flags, script).stderr.splitlines()
    events = [json.loads(line) for line in said if line.startswith('{"name": "torchelastic')]
    states = {(each["metadata"]["global_rank"], each["metadata"]["state"]) for each in events}
    assert states >= {(0, "START"), (1, "START"), (1, "FAILED")}
    assert {each["metadata"]["role"] for each in events} == {"trainer"}


def test_flags_without_effect_are_said(tmp_path: Path) -> None:
    ran = brain_run(tmp_path, "--auto_tunning", a_script(tmp_path, ""))
    assert (
        ran.returncode,
        ran.stderr.count("--auto_tunning has no effect in a job started by hand"),
    ) == (0, 1)


def test_whose_flags_were_guessed_is_told_once_where_it_is_seen(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to("/bin/true")
    ran = brain_run(tmp_path, a_script(tmp_path, ""), environment={"PYTHON_EXEC": str(python)})
    assert ran.stderr.count("because no torch was found for") == 1, ran.stderr


def test_a_range_of_nodes_is_read() -> None:
    assert (nodes("2"), nodes("1:4")) == ((2, 2), (1, 4))


@pytest.mark.parametrize("said", ["", "a", "1:2:3", "0", "-1"])
def test_what_is_no_range_is_refused(said: str) -> None:
    with pytest.raises(BadInput, match="--nnodes"):
        nodes(said)


def test_processes_of_cpu_are_those_that_may_be_used() -> None:
    assert processes_of("cpu", sys.executable, {}) == (len(os.sched_getaffinity(0)), "cpu")


def test_devices_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"give (cpu or )?a number"):
        processes_of("xpu", sys.executable, dict(os.environ))


def test_a_python_without_torch_cannot_count_devices(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho 'no torch here' >&2; exit 1\n")
    interpreter.chmod(0o755)
    with pytest.raises(BadInput, match=r"cannot count devices \(no torch here\)"):
        processes_of("gpu", str(interpreter), {})


def test_flags_become_a_configuration(tmp_path: Path) -> None:
    entry = options(
        tmp_path,
        "--nnodes=2:6",
        "--node_unit=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=h:1",
        "--rdzv-id=mine",
        "--tee=0:3",
        "--shutdown-timeout=5",
    )
    config = launch_config(entry, {"BRAIN_HOME": str(tmp_path)}, str(tmp_path))
    assert (config.nodes_min, config.nodes_max, config.unit) == (2, 6, 2)
    assert (config.rdzv_backend, config.rdzv_endpoint, config.job) == ("c10d", "h:1", "mine")
    assert (config.logs.tee, config.grace_seconds) == ({0: Std.ALL}, 5.0)


def test_auto_config_takes_nodes_from_the_environment_unless_they_were_said(tmp_path: Path) -> None:
    given = {"NODE_NUM": "5", "BRAIN_HOME": str(tmp_path)}
    said = launch_config(options(tmp_path, "--auto_config", "--nnodes=2"), given, str(tmp_path))
    found = launch_config(options(tmp_path, "--auto_config"), given, str(tmp_path))
    assert (said.nodes_max, found.nodes_min, found.nodes_max) == (2, 5, 5)
    assert (said.network_check, found.network_check) == (0, 1)


def test_auto_config_refuses_what_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="NODE_NUM=many is not a number of nodes"):
        launch_config(options(tmp_path, "--auto_config"), {"NODE_NUM": "many"}, str(tmp_path))


@pytest.mark.parametrize(
    ("flag", "level"),
    [
        ("--network-check", 1),
        ("--comm-perf-test", 2),
        ("--precheck=2", 2),
        ("--exclude-straggler", 1),
    ],
)
def test_three_flags_ask_for_one_check(tmp_path: Path, flag: str, level: int) -> None:
    config = launch_config(options(tmp_path, flag), {}, str(tmp_path))
    assert config.network_check == level


def test_one_machine_needs_no_rendezvous(tmp_path: Path) -> None:
    config = launch_config(options(tmp_path), {}, str(tmp_path))
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("local", "")


def test_static_rendezvous_is_at_the_master(tmp_path: Path) -> None:
    said = ["--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=29501"]
    config = launch_config(options(tmp_path, *said), {}, str(tmp_path))
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("static", "10.0.0.1:29501")
    assert config.node_rank == 1


def test_without_a_brain_no_samples_are_sent(tmp_path: Path) -> None:
    config = launch_config(options(tmp_path), {"BRAIN_HOME": "/h"}, str(tmp_path))
    assert config.collector_socket is None
    config = launch_config(options(tmp_path, "--brain=http://b"), {"BRAIN_HOME": "/h"}, "/")
    assert config.collector_socket == "/h/collector/probe.sock"


def test_a_script_may_end_with_the_code_of_a_lease(tmp_path: Path) -> None:
    a_script(tmp_path, "import sys; print('ran'); sys.exit(83)")
    ran = brain_run(tmp_path, "train.py")
    assert (ran.returncode, ran.stdout) == (83, "ran\n")
