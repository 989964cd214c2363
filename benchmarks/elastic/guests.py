"""Other launchers that need their own environment, which is created once in the user's cache."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.elastic.launchers import NO_SHARING, TORCHFT, TUNED, Launcher, absent

_INSTALL_SECONDS = 900
_TORCH = "torch==2.13.0"
#: Release 0.6.1 names none of the last three, and starts without none of them.
_DLROVER = (_TORCH, "dlrover==0.6.1", "numpy", "grpcio", "protobuf", "kubernetes", "tornado")
_MASTER = "-m dlrover.python.master.main --platform local --node_num 1 --job_name bench --port"


_TORCHFT = (_TORCH, "torchft==0.2.0", "numpy")
_RESILIENCY = (_TORCH, "nvidia-resiliency-ext==0.4.1", "numpy")
#: Its time-outs as short as torchrun's are in the tuned rows.
_LIGHTHOUSE = (
    "--bind 127.0.0.1:{port} --min_replicas 1 --quorum_tick_ms 100 "
    "--join_timeout_ms 1000 --heartbeat_timeout_ms 5000"
)


def dlrover() -> Launcher:
    """Return dlrover-run 0.6.1 with a local master and the shortest wait for more nodes."""
    name = "dlrover-run 0.6.1"
    place, why = _installed("dlrover-0.6.1", _DLROVER)
    if why:
        return absent(name, why)
    return Launcher(
        name=name,
        program=str(place / "bin" / "dlrover-run"),
        flags=("--rdzv-conf=lastcall_timeout=1",),
        environment={"PATH": f"{place / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"},
        master=(str(place / "bin" / "python"), *_MASTER.split(), "{port}"),
        settings={
            "DLROVER_MASTER_ADDR": "127.0.0.1:{port}",
            "NODE_ID": "{index}",
            "NODE_RANK": "{rank}",
        },
        patience_seconds=90.0,
        slow=True,
    )


def torchft() -> Launcher:
    """Return torchft 0.2, which is a library without a launcher and so needs another script; its
    processes stay.
    """
    name = "torchft 0.2, script rewritten"
    place, why = _installed("torchft-0.2.0", _TORCHFT)
    if why:
        return absent(name, why)
    return Launcher(
        name=name,
        program=str(place / "bin" / "torchrun"),
        script=TORCHFT,
        nodes="1",
        master=(str(place / "bin" / "torchft_lighthouse"), *_LIGHTHOUSE.split()),
        settings={
            "TORCHFT_LIGHTHOUSE": "http://127.0.0.1:{port}",
            "REPLICA_GROUP_ID": "{index}",
            "NUM_REPLICA_GROUPS": "3",
        },
        restarts=False,
        slow=True,
    )


def ft_launcher() -> Launcher:
    """Return the launcher of NVIDIA's resiliency extension: torchrun's agent with a monitor for
    each rank.
    """
    name = "ft_launcher 0.4.1"
    place, why = _installed("nvidia-resiliency-ext-0.4.1", _RESILIENCY)
    if why:
        return absent(name, why)
    return Launcher(
        name=name,
        program=str(place / "bin" / "ft_launcher"),
        flags=(TUNED, "--ignore-missing-fault-tol-cfg"),
        environment=NO_SHARING,
        patience_seconds=90.0,
        slow=True,
    )


def _installed(name: str, packages: tuple[str, ...]) -> tuple[Path, str]:
    """Return a virtual environment with these packages, or the reason why there is none."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = Path(cache) / "elastic-brain" / "bench" / name
    done = place / ".complete"
    if done.exists():
        return place, ""
    print(f"installing {name} into {place}", flush=True)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    try:
        for command in ([sys.executable, "-m", "venv", "--clear", str(place)], [*pip, *packages]):
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS
            )
    except subprocess.CalledProcessError as failed:
        return place, f"it does not install: {failed.stderr.strip().splitlines()[-1]}"
    except (OSError, subprocess.TimeoutExpired) as cannot:
        return place, f"it does not install: {cannot}"
    done.touch()
    return place, ""
