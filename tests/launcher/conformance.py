"""Invocations of torchrun, and how to write down what came of one.

    python -m tests.launcher.conformance > tests/launcher/recorded/torchrun-2.13.json

records them with the torchrun that is installed beside this Python; ``test_conformance.py`` gives
the same to ``brain-run`` and compares.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
REPOSITORY = Path(__file__).parents[2]
#: Differ from run to run, or (the machine's name) from machine to machine.
UNSTABLE = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_RUN_ID",
    "SEEN",
    "HOME",
)


@dataclass(frozen=True)
class Case:
    """One invocation, run inside ``scripts/``; ``{work}`` stands for a fresh directory."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "plain": Case(["observe.py", "a", "--b", "-c"]),
    "absolute": Case([str(SCRIPTS / "observe.py")]),
    "two workers": Case(["--nproc-per-node", "2", "observe.py"]),
    "standalone": Case(["--standalone", "--nnodes=1", "--nproc_per_node=2", "observe.py"]),
    "module": Case(["-m", "observe", "a"]),
    "no python": Case(["--no-python", "./observe.sh", "a"]),
    "run path": Case(["--run-path", str(SCRIPTS / "observe.py"), "a"]),
    "role and restarts": Case(["--role", "trainer", "--max-restarts=3", "observe.py"]),
    "environment": Case(["observe.py"], {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "ps"}),
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
    "failure": Case(["--nproc-per-node=1", "observe.py", "--fail"]),
    "killed": Case(["--nproc-per-node=1", "observe.py", "--die"]),
    "redirected": Case(["--nproc-per-node=2", "-r", "0:1,1:3", "--log-dir={work}", "observe.py"]),
    "teed": Case(["--nproc-per-node=2", "-t", "3", "--log-dir={work}", "observe.py"]),
    "teed and filtered": Case(
        ["--nproc-per-node=2", "-t=3", "--log-dir={work}", "--local-ranks-filter=1", "observe.py"]
    ),
    "duplicated": Case(
        ["-t=1", "--log-dir={work}", "--duplicate-stdout-filters=out,x", "observe.py"]
    ),
    "own prefix": Case(
        ["--nproc-per-node=2", "-t=3", "--log-dir={work}", "observe.py"],
        {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank} ${local_rank}> "},
    ),
}


def observe(launcher: Sequence[str], case: Case, deadline_seconds: float = 60) -> dict[str, Any]:
    """Run a case with ``launcher`` and return what its workers saw and left."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as seen:
        given = {
            "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin",
            "HOME": seen,
            "LANG": "C.UTF-8",
            # However this process was called, its workers get one name.
            "PYTHON": f"{sys.prefix}/bin/python",
            "SEEN": seen,
            # Where a machine has it in site-packages it is no business of a launcher.
            "PYTHONDONTWRITEBYTECODE": "1",
        } | dict(case.environment)
        ran = subprocess.run(
            [
                *launcher,
                *(
                    argument.format(work=work) if "{work}" in argument else argument
                    for argument in case.arguments
                ),
            ],
            env=given,
            cwd=SCRIPTS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_seconds,
            check=False,
        )
        workers = {path.stem: json.loads(path.read_text()) for path in Path(seen).glob("*.json")}
        return {
            "exit_code": ran.returncode,
            "workers": {rank: _stable(workers[rank]) for rank in sorted(workers)},
            "out": sorted(ran.stdout.splitlines()),
            "err": sorted(line for line in ran.stderr.splitlines() if "err " in line),
            "files": _files(Path(work)),
        }


def _stable(worker: dict[str, Any]) -> dict[str, Any]:
    environment = worker["environment"]
    worker["environment"] = {
        name: "…" if name in UNSTABLE else value for name, value in sorted(environment.items())
    }
    # An editable install puts the repository itself on the path.
    worker["path"] = [entry for entry in worker["path"] if entry != str(REPOSITORY)]
    text = json.dumps(worker)
    for place, name in ((SCRIPTS, "scripts"), (sys.prefix, "prefix"), (sys.base_prefix, "base")):
        text = text.replace(str(place), f"<{name}>")
    return json.loads(re.sub(r"python3\.?1\d", "python3.N", text))  # type: ignore[no-any-return]


def _files(work: Path) -> dict[str, list[str]]:
    """Files below ``work/<run>/`` with their sorted lines."""
    return {
        "/".join(path.relative_to(work).parts[1:]): sorted(path.read_text().splitlines())
        for path in sorted(work.rglob("*"))
        if path.is_file()
    }


def main() -> None:
    """Print what the installed torchrun does with every case."""
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    recorded = {name: observe(torchrun, case) for name, case in CASES.items()}
    json.dump(recorded, sys.stdout, indent=1, sort_keys=True, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
