"""One virtual environment for each group of programs, made once in the user's cache."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_SCRIPTS = Path(__file__).parent / "scripts"
_INSTALL_SECONDS = 1_800
#: What writes, once for an environment, the models and data that its programs read.
_MAKERS = {"huggingface": _SCRIPTS / "tiny.py"}


def installed(group: str, packages: tuple[str, ...]) -> Path:
    """The directory of programs of an environment with ``packages``, torch and this checkout."""
    constraints = REPOSITORY / "constraints.txt"
    maker = _MAKERS.get(group)
    made = maker.read_text() if maker else ""
    told = "\n".join((str(REPOSITORY), sys.version, *packages, constraints.read_text(), made))
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
            *([[str(place / "bin" / "python"), str(maker), str(place / "made")]] if maker else ()),
        ):
            subprocess.run(command, check=True, timeout=_INSTALL_SECONDS)
        done.touch()
    return place / "bin"
