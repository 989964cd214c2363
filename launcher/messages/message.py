"""The base of every message."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages; unknown fields are tolerated.

    Each message names its ``tag``, which other releases read: it outlives the name of its class.
    """
