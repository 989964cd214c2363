"""``BRAIN_OFF=1``: the installed torchrun runs the command, without any part of Brain."""

import os
from collections.abc import Mapping, Sequence

from brain.errors import BadInput
from launcher.command import flags
from launcher.command.torchrun import description


def wanted(environment: Mapping[str, str]) -> bool:
    """Return True if ``BRAIN_OFF`` is 1.

    Raises:
        BadInput: the value is neither 0 nor 1.
    """
    said = environment.get("BRAIN_OFF", "")
    if said not in ("", "0", "1"):
        raise BadInput(f"BRAIN_OFF={said} must be 0 or 1", field="BRAIN_OFF")
    return said == "1"


def command(
    interpreter: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], str]:
    """Return the command line for torchrun, and a sentence for the user. The sentence says that
    plain torchrun runs, and names the flags that were left out because torchrun lacks them.

    Raises:
        BadInput: ``interpreter`` has no torch.
    """
    if description.installed_torch(interpreter) is None:
        raise BadInput(
            f"BRAIN_OFF=1 asks for plain torchrun, but no torch was found for {interpreter}; "
            "install torch there, or unset BRAIN_OFF",
            field="BRAIN_OFF",
        )
    known = description.torchrun_of(interpreter, environment)
    kept, dropped = flags.for_torchrun(arguments, known)
    script = os.path.join(os.path.dirname(interpreter), "torchrun")
    # ``-m`` would put the working directory in front of the standard library.
    begin = [script] if os.path.exists(script) else ["-m", "torch.distributed.run"]
    note = "BRAIN_OFF=1: plain torchrun runs this script"
    if dropped:
        names = ", ".join(dict.fromkeys(dropped))
        note += f"; these flags are left out, because torchrun does not have them: {names}"
    return [interpreter, *begin, *kept], note
