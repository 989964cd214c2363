"""Variables that differ between the ranks of a world, and modules that read them before any script.

This module runs in the fork server, uses only the standard library and supports CPython 3.8 and
later.
"""

import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES = """RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK
ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT
TORCHELASTIC_ERROR_FILE TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE
TORCHELASTIC_SIGNALS_TO_HANDLE ROLE_NAME"""
#: What differs between ranks: whoever reads it while it is imported is not shared.
PER_RANK = frozenset(_NAMES.encode().split())
#: What ``site`` imports in every interpreter, before the fork server can watch its reads.
_OF_SITE = ("sitecustomize", "usercustomize")


def lacks() -> "dict[str, Any] | None":
    """Return the reason if a module that ``site`` imports names a variable of ``PER_RANK``: then no
    worker can be forked, and each worker needs a fresh interpreter. Return None if no module does.

    The result has the form that ``torch_names.lacks`` returns.
    """
    for module in _OF_SITE:
        file = getattr(sys.modules.get(module), "__file__", None)
        if not isinstance(file, str):
            continue
        try:
            with open(file, "rb") as source:
                text = source.read()
        except OSError:
            continue
        for name in sorted(PER_RANK.intersection(re.findall(rb"\w+", text))):
            return {"plain": True, "why": "%s reads %s" % (file, name.decode())}
    return None
