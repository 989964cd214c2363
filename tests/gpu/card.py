"""The interpreter and the card that parts run on."""

import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Sequence

#: Imported by the launcher; light wheels, which PYTHONPATH may bring.
NEEDED = ("torch", "msgspec", "httpx2")
#: Without it there are no readings of cards.
WISHED = ("pynvml",)
TORCHES = ("2.11", "2.12", "2.13")
TWO_CARDS = (
    "ranks of one NCCL world on several cards: joins, leaves and kills in process",
    "a peer's end in the middle of an NCCL all-reduce: all others abort, the next world trains",
    "sessions whose network is on another card than the first",
    "FSDP2 sharded over cards: launcher.checkpoint in pieces, loaded at another size",
    "the node check's all-reduces over NVLink, and CUDA_VISIBLE_DEVICES per rank",
)


def missing(names: Sequence[str]) -> list[str]:
    """Those of these modules that this interpreter does not have."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def cannot_run() -> str:
    """Why nothing can be run here, in one sentence; empty: it can."""
    lacking = missing(NEEDED)
    if "torch" in lacking:
        return f"{sys.executable} has no torch: nothing was run"
    if lacking:
        return (
            f"{sys.executable} has no {', '.join(lacking)}: nothing was run; unpack the wheels "
            "into a directory and name it in PYTHONPATH"
        )
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return f"no NVIDIA card that torch {torch.__version__} can use is here: nothing was run"
    return ""


def versions() -> list[str]:
    """What parts run with, a line each."""
    found = [f"Python {platform.python_version()}, {sys.executable}"]
    if missing(["torch"]):
        return found
    torch = importlib.import_module("torch")
    untried = "" if torch.__version__.startswith(TORCHES) else ", which nobody has tried"
    found.append(f"torch {torch.__version__}{untried}, CUDA {torch.version.cuda}")
    if not torch.cuda.is_available():
        return found
    nccl = importlib.import_module("torch.cuda.nccl").version()
    found.append(f"NCCL {'.'.join(map(str, nccl))}, cuDNN {torch.backends.cudnn.version()}")
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        found.append(f"card {index}: {card.name}, {card.total_memory / 2**30:.0f} GiB")
    found.append(f"driver {_driver()}; CUDA_VISIBLE_DEVICES {_visible()}")
    if lacking := missing(WISHED):
        found.append(f"not there: {', '.join(lacking)}")
    return found


def _driver() -> str:
    try:
        with open("/proc/driver/nvidia/version") as file:
            return file.readline().split("  ")[1].strip()
    except (OSError, IndexError):
        return "unknown"


def _visible() -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
