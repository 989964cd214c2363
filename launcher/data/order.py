"""An epoch's order: a permutation of ``range(size)`` that is computed position by position.

Nothing is stored or shuffled, so the order costs no memory and no start-up time. Every rank of
every world finds the same example at the same position.
"""

import hashlib

_ROUNDS = 6
_KEY_BYTES = 8
_WORD = (1 << 64) - 1
#: The odd number nearest to 2^64 over the golden ratio: multiplying by it stirs the upper bits.
_STIR = 0x9E3779B97F4A7C15


class ExampleOrder:
    """The order of epoch ``epoch`` under ``seed``; with ``shuffle=False``, the data's own order.

    It is computed by a Feistel network over the next power of two, which is applied until the
    result is below the size; this is a bijection for any round function (Black and Rogaway,
    *Ciphers with arbitrary finite domains*, 2002).
    """

    def __init__(self, size: int, *, seed: int, epoch: int, shuffle: bool = True) -> None:
        self._size, self._plain = size, not shuffle or size < 2
        bits = max(2, (size - 1).bit_length())
        self._low_bits = bits // 2
        self._low, self._high = (1 << bits // 2) - 1, (1 << (bits - bits // 2)) - 1
        name = f"{seed}:{epoch}".encode()
        stirred = hashlib.blake2b(name, digest_size=_ROUNDS * _KEY_BYTES).digest()
        keys = [
            int.from_bytes(stirred[at : at + _KEY_BYTES], "little")
            for at in range(0, len(stirred), _KEY_BYTES)
        ]
        self._rounds = list(zip(keys[0::2], keys[1::2], strict=True))

    def __getitem__(self, place: int) -> int:
        """Return the example at a place; both count from 0."""
        if self._plain:
            return place
        place = self._stirred(place)
        while place >= self._size:
            place = self._stirred(place)
        return place

    def place_of(self, example: int) -> int:
        if self._plain:
            return example
        place = self._unstirred(example)
        while place >= self._size:
            place = self._unstirred(place)
        return place

    def _stirred(self, place: int) -> int:
        high, low = place >> self._low_bits, place & self._low
        for one, other in self._rounds:
            high ^= _mixed(low, one) & self._high
            low ^= _mixed(high, other) & self._low
        return high << self._low_bits | low

    def _unstirred(self, place: int) -> int:
        high, low = place >> self._low_bits, place & self._low
        for one, other in reversed(self._rounds):
            low ^= _mixed(high, other) & self._low
            high ^= _mixed(low, one) & self._high
        return high << self._low_bits | low


def _mixed(half: int, key: int) -> int:
    """The round function: 32 bits that depend on all bits of both."""
    stirred = (half ^ key) * _STIR & _WORD
    return ((stirred ^ stirred >> 29) * _STIR & _WORD) >> 32
