"""``python -m deploy.image.follow PREFIX``: do what the Dockerfile says, below PREFIX, and try it.

No Docker is needed: every COPY copies there and every RUN runs with the image's paths put below
PREFIX and this machine's Python in place of the base image's. It proves the steps, not the base
image. Then what was built is tried: the service's programs, and the agent from another place with
an empty environment.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = Path(__file__).with_name("Dockerfile")
#: Directories of the image that are put below the prefix.
_PLACES = ("/opt", "/src", "/wheels", "/var/lib/brain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction of a Dockerfile."""

    word: str
    rest: str

    def flags(self) -> dict[str, str]:
        """``--from=wheel`` and the like."""
        return dict(re.findall(r"--(\w+)=(\S+)", self.rest))

    def words(self) -> list[str]:
        """What follows, without flags."""
        return [word for word in shlex.split(self.rest) if not word.startswith("--")]


def instructions(text: str) -> Iterator[Instruction]:
    """Every instruction, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield Instruction(word=word.upper(), rest=rest.strip())


def follow(prefix: Path, python: str = sys.executable) -> None:
    """Build below ``prefix``."""
    workdir = "/"
    for step in instructions(DOCKERFILE.read_text()):
        # Environments know their own place: all stages share the prefix, so that it stays true.
        if step.word == "WORKDIR":
            workdir = step.rest
            _below(prefix, workdir).mkdir(parents=True, exist_ok=True)
        elif step.word == "COPY" and "from" not in step.flags():
            _copy(step, prefix, workdir)
        elif step.word == "RUN" and "chown" not in step.rest:
            _run(step.rest, prefix, workdir, python)


def tried(prefix: Path) -> None:
    """Run what was built."""
    service, moved = prefix / "opt/service/bin", prefix / "elsewhere"
    subprocess.run([service / "brain", "--help"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([service / "brain-scale", "--help"], check=True, stdout=subprocess.DEVNULL)
    code = "import brain.service.exporting, kubernetes, scaler.kubernetes.kinds"
    subprocess.run([service / "python3", "-P", "-c", code], check=True)
    shutil.rmtree(moved, ignore_errors=True)
    # The original is taken away: whatever still points there fails.
    (prefix / "opt/brain").rename(moved)
    agent = (
        "import ssl, ctypes, sqlite3, httpx2, msgspec, psutil; "
        "import launcher.agent.program, launcher.pod.program, collectors.loop"
    )
    command = ["env", "-i", moved / "bin/python3", "-P", "-c", agent]
    subprocess.run(command, check=True)
    subprocess.run(
        ["env", "-i", moved / "bin/python3", "-P", "-m", "launcher.cli", "--help"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    size = sum(path.stat().st_size for path in moved.rglob("*") if path.is_file())
    sys.stdout.write(f"built and tried; the agent takes {size / 2**20:.0f} MiB\n")


def _copy(step: Instruction, root: Path, workdir: str) -> None:
    *sources, target = step.words()
    place = _below(root, target if target.startswith("/") else f"{workdir}/{target}")
    for source in sources:
        path = ROOT / source
        if path.is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, place, dirs_exist_ok=True, ignore=skip)
        else:
            into = place / path.name if len(sources) > 1 or target.endswith("/") else place
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, into)


def _run(script: str, root: Path, workdir: str, python: str) -> None:
    for place in _PLACES:
        script = re.sub(rf"(?<![\w/.]){place}(?=[/\s\"')*]|$)", str(_below(root, place)), script)
    script = re.sub(r"^python3 ", f"{shlex.quote(python)} ", script)
    sys.stdout.write(f"RUN {script}\n")
    sys.stdout.flush()
    where = _below(root, workdir) if _below(root, workdir).exists() else root
    subprocess.run(["sh", "-ec", script], check=True, cwd=where)


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


if __name__ == "__main__":
    if len(sys.argv) != 2 or (Path(sys.argv[1]).exists() and any(Path(sys.argv[1]).iterdir())):
        sys.exit("usage: python -m deploy.image.follow EMPTY_DIRECTORY")
    follow(Path(sys.argv[1]).absolute())
    tried(Path(sys.argv[1]).absolute())
