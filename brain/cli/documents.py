"""Job documents, which are read from a file or built from a command line.

Facts that only this machine knows complete each document.
"""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from brain.errors import BadInput

#: Programs that jobs usually begin with.
_PROGRAMS = ("python", "torchrun", "brain-run", "accelerate", "deepspeed")


def read_document(path: str, *, begins: str = "name") -> dict[str, Any]:
    """Read a document that a person wrote.

    Raises:
        BadInput: the file does not exist, or holds no mapping.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as missing:
        raise BadInput(
            f"{path} cannot be read: {missing.strerror}; name a file that you can read"
        ) from missing
    except UnicodeDecodeError as bad:
        raise BadInput(f"{path} is not UTF-8 text; name a YAML document") from bad
    document = parse_yaml(text, path)
    if not isinstance(document, dict):
        raise BadInput(f"{path} has no fields; start the document with `{begins}:`")
    return document


def expect_one(verb: str, path: str | None, words: Sequence[str], options: Collection[str]) -> None:
    """Refuse a command line that describes no job, or two jobs.

    ``options`` are the parameters that only make sense with a command after ``--``.

    Raises:
        BadInput: document and command are both missing or both given, or an option for commands is
            given with a document.
    """
    if path is None and not words:
        raise BadInput(f"there is nothing to {verb}; give -f FILE, or a command after --")
    if path is not None and words:
        raise BadInput(
            f"{path} and the command {' '.join(words)} describe two jobs; give only one of them"
        )
    context = click.get_current_context()
    for option in context.command.params:
        said = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if path is not None and said and option.name in options:
            raise BadInput(
                f"{option.opts[0]} only describes a command after --; write its value into {path} "
                "instead",
                field=option.name,
            )


class JobCommand(click.Command):
    """A command that takes a job's command after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An unknown option may be an option of the script, so the error
        explains where to write the script's options.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            raise click.UsageError(
                f"{unknown.format_message()} If it is an option of your script, write the "
                f"script's command after --: {ctx.command_path} -- python train.py "
                f"{unknown.option_name}",
                ctx,
            ) from unknown


def parse_yaml(text: str, path: str) -> Any:
    """Parse a YAML text; ``path`` names it in errors.

    Raises:
        BadInput: the text is not YAML, has an impossible date or number, is nested too deeply, or
            repeats a key within a mapping.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        twice = _twice(node, set())
        if twice is not None:
            key, line = twice
            raise BadInput(
                f"{path} has the field {key} twice, the second time in line {line}; delete one "
                "of the two",
                field=key,
            )
        return None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, ValueError) as bad:
        raise BadInput(f"{path} is not valid YAML: {bad}") from bad
    except RecursionError as deep:
        raise BadInput(f"{path} is nested too deeply to be read; flatten it") from deep


def _twice(node: Any, seen: set[int]) -> tuple[str, int] | None:
    """Return the first key that a mapping has twice, and its line; aliases are read once."""
    if id(node) in seen or not isinstance(getattr(node, "value", None), list):
        return None
    seen.add(id(node))
    keys: set[tuple[str, str]] = set()
    for each in node.value:
        key, value = each if isinstance(each, tuple) else (None, each)
        if key is not None and isinstance(key.value, str) and not key.tag.endswith(":merge"):
            if (key.tag, key.value) in keys:
                return key.value, key.start_mark.line + 1
            keys.add((key.tag, key.value))
        found = _twice(value, seen)
        if found is not None:
            return found
    return None


def document_of(
    words: tuple[str, ...],
    *,
    name: str | None,
    replicas: str,
    nproc: int,
    policy: str | None,
    checkpoint: str | None,
    env: tuple[str, ...],
    grace: float | None = None,
    independent: bool = False,
    image: str | None = None,
    roles: tuple[str, ...] = (),
    gpus: int = 0,
) -> dict[str, Any]:
    """Build the document that a command line describes."""
    low, _, high = replicas.partition(":")
    if not low.isdecimal() or not (high or low).isdecimal():
        raise BadInput(
            f"--replicas {replicas!r} is neither N nor MIN:MAX; write 2 or 1:4", field="replicas"
        )
    document: dict[str, Any] = {
        "name": name if name is not None else called(words),
        "command": list(words),
        "replicas": {"min": int(low), "max": int(high or low)},
        "processesPerReplica": nproc,
        "environment": dict(_pair(item) for item in env),
    }
    if gpus:
        document["resources"] = {"gpus": gpus}
    if roles:
        document["roles"] = dict(map(_role, roles))
    if image:
        document["image"] = image
    if policy:
        document["policy"] = {"mode": policy}
    if checkpoint is not None:
        document["checkpoint"] = {"path": checkpoint}
    if independent:
        document["independent"] = True
    if grace is not None:
        document.setdefault("checkpoint", {})["graceSeconds"] = grace
    return document


def called(words: Sequence[str]) -> str:
    """Return a name for a job without one: the name of its script, module or program.

    >>> called(["python", "-u", "my train.py"]), called(["torchrun", "--nnodes", "2", "train.py"])
    ('my-train', 'train')
    >>> called(["python", "-m", "vision.train", "--epochs", "3"]), called(["sleep", "5"])
    ('vision.train', 'sleep')
    """
    script = next((Path(word).stem for word in words if word.endswith((".py", ".sh"))), "")
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else Path(words[0]).name
    usable = re.sub(r"[^A-Za-z0-9._-]+", "-", script or module)
    return usable[:63].strip("-_.") or "job"


def _role(said: str) -> tuple[str, dict[str, int]]:
    name, _, number = said.partition("=")
    if not number.isdecimal():
        raise BadInput(f"--role {said!r} is not NAME=N; write ps=2, for example", field="roles")
    return name, {"replicas": int(number)}


def complete(document: dict[str, Any]) -> None:
    """Add facts that only this machine knows: the directory, and a hash of the script's text.

    Raises:
        BadInput: the document misspells a program, or names a Python script that does not exist.
    """
    document.setdefault("directory", os.getcwd())
    check_program(document)
    check_script(document)
    script = _script(document)
    with suppress(OSError):
        if script is not None and "scriptHash" not in document:
            document["scriptHash"] = hashlib.sha256(script.read_bytes()).hexdigest()[:16]


def check_program(document: dict[str, Any]) -> None:
    """Refuse a misspelt name of a common program, or a whole command that was quoted as one word;
    such a job would be queued first and fail later.

    Any other missing program may exist on the machine that runs the job.

    Raises:
        BadInput: the message names the program that may be meant, or the words of the command.
    """
    command = document.get("command")
    program = str(command[0]) if isinstance(command, list) and command else ""
    if shutil.which(program) or (program.startswith(_PROGRAMS) and not re.search(r"\s", program)):
        return
    words = program.split()
    if len(words) > 1:
        raise BadInput(
            f"command: this machine has no program {program!r}; write each word by itself, without "
            f"quotes around the command: {' '.join(words)}, or [{', '.join(words)}] in a document",
            field="command",
        )
    meant = get_close_matches(program, _PROGRAMS, n=1, cutoff=0.75)
    if meant:
        raise BadInput(
            f"command: this machine has no program {program}; did you mean {meant[0]}?",
            field="command",
        )


def check_script(document: dict[str, Any]) -> None:
    """Refuse a Python script that does not exist, before anything is started.

    Raises:
        BadInput: the message names the file, and the directory that was searched.
    """
    script = _script(document)
    # Path.is_file would raise if a directory on the way is closed to this user.
    if script is not None and not os.path.isfile(script):
        named, directory = document["command"][1], document["directory"]
        raise BadInput(
            f"command: {named} does not exist in {directory}, or you may not read it; correct its "
            "path",
            field="command",
        )


def _script(document: dict[str, Any]) -> Path | None:
    """Return the file that ``python FILE …`` runs; None for any other command."""
    command = document.get("command")
    if not isinstance(command, list) or len(command) < 2:
        return None
    if not Path(str(command[0])).name.startswith("python") or str(command[1]).startswith("-"):
        return None
    return Path(str(document["directory"])) / str(command[1])


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals:
        raise BadInput(
            f"--env {item!r} is not NAME=VALUE; write --env EPOCHS=3, for example",
            field="environment",
        )
    return name, value
