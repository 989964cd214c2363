"""Messages keep the bytes that agents of other releases read, whatever their classes are called."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher import messages
from launcher.messages.connection import encoded

#: One message of each kind, as it went over the wire when its tag was written down.
RECORDED = json.loads((Path(__file__).parent / "recorded" / "messages.json").read_text())


@pytest.mark.parametrize("tag", RECORDED)
def test_a_message_is_read_and_written_as_it_was_recorded(tag: str) -> None:
    recorded = bytes.fromhex(RECORDED[tag])
    message: Any = msgspec.msgpack.decode(recorded[4:], type=messages.ANY)
    assert message.__struct_config__.tag == tag
    plain = msgspec.msgpack.decode
    assert covers(plain(encoded(message)[4:]), plain(recorded[4:]))


def covers(written: Any, recorded: Any) -> bool:
    """True if all that was recorded is written; fields that came since have defaults."""
    if isinstance(recorded, dict):
        return all(name in written and covers(written[name], recorded[name]) for name in recorded)
    if isinstance(recorded, list):
        return len(written) == len(recorded) and all(map(covers, written, recorded))
    return bool(written == recorded)


def test_every_message_is_recorded() -> None:
    kinds = msgspec.inspect.type_info(messages.ANY)
    assert isinstance(kinds, msgspec.inspect.UnionType)
    tags = {kind.tag for kind in kinds.types if isinstance(kind, msgspec.inspect.StructType)}
    assert tags == set(RECORDED)
