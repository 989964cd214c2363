"""Splits the output of scripts, which arrives in pieces, into lines."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator

#: Bytes that the service sends while a log that is followed has no new line. They arrive at the
#: beginning of a line, or where a progress bar has returned to it.
_HEARTBEATS = re.compile(r"(^|\r)\0+")


def lines(parts: Iterable[str]) -> Iterator[str]:
    r"""Split text into lines as scripts print them: only a line feed ends one, so a progress bar,
    which returns to the beginning of its line, stays one.

    >>> list(lines(["\0\0step 7\n\n10 %\r20", " %\nlast\u2028\0", "\n\0"]))
    ['step 7', '', '10 %\r20 %', 'last\u2028\x00']
    """
    splitter = _Splitter()
    for part in parts:
        yield from splitter.take(part)
    yield from splitter.end()


async def lines_as_they_come(parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """Split text like ``lines``, piece by piece as it arrives."""
    splitter = _Splitter()
    async for part in parts:
        for line in splitter.take(part):
            yield line
    for line in splitter.end():
        yield line


class _Splitter:
    """Splits text into lines, and removes the heartbeats from them."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def take(self, text: str) -> Iterator[str]:
        """Yield the lines that the text completes."""
        first, *others = text.split("\n")
        self._pieces.append(first)
        for other in others:
            line, self._pieces = "".join(self._pieces), [other]
            yield _printed(line)

    def end(self) -> Iterator[str]:
        """Yield the last line if no line feed ended it."""
        if last := _printed("".join(self._pieces)):
            yield last


def _printed(line: str) -> str:
    return _HEARTBEATS.sub(r"\1", line).removesuffix("\r")
