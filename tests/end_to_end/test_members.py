"""Jobs of a submitter on the machine of `brain up`: what they can do, and what they cannot."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from brain import calls
from brain.client import BrainClient
from brain.confinement import confined, make_place
from brain.errors import BadInput
from brain.service.start import main
from tests.harness import SCRIPTS, Brain, running
from tests.patience import Patience

ROOT = Path(__file__).parents[2]
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
_LISTENS = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
sys.stdin.read()
"""
_WAITS = "import time; print('here', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def machine() -> Iterator[Path]:
    """A directory that all users may enter, with an interpreter that all may run and our scripts.

    The tests' own interpreter is often in somebody's home.
    """
    if os.getuid() or shutil.which("setpriv") is None:
        pytest.skip("only root can be several people here, by setpriv")
    with tempfile.TemporaryDirectory(prefix="brain-members-", dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        base = f"/usr/bin/python3.{sys.version_info.minor}"
        python = base if _is_closed(Path(sys.executable).resolve()) else sys.executable
        subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        packages = next((folder / "venv/lib").iterdir()) / "site-packages"
        ours = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "ours.pth").write_text("\n".join([*ours, str(ROOT)]))
        shutil.copytree(SCRIPTS, folder / "scripts")
        yield folder


def _is_closed(path: Path) -> bool:
    return any(not stat.S_IMODE(each.stat().st_mode) & 0o001 for each in path.parents)


@pytest.fixture(scope="module", params=["root", "nobody"])
def brain(machine: Path, request: pytest.FixtureRequest) -> Iterator[Brain]:
    """``brain up`` of root, and of a user who is nobody in particular."""
    above = machine / request.param
    home = above / "above" / "state"
    home.mkdir(mode=0o700, parents=True)
    become = () if request.param == "root" else _NOBODY
    for folder in (above, home.parent, home) if become else ():
        shutil.chown(folder, 65534, 65534)
    python = (*become, str(machine / "venv/bin/python"))
    with running(home, "--slots=8", python=python) as brain:
        yield brain


def member(brain: Brain, name: str, role: str = "submitter") -> BrainClient:
    return brain.client_with(brain.send(calls.mint_token(name, role)).secret)


def submit(client: BrainClient, machine: Path, name: str, *words: str, **more: object) -> str:
    command = [str(machine / "venv/bin/python"), *words]
    return client.send(calls.submit({"name": name, "command": command} | more)).id


def place(brain: Brain, job: str) -> Path:
    """The directory of a member's job."""
    return next(brain.home.glob(f"members/*/brain/replicas/{job}"))


def home_of(brain: Brain, job: str) -> Path:
    return place(brain, job).parents[2] / "home"


def test_a_job_of_a_submitter_harms_neither_the_service_nor_others(brain: Brain, machine: Path):
    with ExitStack() as people:
        ada, bob = (people.enter_context(member(brain, name)) for name in ("ada", "bob"))
        victims = [
            submit(ada, machine, "victim", "-c", _WAITS),
            str(brain.send(calls.submit(_document(machine, "trusted", "-c", _WAITS))).id),
        ]
        for job in victims:
            brain.until("a world", 90, job, lambda detail: detail.job.state == "Running")
        theirs, ours = place(brain, victims[0]), brain.home / "replicas" / victims[1]
        others = [theirs / "token", theirs / "0" / "output.log", ours / "token"]
        pids = [pid for pid, words in brain.processes() if "brain.confinement" not in words]
        listening = people.enter_context(_listening(brain, machine))
        words = (str(brain.home), ",".join(map(str, pids)), listening, *map(str, others))
        job = submit(bob, machine, "attacker", str(machine / "scripts/attacker.py"), *words)
        brain.finished(job)
        said = json.loads((home_of(brain, job) / "said.json").read_text())
        token = (brain.home / "admin.token").read_text().strip()
        logs = bob.send(calls.logs(job))

    assert len(pids) >= 5
    assert {what for what, why in said["ordinary"].items() if why} == set()
    assert {what for what, why in said["harmful"].items() if why is None} == set()
    assert token.encode() not in logs
    assert [brain.detail(job).job.state for job in victims] == ["Running", "Running"]
    assert (said["uid"] == brain.home.stat().st_uid) is ("nobody" in brain.home.parts)


def test_the_environment_of_a_job_says_nothing_to_the_program_that_keeps_it_apart(
    brain: Brain, machine: Path
):
    # By these the linker writes files wherever the program may; by others it runs the job's code.
    given = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(brain.home / "linked")}
    with member(brain, "carol") as carol:
        words = ("-c", "import os; assert os.environ['LD_DEBUG'] == 'libs'")
        job = submit(carol, machine, "linked", *words, environment=given)
        assert brain.finished(job).job.state == "Succeeded"
    assert list(brain.home.glob("linked*")) == []


def test_a_job_of_a_submitter_trains_and_is_measured_like_any_other(brain: Brain, machine: Path):
    with member(brain, "eve") as eve:
        words = (str(machine / "scripts/counted.py"), "--steps=100000", "--until=enough")
        job = submit(eve, machine, "counted", *words, replicas={"min": 2, "max": 2})
        brain.until("a measurement", 110, job, lambda detail: detail.job.throughput is not None)
        (home_of(brain, job) / "enough").touch()
        assert brain.finished(job).job.state == "Succeeded"


def test_a_directory_that_a_job_cannot_use_is_named_with_what_to_do(machine: Path):
    home = machine / "alone"
    home.mkdir(mode=0o711)
    (home / "logs").mkdir(mode=0o700)
    started = confined(home, make_place(home, "dora"), str(home / "logs"), ["true"])
    started[0] = str(machine / "venv/bin/python")
    said = subprocess.run(started, env={}, capture_output=True, text=True).stderr
    assert f"directory {home / 'logs'}: Permission denied; jobs of this" in said
    assert "submitter run as user 1900000000; let that user" in said
    assert said.endswith("or leave `directory` out\n")


def test_a_file_is_read_for_an_administrator_alone(brain: Brain, machine: Path):
    secret = {"environment": {"KEY": {"fromFile": "key"}}, "directory": str(machine)}
    refused = pytest.raises(BadInput, match="files that mallory may not")
    with member(brain, "mallory") as mallory, refused:
        submit(mallory, machine, "reader", "-c", "", **secret)


def test_commands_from_the_network_are_refused_where_they_make_administrators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if os.getuid():
        pytest.skip("only root has directories that a job's user cannot enter")
    tmp_path.chmod(0o700)
    flags = ("--local-jobs", "--host=0.0.0.0", "--allow-remote-submit", "--port=0")
    assert main([f"--home={tmp_path / 'home'}", *flags]) == 1
    said = capsys.readouterr().err
    assert "--allow-remote-submit: jobs of submitters and operators run as the user of" in said
    assert "could read the administrator's token: isolated jobs would run as user" in said
    assert "move Brain and its state directory to paths that all users may enter, such as" in said


@contextmanager
def _listening(brain: Brain, machine: Path) -> Iterator[str]:
    """The socket of a program of the user who started Brain, which is not of Brain."""
    path = Path(tempfile.gettempdir()) / f"brain-members-{os.getpid()}.sock"
    become = _NOBODY if brain.home.stat().st_uid else ()
    command = [*become, str(machine / "venv/bin/python"), "-c", _LISTENS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        patience = Patience(30)
        while not path.exists():
            assert not patience.over, "no socket"
            time.sleep(0.05)
        yield str(path)
        process.stdin.close()
    path.unlink()


def _document(machine: Path, name: str, *words: str) -> dict[str, object]:
    return {
        "name": name,
        "command": [str(machine / "venv/bin/python"), *words],
        "directory": str(machine),
    }
