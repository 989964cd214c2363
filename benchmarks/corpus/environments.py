"""Creates one virtual environment for each group of programs, in the user's cache."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_SCRIPTS = Path(__file__).parent / "scripts"
_INSTALL_SECONDS = 1_800
#: What writes the models and data that an environment's programs read.
_MAKERS = {"huggingface": _SCRIPTS / "tiny.py"}


def installed(group: str, packages: tuple[str, ...]) -> Path:
    """Return the ``bin`` directory of an environment with ``packages``, torch and this checkout."""
    constraints = REPOSITORY / "constraints.txt"
    told = "\n".join((str(REPOSITORY), sys.version, *packages, constraints.read_text()))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(told.encode()).hexdigest()[:12]
    place = Path(cache) / "elastic-brain" / "corpus" / f"{group}-{digest}"
    done = place / ".complete"
    if not done.exists():
        print(f"installing {group} into {place}", flush=True)
        pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        ours = ("--constraint", str(constraints), "--editable", f"{REPOSITORY}[torch]")
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(place)],
            [*pip, *ours, *packages],
        ):
            subprocess.run(command, check=True, timeout=_INSTALL_SECONDS)
        done.touch()
    if group in _MAKERS:
        _make(_MAKERS[group], place)
    return place / "bin"


def _make(maker: Path, place: Path) -> None:
    """Run ``maker`` in the environment, once for each version of it."""
    done = place / "made" / ".maker"
    if not done.exists() or done.read_text() != maker.read_text():
        command = [str(place / "bin" / "python"), str(maker), str(place / "made")]
        subprocess.run(command, check=True, timeout=_INSTALL_SECONDS)
        done.write_text(maker.read_text())
