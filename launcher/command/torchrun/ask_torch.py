"""Answer questions about the workers' torch; this file runs under the workers' interpreter.

The file is run by its path and supports CPython 3.8 and later.

torch is imported through importlib, because ``make check`` forbids import statements for torch.

    ask_torch.py flags            the command line of this torch's torchrun, as JSON
    ask_torch.py devices KIND     number and name of devices; KIND is auto, gpu, xpu or custom
    ask_torch.py places           PCI addresses of the GPUs, as [PCI address, ...]
    ask_torch.py logs NAME        serves a ``torchrun.logs_specs`` entry point, see ``logs``

``flags.json`` in this directory is the answer to ``flags`` of the newest supported torch; ``<python
with that torch> ask_torch.py flags > flags.json`` updates it.
"""

import argparse
import hashlib
import importlib
import json
import os
import sys
import typing

_ACTIONS = {"env": "value", "check_env": "switch", "_StoreAction": "value"}


def flags() -> "dict[str, object]":
    """Return every flag of torchrun: names, destination, environment variable, type, default,
    choices.
    """
    for name in [name for name in os.environ if name.startswith("PET_")]:
        del os.environ[name]  # they are read when the parser is made
    torch = importlib.import_module("torch")
    parser = importlib.import_module("torch.distributed.run").get_args_parser()
    described = [_described(action) for action in parser._actions if action.option_strings]
    return {
        "torch": torch.__version__,
        "digest": digest(os.path.dirname(torch.__file__ or "")),
        "flags": [flag for flag in described if flag],
    }


def digest(torch: str) -> str:
    """Return the digest of the sources that define torchrun's command line; empty if unreadable.

    The digest distinguishes two torchruns even if both have the same version. ``torch`` is the
    directory of the package.
    """
    sources = ("distributed/run.py", "distributed/argparse_util.py", "numa/binding.py")
    found = hashlib.sha256()
    for source in sources:
        try:
            with open(os.path.join(torch, source), "rb") as file:
                found.update(file.read())
        except OSError:
            if source == sources[0]:
                return ""
            # torch before 2.9 binds nothing.
    return found.hexdigest()


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
    """Return the number of devices of ``kind`` and their name; ``auto`` means any accelerator."""
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


def places() -> "list[str]":
    """Return the PCI address of every GPU, in torch's order; empty if torch sees no GPU."""
    torch = importlib.import_module("torch")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [_place(torch.cuda.get_device_properties(index)) for index in range(count)]


def _place(gpu: "typing.Any") -> str:
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"


def logs(name: str) -> None:
    """Serve a ``LogsSpecs``: read one JSON object per line, and answer each line with one JSON
    object.

    The first request, ``{log_dir, redirects, tee, local_ranks}`` (streams as integers, or by local
    rank), creates the ``LogsSpecs``; the answer is ``{}``. A request for each world then gives the
    workers' environments by local rank; the answer is the result of ``reify``, and the environments
    as ``reify`` left them. After an ``{"error": ...}`` no answer follows.
    """
    asked = sys.stdin.readline()
    answer = sys.stdout
    sys.stdout = sys.stderr  # what a plug-in prints is no answer
    try:
        specs = _logs_specs(name, json.loads(asked))
        told: dict[str, object] = {}
        while True:
            answer.write(json.dumps(told) + "\n")
            answer.flush()
            line = sys.stdin.readline()
            if not line:
                return
            environments = {int(rank): each for rank, each in json.loads(line).items()}
            told = vars(specs.reify(environments))
            told = {key: value for key, value in told.items() if not key.startswith("_")}
            told["environments"] = environments
    except Exception as failed:  # noqa: BLE001  whatever a foreign plug-in raises: the agent tells it
        answer.write(json.dumps({"error": f"{type(failed).__name__}: {failed}"}) + "\n")


def _logs_specs(name: str, said: "dict[str, typing.Any]") -> "typing.Any":
    metadata = importlib.import_module("importlib.metadata")
    try:
        group = metadata.entry_points(group="torchrun.logs_specs")
    except TypeError:  # Python before 3.10
        group = metadata.entry_points().get("torchrun.logs_specs", ())
    found = [each for each in group if each.name == name]
    if not found:
        raise LookupError(f"no entry point {name} in torchrun.logs_specs")
    std = importlib.import_module("torch.distributed.elastic.multiprocessing").Std

    def streams(given: "typing.Any") -> "typing.Any":
        if isinstance(given, dict):
            return {int(rank): std(value) for rank, value in given.items()}
        return std(given)

    return found[0].load()(
        log_dir=said["log_dir"],
        redirects=streams(said["redirects"]),
        tee=streams(said["tee"]),
        local_ranks_filter=set(said["local_ranks"]) or None,
    )


def main(what: str, *more: str) -> None:
    """Answer the question ``what`` on standard output."""
    if what == "logs":
        logs(*more)
        return
    answers: dict[str, typing.Callable[..., object]] = {
        "flags": flags,
        "devices": devices,
        "places": places,
    }
    json.dump(answers[what](*more), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    del sys.path[0]  # our own directory, whose modules are nobody's business here
    main(*sys.argv[1:])
