"""Invocations that torchrun and brain-run are compared by.

Each is run inside ``scripts/``; ``{work}`` stands for a fresh directory, ``{port}`` a free port,
``{python}`` for the interpreter and ``{installed}`` for its libraries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"


@dataclass(frozen=True)
class Case:
    """One invocation."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Arguments of a second launcher beside it: another node.
    beside: Sequence[str] = ()
    #: The second starts when the first listens at ``{port}``: whoever comes first is first.
    in_turn: bool = False
    #: Sent to the launcher once ``ready`` workers wait.
    signal: str = ""
    ready: int = 1
    #: Sent again once as many workers handle it.
    twice: bool = False
    #: A file below ``{work}`` that something may write after the launcher's end.
    left: str = ""
    #: Seconds for which the launcher is then stopped, and whether all that it started is, too.
    pause_seconds: float = 0.0
    everything: bool = False
    #: Started with these signals ignored, as by ``nohup`` and a shell's ``&``.
    ignored: Sequence[str] = ()
    #: Started without these standard streams, as by a shell's ``<&-``.
    closed: Sequence[int] = ()
    stdin: bytes = b""
    #: Whoever reads the output stops after the first line.
    closes: bool = False
    #: The order and content of lines are chance, only how many differ is not.
    distinct: bool = False
    #: Each worker's lines are compared in their order. torchrun's tee starts a piece with a prefix
    #: wherever it read, be it in the middle of a line, so nothing more is promised by both.
    by_worker: bool = False
    #: The very same was run before, so the launcher knows what the script imports.
    again: bool = False
    #: Scripts that are copied into ``{work}``.
    copies: Sequence[str] = ()
    #: Words that have to stand in what the launcher prints.
    names: Sequence[str] = ()


def _behave(*arguments: str, flags: Sequence[str] = (), **more: object) -> Case:
    return Case([*flags, "behave.py", *arguments], **more)  # type: ignore[arg-type]


TWO = ("--nproc-per-node=2",)
LOGGED = ("--log-dir={work}",)
_BACKGROUND = ("SIGHUP", "SIGINT", "SIGQUIT")

#: What a script sees of itself and its place.
SIGHTS = {
    "plain": Case(["observe.py", "a", "--b", "-c"]),
    "absolute": Case([str(SCRIPTS / "observe.py")]),
    "below": Case(["package/inner.py"]),
    "two workers": Case(["--nproc-per-node", "2", "observe.py"]),
    "standalone": Case(["--standalone", "--nnodes=1", "--nproc_per_node=2", "observe.py"]),
    "module": Case(["-m", "observe", "a"]),
    "package": Case(["-m", "package", "a"]),
    "module of a package": Case(["-m", "package.inner", "a"]),
    "no python": Case(["--no-python", "./observe.sh", "a"]),
    "run path": Case(["--run-path", str(SCRIPTS / "observe.py"), "a"]),
    "role and restarts": Case(["--role", "trainer", "--max-restarts=3", "observe.py"]),
    "flags win": Case(["--role=a", "observe.py"], {"PET_ROLE": "b"}),
    "own id": Case(
        ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=mine", "observe.py"]
    ),
    "threads given": Case(["--nproc-per-node=2", "observe.py"], {"OMP_NUM_THREADS": "3"}),
    "virtual rank": Case(["--virtual-local-rank", "--nproc-per-node=2", "observe.py"]),
    "virtual rank of given devices": Case(
        ["--virtual-local-rank", "--nproc-per-node=2", "observe.py"],
        {"CUDA_VISIBLE_DEVICES": "5, 3"},
    ),
    "local rank in arguments": Case(["--nproc-per-node=2", "observe.py", "r${local_rank}", "$$"]),
    "python path": Case(["observe.py"], {"PYTHONPATH": "/nowhere:/else"}),
    "signals": Case(["--signals-to-handle=SIGTERM,SIGUSR1", "observe.py"]),
    "another interpreter": Case(["observe.py"], {"PYTHON_EXEC": "{python}"}),
    "processes of cpu": Case(["--nproc-per-node=cpu", "observe.py"]),
    "processes of auto": Case(["--nproc-per-node=auto", "observe.py"]),
    "local address": Case(["--local-addr=127.0.0.1", "--nproc-per-node=2", "observe.py"]),
    "node rank of c10d": Case(
        ["--node-rank=3", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{port}", "observe.py"]
    ),
    "static alone": Case(
        ["--master-addr=127.0.0.1", "--master-port={port}", *TWO, "observe.py"],
    ),
}

#: Every kind of ``PET_*``, and how words are taken apart.
WORDS = {
    "environment": Case(["observe.py"], {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "ps"}),
    "environment switches": Case(["observe", "a"], {"PET_MODULE": "1", "PET_STANDALONE": "1"}),
    "environment numbers": _behave(
        "fails", "1", environment={"PET_MAX_RESTARTS": "1", "PET_MONITOR_INTERVAL": "0.05"}
    ),
    "environment choices and paths": Case(
        ["observe.py"],
        {"PET_START_METHOD": "fork", "PET_REDIRECTS": "1", "PET_LOG_DIR": "{work}"},
    ),
    "environment lists": Case(
        ["observe.py"],
        {"PET_TEE": "3", "PET_LOG_DIR": "{work}", "PET_DUPLICATE_STDERR_FILTERS": "err,x"},
    ),
    "environment without a number": Case(
        ["observe.py"], {"PET_MAX_RESTARTS": "many"}, names=["--max-restarts", "many"]
    ),
    "shortened flags": Case(["--nproc-per=2", "--max-res", "1", "--standal", "observe.py"]),
    "shortened before both spellings": Case(["--nproc=2", "observe.py"]),
    "arguments that look like ours": Case(
        ["observe.py", "--nproc-per-node", "4", "-m", "--help", "--", "-t", "3"]
    ),
    "two hyphens": Case(["--nproc-per-node=1", "--", "observe.py", "a"]),
    "unknown flag": Case(["--bogus", "observe.py"], names=["--bogus"]),
    "ambiguous flag": Case(["--rdzv=1", "observe.py"], names=["--rdzv"]),
    "no script": Case(["--nproc-per-node=1"], names=["training_script"]),
    "flag without its value": Case(["--nnodes"], names=["--nnodes"]),
    "bad choice": Case(["--start-method=teleport", "observe.py"], names=["teleport"]),
    "bad number": Case(["--max-restarts=some", "observe.py"], names=["--max-restarts"]),
    "negative restarts": Case(["--max-restarts=-1", "observe.py"], names=["max"]),
    "bad nodes": Case(["--nnodes=3:1", "observe.py"], names=["nodes"]),
    "bad processes": Case(["--nproc-per-node=lots", "observe.py"], names=["lots"]),
    "no such device": Case(["--nproc-per-node=gpu", "observe.py"], names=[]),
    "bad tee": Case(["--tee=7", "observe.py"], names=["7"]),
    "bad filter": Case(["--local-ranks-filter=a", "observe.py"], names=["ranks"]),
    "no python and module": Case(["--no-python", "-m", "observe"], names=["--no-python"]),
    "logs of a stranger": Case(["--logs-specs=nobody", "observe.py"], names=["nobody"]),
    "bad binding": Case(["--numa-binding=moon", "observe.py"], names=["moon"]),
    "help": Case(["--help"], names=["--nproc-per-node", "--rdzv-backend", "training_script"]),
}

_INSTALLED = {"PYTHONPATH": "{installed}"}
_PRINTS = b"import sys\nprint(sys.argv, __name__)\n"

#: How a process of Python is made, and what it may rely on.
PROCESSES = {
    "interpreter": _behave("interpreter", "a"),
    "interpreter, then other acts": _behave(
        *("in turn", "interpreter", "reads", "seeds wrongly", "leaves a fork"),
        *(f"multiprocessing {way}" for way in ("fork", "spawn", "forkserver")),
        "ends",
        stdin=b"first\nsecond\n",
    ),
    "interpreter in the background": _behave("interpreter", ignored=_BACKGROUND),
    "ends where children are ignored": _behave("ends", ignored=["SIGCHLD"]),
    "interpreter of a module": Case(["-m", "behave", "interpreter"]),
    "interpreter with options": _behave(
        "interpreter",
        environment={"PYTHONOPTIMIZE": "1", "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "ignore"},
    ),
    "chance": _behave("chance", flags=TWO, distinct=True),
    "chance of every rank and attempt": Case(
        [*TWO, "--max-restarts=1", "generators.py", "unseeded"], distinct=True
    ),
    "chance that is seeded": Case([*TWO, "generators.py", "seeded"]),
    "modules of its own": Case(["own/train.py"]),
    "the end": _behave("ends"),
    "forks": _behave("multiprocessing", "fork"),
    "spawns": _behave("multiprocessing", "spawn"),
    "fork server": _behave("multiprocessing", "forkserver"),
    "launcher in a launcher": _behave("nested"),
    "standard input": _behave("reads", stdin=b"first\nsecond\n"),
    "no standard input": _behave("tells streams", "{work}/said", closed=[0]),
    "no standard output": _behave("tells streams", "{work}/said", closed=[1]),
    "no standard streams": _behave("tells streams", "{work}/said", closed=[0, 1, 2]),
    "a script on standard input": Case(["-", "a", "-b"], stdin=_PRINTS),
    "a script in a pipe": Case(["/dev/stdin", "a", "-b"], stdin=_PRINTS),
    "a site module of ranks": Case(
        [*TWO, "observe.py"], {"PYTHONPATH": str(SCRIPTS / "customized")}
    ),
    "group of processes": Case([*TWO, "collective.py"]),
    "settings before the import": Case([*TWO, "chosen.py"]),
    "libraries with a past": Case([*TWO, "libraries.py", "a"], _INSTALLED),
    "libraries with a past, known": Case([*TWO, "libraries.py", "a"], _INSTALLED, again=True),
    **{
        f"a library's setting {where}, known": Case(
            [*TWO, "homes.py", where], _INSTALLED, again=True
        )
        for where in ("before", "before, by rank", "between", "between, by rank")
    },
    "warnings": Case(["warned.py"]),
    "threads after a step": Case(["stepping.py"]),
}

#: How workers end, and what the launcher makes of it.
ENDS = {
    "failure": Case(["--nproc-per-node=1", "observe.py", "--fail"]),
    "killed": Case(["--nproc-per-node=1", "observe.py", "--die"]),
    **{f"ended by {name}": _behave("dies", name) for name in ("SIGTERM", "SIGINT", "SIGHUP")},
    "ended by SIGSEGV": _behave("dies", "SIGSEGV"),
    "ended by SIGUSR1": _behave("dies", "SIGUSR1"),
    "aborted": _behave("aborts"),
    "left with a text": _behave("exits", "text", flags=("-r=2", *LOGGED)),
    "left with a tuple": _behave("exits", "tuple"),
    "left with 255": _behave("exits", "255"),
    "left without cleaning": _behave("exits", "hard"),
    "raised": _behave("raises", flags=("-r=2", *LOGGED)),
    "one of two failed": _behave("one fails", flags=TWO),
    "recorded": Case([*LOGGED, "recorded.py"]),
    "one of two recorded": Case([*TWO, *LOGGED, "recorded.py", "1"]),
    "recorded for whoever started us": Case(
        ["recorded.py"], {"TORCHELASTIC_ERROR_FILE": "{work}/ours.json"}
    ),
    "failed twice": _behave("fails", "2", flags=("--max-restarts=2",)),
    "failed too often": _behave("fails", "9", flags=("--max-restarts=1",)),
    "no such script": Case(["nowhere.py"], names=["nowhere.py"]),
    "no such module": Case(["-m", "nowhere"], names=["nowhere"]),
    "no such program": Case(["--no-python", "./nowhere"], names=["nowhere"]),
    "not executable": Case(["--no-python", "./observe.py"], names=["observe.py"]),
    "a syntax error": Case(["-r=2", *LOGGED, "broken"]),
    "deleted while it runs": Case(
        ["--max-restarts=1", "{work}/behave.py", "vanishes"], copies=["behave.py"]
    ),
    "launcher terminated": _behave("waits", flags=TWO, signal="SIGTERM", ready=2),
    "launcher interrupted": _behave("waits", flags=TWO, signal="SIGINT", ready=2),
    "launcher hung up": _behave("waits", signal="SIGHUP"),
    "launcher terminated, workers save": _behave("saves", flags=TWO, signal="SIGTERM", ready=2),
    "launcher interrupted, workers save": _behave("saves", flags=TWO, signal="SIGINT", ready=2),
    "launcher terminated, workers save for 20 s": _behave(
        "saves", "20", flags=TWO, signal="SIGTERM", ready=2
    ),
    "launcher interrupted, workers save for 6 s": _behave(
        "saves", "6", flags=TWO, signal="SIGINT", ready=2
    ),
    "launcher terminated twice, workers save for 6 s": _behave(
        "saves", "6", flags=TWO, signal="SIGTERM", ready=2, twice=True
    ),
    "launcher terminated, a script behind a shell saves for 4 s": Case(
        ["--no-python", "./behind.sh", "saves", "4"], signal="SIGTERM"
    ),
    "launcher terminated, a thread takes the signal": _behave(
        "takes its signal", "4", signal="SIGTERM"
    ),
    "an upload is left": _behave("uploads", "{work}", left="uploaded"),
    "launcher terminated, an upload is left": _behave(
        "uploads", "{work}", "stopped", signal="SIGTERM", left="uploaded"
    ),
    "launcher gets a chosen signal": _behave(
        "saves", flags=("--signals-to-handle=SIGUSR1",), signal="SIGUSR1"
    ),
    "launcher paused": _behave("lasts", flags=TWO, ready=2, pause_seconds=5.0),
    "everything paused": _behave("lasts", flags=TWO, ready=2, pause_seconds=8.0, everything=True),
    "launcher gets a chosen signal, workers save for 6 s": _behave(
        "saves", "6", flags=("--signals-to-handle=SIGUSR1",), signal="SIGUSR1"
    ),
    "nobody reads": _behave("prints", "for ever", closes=True),
}

#: Where output goes.
LOGS = {
    "redirected": Case(["--nproc-per-node=2", "-r", "0:1,1:3", "--log-dir={work}", "observe.py"]),
    "teed": Case(["--nproc-per-node=2", "-t", "3", "--log-dir={work}", "observe.py"]),
    "teed per rank": Case([*TWO, "-t", "1:2", "-r", "0:3", *LOGGED, "observe.py"]),
    "teed and filtered": Case(
        ["--nproc-per-node=2", "-t=3", "--log-dir={work}", "--local-ranks-filter=1", "observe.py"]
    ),
    "filtered": Case([*TWO, "--local-ranks-filter=1", *LOGGED, "observe.py"]),
    "duplicated": Case(
        ["-t=1", "--log-dir={work}", "--duplicate-stdout-filters=out,x", "observe.py"]
    ),
    "own prefix": Case(
        ["--nproc-per-node=2", "-t=3", "--log-dir={work}", "observe.py"],
        {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank} ${local_rank}> "},
    ),
    "kept nowhere": Case(["--log-dir=/dev/null", "observe.py"]),
    "attempts": _behave("fails", "1", flags=("--max-restarts=1", "-r=3", *LOGGED)),
    "many lines": _behave("prints", "many", flags=("-t=1", *LOGGED), by_worker=True),
    "many lines to the console": _behave("prints", "many"),
    "unicode": _behave("prints", "unicode", flags=("-t=1", *LOGGED)),
    "bytes": _behave("prints", "bytes", flags=("-t=1", *LOGGED)),
    "open end": _behave("prints", "open end", flags=("-t=1", *LOGGED)),
    "open end to the console": _behave("prints", "open end"),
}

#: Scripts that do what they should not.
MISBEHAVES = {
    "seeds wrongly": _behave("seeds wrongly"),
    "changes directory and environment": _behave("moves", flags=TWO),
    "closes what it does not own": _behave("forgets"),
    "forks by hand": _behave("leaves a fork"),
    "a thread exits": _behave("ends in a thread", "exits"),
    "a thread leaves": _behave("ends in a thread", "leaves"),
    "a thread raises": _behave("ends in a thread", "raises"),
}

#: ``BRAIN_OFF=1``, which torchrun does not know: nothing may differ, exit codes neither.
_OFF = {"BRAIN_OFF": "1"}
SWITCHED_OFF = {
    "switched off": Case([*TWO, "observe.py", "a"], _OFF),
    "switched off, interpreter": _behave("interpreter", "a", environment=_OFF),
    "switched off, failure": Case(["--nproc-per-node=1", *LOGGED, "observe.py", "--fail"], _OFF),
    "switched off, terminated": _behave(
        "saves", flags=TWO, signal="SIGTERM", ready=2, environment=_OFF
    ),
}

_STATIC = ("--nnodes=2", "--master-addr=127.0.0.1", "--master-port={port}")
_C10D = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=j")

#: Two launchers on one machine.
NODES = {
    "static, two nodes": Case(
        [*_STATIC, "--node-rank=0", *TWO, "observe.py"],
        beside=[*_STATIC, "--node-rank=1", *TWO, "observe.py"],
    ),
    "static, two nodes train": Case(
        [*_STATIC, "--node-rank=1", "collective.py"],
        beside=[*_STATIC, "--node-rank=0", "collective.py"],
    ),
    "c10d, two nodes": Case(
        [*_C10D, "collective.py"], beside=[*_C10D, "collective.py"], in_turn=True
    ),
    "c10d, two nodes of three workers": Case(
        [*_C10D, "--local-addr=127.0.0.1", *TWO, "collective.py"],
        beside=[*_C10D, "--local-addr=127.0.0.1", "collective.py"],
        in_turn=True,
    ),
}

CASES: dict[str, Case] = (
    SIGHTS | WORDS | PROCESSES | ENDS | LOGS | MISBEHAVES | SWITCHED_OFF | NODES
)
