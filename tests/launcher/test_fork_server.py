"""Forked workers are what interpreters of their own would have been."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from launcher.workers.fork_server.fork_server import ForkServer
from launcher.workers.fork_server.learned import ImportMemory
from tests.launcher.building import DEADLINE_SECONDS, file_appears, running, soon
from tests.launcher.fork_servers import (
    ANNOUNCES,
    LIGHT,
    a_command,
    a_fork_server,
    a_script,
    forked,
    printed,
    run_to_end,
)

#: Says what a script can see of the interpreter that runs it.
LOOKS = """
import json, os, signal, sys, threading
names = sorted(globals())
main = sys.modules['__main__']
seen = dict(
    names=[name for name in names if name not in ('json', 'os', 'signal', 'sys', 'threading')],
    file=globals().get('__file__'), spec=str(__spec__ and __spec__.name), package=__package__,
    loader=getattr(__loader__, '__name__', type(__loader__).__name__), argv=sys.argv,
    orig=sys.orig_argv, path=sys.path, flags=str(sys.flags), warnings=sys.warnoptions,
    environment={k: v for k, v in os.environ.items()
                 if k not in ('TORCHELASTIC_ERROR_FILE', 'BRAIN_WORKER', 'PYTHONPATH')},
    doc=main.__doc__, here=os.getcwd(), builtins=type(__builtins__).__name__,
    streams=[[s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty()]
             for s in (sys.stdin, sys.stdout, sys.stderr)],
    handlers=[str(signal.getsignal(s)) for s in signal.valid_signals()][:20],
    blocked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), meta=len(sys.meta_path),
    threads=[t.name for t in threading.enumerate()], session=os.getsid(0) == os.getpid(),
    umask=os.umask(0o22), hook=sys.excepthook is sys.__excepthook__, parent=os.getppid() != 1,
    main=main.__dict__ is globals(),
    title=open('/proc/self/cmdline').read().strip(chr(0)).replace(chr(0), ' '),
)
print(json.dumps(seen))
"""


async def compared(directory: Path, *argv: str, **changes: object) -> tuple[object, object]:
    """What a forked and a spawned worker see."""
    config = a_command(directory, *argv, **changes)
    log = directory / "output.log"
    await run_to_end(config)
    first = json.loads(printed(directory))
    log.unlink()
    async with running(config) as watched:
        await watched.all()
    return first, json.loads(printed(directory))


@pytest.mark.parametrize(
    "options", [(), ("-u", "-O"), ("-W", "ignore", "-X", "utf8"), ("-I",), ("-E", "-s", "-B")]
)
def test_a_script_sees_the_interpreter_that_it_would_have(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LOOKS)
    command = (sys.executable, *options, "./train.py", "a", "--b")
    forked, spawned = asyncio.run(compared(tmp_path, *command))
    assert forked == spawned


@pytest.mark.parametrize(
    "command", [("-m", "train", "a"), ("-m", "package", "a"), ("-c", LOOKS, "a"), ("package", "a")]
)
def test_modules_code_and_directories_run_as_ever(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/__main__.py"):
        (tmp_path / name).write_text(LOOKS)
    (tmp_path / "package/__init__.py").write_text("")
    forked, spawned = asyncio.run(compared(tmp_path, sys.executable, "-u", *command))
    assert forked == spawned


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('a text')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os._exit(5)", 5),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import threading, time, os\n"
         "threading.Thread(target=lambda: (time.sleep(0.2), os._exit(6))).start()", 6),
        ("import atexit, os; atexit.register(os._exit, 8)", 8),
    ],
)  # fmt: skip
def test_it_ends_with_the_code_of_the_script(lines: str, code: int, tmp_path: Path) -> None:
    assert asyncio.run(run_to_end(a_script(tmp_path, lines))) == [code]


def test_a_traceback_begins_with_the_script(tmp_path: Path) -> None:
    asyncio.run(run_to_end(a_script(tmp_path, "def f():\n    raise ValueError('x')\nf()\n")))
    plain = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True)
    assert printed(tmp_path) == plain.stderr.decode().rstrip()


def test_a_script_may_report_its_exceptions_itself(tmp_path: Path) -> None:
    lines = (
        "import sys, traceback\n"
        "def hook(kind, error, trace):\n"
        "    print(kind.__name__, len(traceback.extract_tb(trace)), sys.excepthook is hook)\n"
        "sys.excepthook = hook\n"
        "1 / 0\n"
    )
    assert asyncio.run(run_to_end(a_script(tmp_path, lines))) == [1]
    assert printed(tmp_path) == "ZeroDivisionError 1 True"


def test_a_syntax_error_is_shown_as_ever(tmp_path: Path) -> None:
    asyncio.run(run_to_end(a_script(tmp_path, "def f(:\n")))
    plain = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True)
    assert printed(tmp_path) == plain.stderr.decode().rstrip()


def test_what_was_buffered_is_written_at_the_end(tmp_path: Path) -> None:
    config = a_command(tmp_path, sys.executable, "-c", "print('buffered', end='')")
    asyncio.run(run_to_end(config))
    assert printed(tmp_path) == "buffered"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_script_may_have_processes_of_its_own(method: str, tmp_path: Path) -> None:
    lines = (
        "import multiprocessing\n"
        "def square(n): return n * n\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('{method}').Pool(2) as pool:\n"
        "        print(pool.map(square, [1, 2, 3]))\n"
    )
    assert asyncio.run(run_to_end(a_script(tmp_path, lines))) == [0]
    assert printed(tmp_path) == "[1, 4, 9]"


def test_torch_is_there_before_the_script_asks_for_it_and_computes_after_the_fork(
    tmp_path: Path,
) -> None:
    lines = (
        "import os, sys; os.environ['TORCHELASTIC_X'] = '1'\n"  # torch does not read it
        "print('torch._dynamo' in sys.modules)\n"
        "import numpy, torch\n"
        "a = torch.ones(300, 300); print((a @ a).sum().item())\n"
        "b = numpy.ones((300, 300)); print((b @ b).sum())\n"
    )
    assert asyncio.run(run_to_end(a_script(tmp_path, lines))) == [0]
    assert printed(tmp_path) == "True\n27000000.0\n27000000.0"


@pytest.mark.parametrize(
    "lines",
    [
        "import sys; print(any('tor' 'ch' in name for name in sys.modules))",
        "import os, sys; os.environ['OMP_NUM_THREADS'] = '1'; print('torch' in sys.modules)",
    ],
)
def test_nothing_is_imported_that_would_come_too_early(lines: str, tmp_path: Path) -> None:
    asyncio.run(run_to_end(a_script(tmp_path, lines)))
    assert printed(tmp_path) == "False"


def test_what_a_library_sets_as_it_is_imported_is_set(tmp_path: Path) -> None:
    library = "import os\nos.environ['SET'] = 'yes'; os.environ.pop('GONE')"
    environment = a_library(tmp_path, "library", library) | {"GONE": "no"}
    script = "import os, library, sys\nprint(os.environ['SET'], 'GONE' in os.environ, os.getpid())"
    config = a_script(tmp_path, script + "\n" + STEP, environment=environment, probe=True)

    async def story() -> None:
        async with a_fork_server(config) as (fork_server, _), forked(config, fork_server):
            while "library" not in proven(tmp_path):
                await asyncio.sleep(0.02)
        async with a_fork_server(config) as (fork_server, _), forked(config, fork_server):
            while len(printed(tmp_path).splitlines()) < 2:
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(story(), _PATIENCE_SECONDS))
    assert {line.rsplit(" ", 1)[0] for line in printed(tmp_path).splitlines()} == {"yes False"}


def test_what_is_no_python_runs_as_it_stands(tmp_path: Path) -> None:
    command = ("sh", "-c", "echo $RANK $0; cat; exit 4", "name")
    config = a_command(tmp_path, *command, replica_directory=str(tmp_path))
    config = config.__class__(
        **{name: getattr(config, name) for name in config.__dataclass_fields__}
        | {"entrypoint": config.entrypoint.__class__(
            argv=command, name="sh", python=False, interpreter=sys.executable)}
    )  # fmt: skip
    assert asyncio.run(run_to_end(config)) == [4]
    assert printed(tmp_path) == "0 name"


def test_the_kernel_shows_whose_worker_it_is(tmp_path: Path) -> None:
    lines = "print([v for v in open('/proc/self/environ').read().split(chr(0)) if 'RANK' in v])"
    environment = dict(os.environ, OF_ANOTHER="TORCHELASTIC_ERROR_FILE=/RANK")
    asyncio.run(run_to_end(a_script(tmp_path, lines, environment=environment), 2))
    other = "OF_ANOTHER=TORCHELASTIC_ERROR_FILE=/RANK"
    assert printed(tmp_path, 1) == str([other, "RANK=1", "LOCAL_RANK=1"])


# --- what is left, and what fails ----------------------------------------------------------------

STRAYS = (
    "import os, pathlib, subprocess, time\n"
    "bare = {'PATH': os.environ['PATH']}\n"
    "far = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "lost = subprocess.check_output(['sh', '-c', 'sleep 600 >/dev/null 2>&1 & echo $!'],\n"
    "                               start_new_session=True, env=bare)\n"
    "pathlib.Path('half').write_text(f'{far.pid} {int(lost)}')\n"
    "pathlib.Path('half').rename('pids')\n"
    "time.sleep(600)\n"
)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it goes as we read
        return False


def test_stop_leaves_no_stray_even_one_that_hides(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_script(tmp_path, STRAYS)
        async with (
            a_fork_server(config) as (fork_server, _),
            forked(config, fork_server) as watched,
        ):
            pids = [int(pid) for pid in (await file_appears(tmp_path / "pids")).split()]
            await soon(watched.workers.stop(0))
            assert [pid for pid in pids if alive(pid)] == []

    asyncio.run(story())


AGENT = """
import asyncio, sys
from pathlib import Path
from tests.launcher.fork_servers import a_script, a_fork_server, forked
async def main():
    config = a_script(Path(sys.argv[1]), sys.argv[2])
    async with a_fork_server(config) as (nursery, _), forked(config, nursery) as watched:
        print(*watched.workers.pids, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def test_nothing_outlives_an_agent_that_was_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path), STRAYS],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ) | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
    )
    assert agent.stdout is not None
    said = agent.stdout

    async def story() -> None:
        worker = int(await soon(asyncio.to_thread(said.readline)))
        far = int((await file_appears(tmp_path / "pids")).split()[0])
        agent.kill()
        while alive(worker) or alive(far) or list(temporary.iterdir()):
            await asyncio.sleep(0.02)

    try:
        asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))
    finally:
        agent.kill()
        agent.wait()
        said.close()


def test_workers_of_a_fork_server_that_died_have_died_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_script(tmp_path, "import time; time.sleep(600)")
        async with (
            a_fork_server(config) as (fork_server, said),
            forked(config, fork_server, 2) as watched,
        ):
            assert fork_server.pid is not None
            os.kill(fork_server.pid, signal.SIGKILL)
            exits = await watched.all()
            assert {exit.code for exit in exits} == {-signal.SIGKILL}
            assert "ended by itself" in said[0]

    asyncio.run(story())


def test_without_a_fork_server_workers_start_all_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_script(tmp_path, "print('here')")
        async with a_fork_server(config) as (fork_server, said):
            assert fork_server.pid is not None
            os.kill(fork_server.pid, signal.SIGKILL)
            async with forked(config, fork_server) as watched:
                (exit,) = await watched.all()
            assert exit.code == 0
            assert len(said) == len(set(said))
        assert printed(tmp_path) == "here"

    asyncio.run(story())


def test_nobody_waits_for_a_fork_server_that_hangs(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_script(tmp_path, "print('here')")
        said: list[str] = []
        fork_server = await ForkServer.open(config, said.append, patience_seconds=0.1)
        await soon(fork_server.ready())
        assert fork_server.pid is not None
        os.kill(fork_server.pid, signal.SIGSTOP)
        try:
            async with forked(config, fork_server, 2) as watched:
                exits = await watched.all()
        finally:
            await fork_server.close()
        assert [exit.code for exit in exits] == [0, 0]
        assert said == ["the fork server hangs; workers start in fresh interpreters"]

    asyncio.run(story())


def test_processes_that_end_are_kept_until_it_is_known_how(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_script(tmp_path, "import sys; sys.exit(3)")
        async with a_fork_server(config) as (fork_server, _):
            environment = dict(config.environment)
            child = await fork_server.fork(config.entrypoint.argv, environment, [0, 1, 2])
            while (code := child.poll()) is None:
                await asyncio.sleep(0.01)
            assert code == 3

    asyncio.run(story())


#: Forks a worker, and says how it ended.
AS_ANOTHER = """
import asyncio, sys
from pathlib import Path
from tests.launcher.fork_servers import a_script, run_to_end
print(asyncio.run(run_to_end(a_script(Path(sys.argv[1]), sys.argv[2]))))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_how_a_worker_ended_is_known_though_it_became_another_user(tmp_path: Path) -> None:
    became = "import os; os.setgid(65534); os.setuid(65534); raise SystemExit(3)"
    # As in a container: root that may not look into processes of others.
    bare = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
    ran = subprocess.run(
        [*bare, sys.executable, "-c", AS_ANOTHER, str(tmp_path), became],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.strip() == "[3]", ran.stderr


#: torch may be imported four times here, one after the other, on a machine that does more.
_PATIENCE_SECONDS = 240

# --- what is learned -----------------------------------------------------------------------------


def a_library(directory: Path, name: str, lines: str) -> dict[str, str]:
    """An installed package, and the environment in which it is found."""
    place = directory / "site-packages"
    place.mkdir(exist_ok=True)
    (place / f"{name}.py").write_text(lines)
    own = {"XDG_CACHE_HOME": str(directory / "cache"), "PYTHONPATH": str(place)}
    return dict(os.environ) | own


async def learned(directory: Path, script: str, environment: dict[str, str]) -> list[str]:
    """Run a script until its imports are proven; what this fork server and the next one of it, in
    another directory, say of imports, and what the next imports."""
    config = a_script(directory, script, environment=environment, probe=True)
    async with a_fork_server(config) as (fork_server, first), forked(config, fork_server):
        while not first and "library" not in proven(directory):
            await asyncio.sleep(0.02)
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    there = a_command(directory, sys.executable, "-u", "../train.py", environment=environment)
    async with a_fork_server(replace(there, directory=str(elsewhere))) as (fork_server, said):
        found = await fork_server.ready()
    told = dict.fromkeys(text for text in [*first, *said] if "imported ahead" in text)
    return [*told, *(name for name in found.modules if name.startswith("library"))]


def proven(directory: Path) -> list[str]:
    """Modules that are known to leave no trace; empty until somebody tried them."""
    verdicts = (directory / "cache").rglob("libraries-*.json")
    return [name for each in verdicts for name in json.loads(each.read_text())["proven"]]


#: Announces a first step, and stays.
STEP = f"import time\ntime.sleep(0.1)\n{ANNOUNCES}time.sleep(600)\n"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("library", "then"),
    [
        ("", ["library"]),
        ("import threading\nthreading.Timer(99, print).start()",
         ["library is not imported ahead: it starts threads"]),
        ("import os\nrank = os.environ.get('RANK')",
         ["library is not imported ahead: it reads RANK when it is imported"]),
        ("import os\nrank = os.getenvb(b'RANK')",
         ["library is not imported ahead: it reads RANK when it is imported"]),
        ("import os\nsettings = dict(os.environb)",
         ["library is not imported ahead: it stores a copy of the environment "
          "when it is imported"]),
        ("import random\nrandom.seed(3)",
         ["library is not imported ahead: it seeds random or draws numbers "
          "from that generator when it is imported"]),
        ("import torch\ntorch.manual_seed(3)",
         ["library is not imported ahead: it seeds torch or draws numbers "
          "from that generator when it is imported"]),
        ("import numpy.random\nname = numpy.random.rand()",
         ["library is not imported ahead: it seeds numpy.random or draws numbers "
          "from that generator when it is imported"]),
        ("import random\nname = random.Random().random()",
         ["library is not imported ahead: it generates random numbers when it is imported"]),
        *((drawing,
           ["library is not imported ahead: it generates random numbers when it is imported"])
          for drawing in ("import uuid\nrun = uuid.uuid4()",
                          "import secrets\ntoken = secrets.token_hex()",
                          "from os import urandom\nkey = urandom(8)")),
        ("import numpy, multiprocessing, secrets, uuid, random\nown = random.Random()\n"
         "numpy.random.default_rng()",
         ["library"]),
        ("import numpy\ngenerator, old = numpy.random.default_rng(), numpy.random.RandomState()",
         ["library"]),
        *((f"import numpy\nown = numpy.random.default_rng({seed})\n{drawn}",
           ["library is not imported ahead: it generates random numbers when it is imported"])
          for seed, drawn in (("", "first = own.random()"), (3 << 64, ""),
                              ("seed := __import__('secrets').randbits(128)", ""))),
        ("import rich.style", ["library"]),
        ("import rich.style, random\nfirst = random.random()",
         ["library is not imported ahead: it seeds random or draws numbers "
          "from that generator when it is imported"]),
        pytest.param("import torch\ngenerator = torch.Generator()\ngenerator.seed()",
         ["library is not imported ahead: it generates random numbers when it is imported"],
         marks=pytest.mark.slow),
        ("import numpy, random\nown = [numpy.random.default_rng(3), random.Random(3)]",
         ["library"]),
        ("import random, tempfile\nhere, own = tempfile.gettempdir(), random.Random()",
         ["library"]),
        ("import multiprocessing\nlock = multiprocessing.Lock()\ndel lock", ["library"]),
        pytest.param("import joblib\nnames = joblib._multiprocessing_helpers._rand", ["library"],
                     marks=pytest.mark.skipif(find_spec("joblib") is None, reason="no joblib")),
        ("import tempfile\nown = tempfile.mkdtemp()",
         ["library is not imported ahead: it creates names of temporary files "
          "when it is imported"]),
        ("import os\nsettings = {k.lower(): v for k, v in os.environ.items()}",
         ["library is not imported ahead: it stores a copy of the environment "
          "when it is imported"]),
        ("import os\nown = {k: v for k, v in os.environ.items() if k.startswith('OWN_')}\n"
         "environment = len(os.environ.copy())", ["library"]),
        ("import os\nme, pid = 1, os.getpid()",
         ["library is not imported ahead: it stores the process id when it is imported "
          "(library.pid)"]),
        ("import sys\nif 'mine' not in sys.modules: raise ImportError", []),
    ],
)  # fmt: skip
def test_what_a_script_imports_is_imported_ahead_the_next_time_if_that_is_safe(
    library: str, then: list[str], tmp_path: Path
) -> None:
    environment = a_library(tmp_path, "library", library)
    (tmp_path / "mine.py").write_text("")
    script = "import mine, library\n" + STEP
    assert (
        asyncio.run(asyncio.wait_for(learned(tmp_path, script, environment), _PATIENCE_SECONDS))
        == then
    )


def test_a_worker_whose_imports_are_timed_makes_all_its_imports(tmp_path: Path) -> None:
    environment = dict(os.environ) | {"PYTHONPROFILEIMPORTTIME": "1"}
    config = a_script(tmp_path, "import json, logging", environment=environment)
    assert asyncio.run(run_to_end(config)) == [0]
    timed = {line.rpartition("|")[2].strip() for line in printed(tmp_path).splitlines()}
    assert {"json", "logging", "io"} <= timed


def test_a_verdict_holds_as_long_as_the_rules_by_which_it_was_found(tmp_path: Path) -> None:
    rule = tmp_path / "traces.py"
    verdicts = []
    for text in ("strict", "strict", "lenient"):
        rule.write_text(text)
        environment = {"XDG_CACHE_HOME": str(tmp_path)}
        memory = ImportMemory(environment, sys.executable, "2.13", "train.py", rules=[rule])
        verdicts.append(memory.recall().unsafe)
        memory.keep(memory.recall().but("library", "it starts threads"))
    assert verdicts == [{}, {"library": "it starts threads"}, {}]


def test_names_of_joblib_are_new_in_each_worker(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    environment = a_library(
        tmp_path, "library", "import joblib\nnames = joblib._multiprocessing_helpers._rand"
    )
    script = "import library\n"
    told = learned(tmp_path, script + STEP, environment)
    assert asyncio.run(asyncio.wait_for(told, _PATIENCE_SECONDS)) == ["library"]
    (tmp_path / "output.log").unlink()
    says = script + "print(next(library.names))"
    asyncio.run(run_to_end(a_script(tmp_path, says, environment=environment), 2))
    first, second = (printed(tmp_path, rank).split()[-1] for rank in range(2))
    assert first != second


def test_a_generator_of_a_library_is_new_in_each_worker_unless_it_was_seeded(
    tmp_path: Path,
) -> None:
    library = (
        "import random, numpy, rich.style\n"
        "def names(): return next(rich.style._id_generator)\n"
        "own, seeded = random.Random(), random.Random(3)\n"
        "new, old = numpy.random.default_rng(), numpy.random.RandomState()\n"
        "def drawn():\n"
        "    return own.random(), new.random(), new.spawn(1)[0].random(), old.rand(), names()"
    )
    environment = a_library(tmp_path, "library", library) | {"OMP_NUM_THREADS": "1"}
    script = "import library\n"
    assert asyncio.run(
        asyncio.wait_for(learned(tmp_path, script + STEP, environment), _PATIENCE_SECONDS)
    ) == ["library"]
    (tmp_path / "output.log").unlink()
    says = "import _brain_settings\nprint('library' in _brain_settings.current.hidden)\n" + script
    says += "print(library.seeded.random(), *library.drawn())"
    asyncio.run(run_to_end(a_script(tmp_path, says, environment=environment), 2))
    (there, *first), (_, *second) = (printed(tmp_path, rank).split() for rank in range(2))
    assert there == "True"
    assert [one == other for one, other in zip(first, second, strict=True)] == [True] + [False] * 5


OWN = "import library, colorsys, json\nprint(library.found, colorsys.found, json.found)\n"


def test_modules_beside_the_script_come_before_those_that_libraries_have_imported(
    tmp_path: Path,
) -> None:
    environment = a_library(tmp_path, "library", "import colorsys\nfound = colorsys.found")
    for name in ("colorsys", "json"):
        (tmp_path / f"{name}.py").write_text("found = 'own'")
    said = asyncio.run(
        asyncio.wait_for(learned(tmp_path, OWN + STEP, environment), _PATIENCE_SECONDS)
    )
    assert printed(tmp_path) == "own own own"
    assert said == [
        f"nothing is imported ahead: json in {tmp_path} would hide the module of the same name "
        "that libraries have imported"
    ]
    (tmp_path / "output.log").unlink()
    asyncio.run(run_to_end(a_script(tmp_path, OWN, environment=environment)))
    assert printed(tmp_path) == "own own own"


def test_a_library_that_would_find_a_module_of_the_scripts_own_is_not_imported_ahead(
    tmp_path: Path,
) -> None:
    environment = a_library(tmp_path, "library", "import colorsys\nfound = colorsys.found")
    (tmp_path / "colorsys.py").write_text("found = 'own'")
    script = "import library\nprint(library.found)\n"
    said = asyncio.run(
        asyncio.wait_for(learned(tmp_path, script + STEP, environment), _PATIENCE_SECONDS)
    )
    assert [text for text in said if "colorsys in" in text] == said
    (tmp_path / "output.log").unlink()
    asyncio.run(run_to_end(a_script(tmp_path, script, environment=environment)))
    assert printed(tmp_path) == "own"


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("import os, sys\nfile = open(sys.argv[0])", "it keeps a descriptor when it is imported"),
        ("import socket\nown = socket.socketpair()", "it keeps a descriptor when it is imported"),
        ("import mmap\nown = mmap.mmap(-1, 4096)",
         "it shares memory with other processes when it is imported"),
        ("import multiprocessing\nlock = multiprocessing.Lock()",
         "it shares memory with other processes when it is imported"),
        ("import subprocess\nchild = subprocess.Popen(['sleep', '60'])",
         "it starts a process when it is imported"),
        ("import os\nos.chdir('/')", "it goes to another directory when it is imported"),
        ("import io, sys\nsys.stdout = io.StringIO()",
         "it replaces a standard stream when it is imported"),
        ("import logging\nlogging.info('here')", "it sets up logging when it is imported"),
        ("import signal\nsignal.signal(signal.SIGUSR2, lambda *_: None)",
         "it handles signals when it is imported"),
        ("import sys\nsys.setrecursionlimit(5000)",
         "it changes the interpreter when it is imported"),
    ],
)  # fmt: skip
def test_a_library_that_would_share_something_between_ranks_is_not_imported_ahead(
    library: str, why: str, tmp_path: Path
) -> None:
    environment = a_library(tmp_path, "library", library)
    told = learned(tmp_path, "import library\n" + STEP, environment)
    (said,) = asyncio.run(asyncio.wait_for(told, _PATIENCE_SECONDS))
    assert said.startswith("library is not imported ahead: " + why)


def test_a_library_that_reads_its_device_is_not_shared_where_ranks_have_one_each(
    tmp_path: Path,
) -> None:
    reads = "import os\ndevice = os.environ.get('CUDA_VISIBLE_DEVICES')"
    environment = a_library(tmp_path, "library", reads)
    (tmp_path / "train.py").write_text(
        f"import os, library, torch\n{ANNOUNCES}"
        "import glob, time\n"
        "while not glob.glob('cache/elastic-brain/libraries-*'):  # until they are proven\n"
        "    time.sleep(0.05)\n"
        "os.write(1, f'{library.device}\\n'.encode())\n"
    )
    command = [str(Path(sys.executable).with_name("brain-run")), "--nproc-per-node=2"]
    path = f"{LIGHT}:{environment['PYTHONPATH']}"
    for _ in range(2):
        ran = subprocess.run(
            [*command, "--virtual-local-rank", "train.py"],
            cwd=tmp_path,
            env=environment | {"HOME": str(tmp_path), "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert sorted(ran.stdout.split()) == ["0", "1"], ran.stderr


def test_nobody_waits_for_a_library_that_has_not_proved_itself(tmp_path: Path) -> None:
    a_library(tmp_path, "library_a", "")
    environment = a_library(tmp_path, "library_b", "import os\nrank = os.environ.get('RANK')")
    config = a_script(
        tmp_path, "import library_a, library_b\n" + STEP, environment=environment, probe=True
    )

    async def story() -> list[tuple[list[str], list[str]]]:
        seen = []
        async with a_fork_server(config) as (fork_server, said), forked(config, fork_server):
            while not list((tmp_path / "cache").rglob("preload-*.json")):
                await asyncio.sleep(0.01)
        for waits in (True, False):  # the second time with proof
            async with a_fork_server(config) as (fork_server, said):
                found = (await fork_server.ready()).modules
                seen.append((list(said), [name for name in found if name.startswith("library")]))
                async with forked(config, fork_server):
                    while waits and "library_a" not in proven(tmp_path):
                        await asyncio.sleep(0.02)
        return seen

    unproven, known = asyncio.run(asyncio.wait_for(story(), _PATIENCE_SECONDS))
    assert unproven == ([], [])
    assert known == ([], ["library_a"])


def test_what_was_proven_before_an_agent_was_killed_is_known(tmp_path: Path) -> None:
    a_library(tmp_path, "library_a", "import time\ntime.sleep(0.6)")
    environment = a_library(
        tmp_path, "library_b", "import os, time\nif 'RANK' not in os.environ: time.sleep(600)"
    )
    (tmp_path / "train.py").write_text("import library_a, library_b\n" + STEP)
    run = subprocess.Popen(
        [str(Path(sys.executable).with_name("brain-run")), "train.py"],
        cwd=tmp_path,
        env=environment | {"HOME": str(tmp_path)},
    )
    try:
        end = time.monotonic() + _PATIENCE_SECONDS
        while "library_a" not in proven(tmp_path):
            assert run.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        run.kill()
        run.wait()


def test_nobody_waits_for_more_than_one_library_that_is_unsafe_by_now(tmp_path: Path) -> None:
    for name in "abc":
        environment = a_library(tmp_path, f"library_{name}", "")
    script = "import library_a, library_b, library_c\n" + STEP
    config = a_script(tmp_path, script, environment=environment, probe=True)

    async def story() -> tuple[list[str], tuple[str, ...]]:
        async with a_fork_server(config) as (fork_server, _), forked(config, fork_server):
            while "library_c" not in proven(tmp_path):
                await asyncio.sleep(0.02)
        for name, reads in (("b", "RANK"), ("c", "LOCAL_RANK")):
            a_library(tmp_path, f"library_{name}", f"import os\nrank = os.environ.get('{reads}')")
        async with a_fork_server(config) as (fork_server, said):
            return said, (await fork_server.ready()).modules

    said, modules = asyncio.run(asyncio.wait_for(story(), _PATIENCE_SECONDS))
    assert said == ["library_b is not imported ahead: it reads RANK when it is imported"]
    assert [name for name in modules if name.startswith("library")] == ["library_a"]


def test_a_library_proves_itself_anew_in_another_version(tmp_path: Path) -> None:
    environment = a_library(tmp_path, "library", "import os\nrank = os.environ.get('RANK')")
    script = "import library\n" + STEP
    told = learned(tmp_path, script, environment)
    assert asyncio.run(asyncio.wait_for(told, _PATIENCE_SECONDS)) != ["library"]
    a_library(tmp_path, "library", "# reads nothing any more")
    (tmp_path / "elsewhere").rmdir()
    told = learned(tmp_path, script, environment)
    assert asyncio.run(asyncio.wait_for(told, _PATIENCE_SECONDS)) == ["library"]


#: A library that looks at its process when it is imported, and says so.
LOOKS_AROUND = """
import os, sys, warnings
main = sys.modules['__main__']
print('imported by', [os.path.basename(each) for each in sys.argv], sys.orig_argv[-2:])
sys.stderr.write(f'in {os.path.basename(main.__file__)}\\n')
os.system('echo and by a child')
"""


def test_what_a_library_prints_as_it_is_imported_comes_from_each_worker(tmp_path: Path) -> None:
    environment = a_library(tmp_path, "library", LOOKS_AROUND)
    script = "import sys\nahead = 'library' in sys.modules\nimport library\n"
    config = a_script(tmp_path, script + STEP, environment=environment)
    assert asyncio.run(
        asyncio.wait_for(learned(tmp_path, script + STEP, environment), _PATIENCE_SECONDS)
    ) == ["library"]
    first = sorted(printed(tmp_path).splitlines())
    assert first == sorted(
        ["imported by ['train.py'] ['-u', 'train.py']", "in train.py", "and by a child"]
    )
    (tmp_path / "output.log").unlink()
    config = a_script(tmp_path, script + "print(ahead)", environment=environment)
    assert asyncio.run(run_to_end(config, 2)) == [0, 0]
    for rank in range(2):
        assert sorted(printed(tmp_path, rank).splitlines()) == sorted([*first, "True"])


@pytest.mark.parametrize("content", ["", "[]", "{", '{"modules": 3}'])
def test_a_damaged_memory_is_none(content: str, tmp_path: Path) -> None:
    async def story() -> None:
        config = a_script(tmp_path, "print('here')")
        (tmp_path / "cache" / "elastic-brain").mkdir(parents=True)
        fork_server = await ForkServer.open(config, lambda text: None)
        fork_server._imports.memory._script.write_text(content)
        fork_server._imports.memory._libraries.write_text(content)
        await fork_server.close()
        assert await run_to_end(config) == [0]

    asyncio.run(story())


def test_parked_workers_have_imported_by_themselves(tmp_path: Path) -> None:
    lines = (
        "import os, sys, _brain_settings\n"
        "print('torch' in _brain_settings.current.hidden, os.environ['RANK'], sys.argv)"
    )
    light = dict(os.environ, PYTHONPATH=LIGHT, XDG_CACHE_HOME=str(tmp_path / "cache"))
    config = a_script(tmp_path, lines, preload="parked", environment=light)

    async def story() -> list[int]:
        codes = []
        async with a_fork_server(config) as (fork_server, _):
            for _ in range(3):  # more than are kept
                async with forked(config, fork_server) as watched:
                    codes += [exit.code for exit in await watched.all()]
        return codes

    assert asyncio.run(story()) == [0, 0, 0]
    assert set(printed(tmp_path).splitlines()) == {"True 0 ['train.py']"}


def test_the_worlds_of_one_nursery_do_not_mix(tmp_path: Path) -> None:
    lines = "import json, os; print(json.loads(os.environ.get('SEEN', '1')), os.environ['RANK'])"
    assert asyncio.run(run_to_end(a_script(tmp_path, lines), 3)) == [0, 0, 0]
    assert [printed(tmp_path, rank) for rank in range(3)] == ["1 0", "1 1", "1 2"]
