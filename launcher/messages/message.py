"""The base of every message."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages; unknown fields are tolerated.

    Each message has a ``tag``, which other releases read, so keep the tag if you rename the class.
    """
