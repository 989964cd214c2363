"""What only torch can answer. Run by path under the workers' interpreter, CPython 3.8 on.

torch is imported by name alone: nothing of the agent may import it, and a machine checks that.

    ask_torch.py flags            the command line of this torch's torchrun, as JSON
    ask_torch.py devices KIND     how many devices, and their name; KIND is auto, gpu, xpu or custom

``launcher/torchrun_flags.json`` is the answer to ``flags`` of the newest torch that was looked at;
``<python with that torch> launcher/ask_torch.py flags > launcher/torchrun_flags.json`` renews it.
"""

import argparse
import importlib
import json
import os
import sys

_ACTIONS = {"env": "value", "check_env": "switch", "_StoreAction": "value"}


def flags() -> "dict[str, object]":
    """Every flag of torchrun: names, destination, environment variable, type, default, choices."""
    for name in [name for name in os.environ if name.startswith("PET_")]:
        del os.environ[name]  # they are read when the parser is made
    torch = importlib.import_module("torch")
    parser = importlib.import_module("torch.distributed.run").get_args_parser()
    described = [_described(action) for action in parser._actions if action.option_strings]
    version = ".".join(torch.__version__.split(".")[:2])
    return {"torch": version, "flags": [flag for flag in described if flag]}


def _described(action: "argparse.Action") -> "dict[str, object] | None":
    kind = type(action).__name__
    if kind not in _ACTIONS:
        return None
    names: dict[object, str] = {str: "str", int: "int", float: "float", None: "str"}
    return {
        "names": action.option_strings,
        "dest": action.dest,
        "kind": _ACTIONS[kind],
        # The only other one splits at commas.
        "type": names.get(action.type, "list"),
        "default": None if action.default is argparse.SUPPRESS else action.default,
        "choices": list(action.choices) if action.choices else None,
        "environment": "PET_" + action.dest.upper() if kind != "_StoreAction" else None,
        "help": " ".join((action.help or "").split()),
    }


def devices(kind: str) -> "dict[str, object]":
    """Devices of ``kind``; ``auto`` takes what there is, 0 where there is no accelerator."""
    torch = importlib.import_module("torch")
    if kind == "gpu":
        module = torch.cuda
    elif kind == "auto":
        found = torch.accelerator.is_available() if hasattr(torch, "accelerator") else False
        name = torch.accelerator.current_accelerator().type if found else "cuda"
        module = getattr(torch, name)
    else:
        module = getattr(torch, kind)
    if not module.is_available():
        return {"count": 0, "name": ""}
    named = getattr(module, "get_device_name", None)
    return {"count": module.device_count(), "name": named(0) if named else kind}


if __name__ == "__main__":
    del sys.path[0]  # our own directory, whose modules are nobody's business here
    json.dump(flags() if sys.argv[1] == "flags" else devices(sys.argv[2]), sys.stdout, indent=1)
    sys.stdout.write("\n")
