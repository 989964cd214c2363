"""What every frame is."""

import msgspec


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all frames; unknown fields are tolerated."""
