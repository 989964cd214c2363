"""Makes JSON readable that is nested too deeply for the decoder.

msgspec gives up at about 1,000 levels. The API server stores up to 10,000 levels in a field without
a schema, for example in the pod template of an ElasticJob.
"""

import re
from collections.abc import Mapping

#: Most levels of a value that stays; Kubernetes' own kinds have about 15.
MOST_LEVELS = 100
#: Text that replaces a deeper value; a reader of the object then refuses the field.
CUT = f"(nested more than {MOST_LEVELS} levels deep)"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def without_depths(body: bytes, level: int) -> bytes:
    """Return JSON in which ``CUT`` replaces each list and object that lies inside ``level`` others
    and is nested more than ``MOST_LEVELS`` levels deep.

    >>> without_depths(b'{"a": [1], "b": ' + b"[" * 101 + b"]" * 101 + b"}", 1).decode()
    '{"a": [1], "b": "(nested more than 100 levels deep)"}'
    """
    kept: list[bytes] = []
    copied = began = depth = deepest = 0
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"[" | b"{":
                if depth == level:
                    began, deepest = token.start(), depth
                depth += 1
                deepest = max(deepest, depth)
            case b"]" | b"}":
                depth -= 1
                if depth == level and deepest - level > MOST_LEVELS:
                    kept += [body[copied:began], f'"{CUT}"'.encode()]
                    copied = token.end()
    return b"".join([*kept, body[copied:]])


def deeper(value: object, levels: int) -> bool:
    """True if lists and objects are nested more than ``levels`` deep in each other."""
    here = [value]
    for _ in range(levels + 1):
        outer = [each for each in here if isinstance(each, Mapping | list)]
        here = [
            inner
            for each in outer
            for inner in (each.values() if isinstance(each, Mapping) else each)
        ]
        if not outer:
            return False
    return True
