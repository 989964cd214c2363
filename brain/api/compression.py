"""Compression of answers: zstd if the client accepts it, else gzip.

Complete answers are compressed when they are sent. Files of the dashboard are compressed once.
Streams of events are compressed chunk by chunk, so that no event waits in a buffer.
"""

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache

import zstandard
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Shorter answers are not compressed, because their headers are as long.
_LEAST_BYTES = 1024
#: Answers above this many bytes are compressed in a thread, so that other requests need not wait.
_LARGE_BYTES = 64 * 1024
_TEXT = ("text/", "application/json", "application/problem+json", "image/svg+xml")
_TEXT_FILES = (".html", ".js", ".css", ".svg", ".json", ".txt", ".map")
#: Number of stream chunks whose compressed form is cached, because all streams send the same ones.
_CHUNKS = 16

_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def _gzipped(data: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


#: Compressors by encoding, the preferred first: fast ones for answers, and strong ones for files.
_QUICKLY: Mapping[str, Callable[[bytes], bytes]] = {
    "zstd": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
    "gzip": lambda data: _gzipped(data, 1),
}
_WELL: Mapping[str, Callable[[bytes], bytes]] = {
    "zstd": lambda data: zstandard.ZstdCompressor(level=19).compress(data),
    "gzip": lambda data: _gzipped(data, 9),
}


def encoding_for(accepted: str, known: tuple[str, ...] = tuple(_QUICKLY)) -> str | None:
    """Return the encoding to use for an ``Accept-Encoding`` header; None if the client accepts no
    supported encoding.

    >>> encoding_for("gzip, deflate, br, zstd")
    'zstd'
    >>> encoding_for("gzip;q=0.5, zstd;q=0")
    'gzip'
    """
    taken = {}
    for part in accepted.lower().split(","):
        name, _, parameter = part.strip().partition(";")
        weight = parameter.strip().removeprefix("q=").strip("0. ")
        taken[name.strip()] = not parameter.strip().startswith("q=") or bool(weight)
    return next((name for name in known if taken.get(name, taken.get("*", False))), None)


def is_text_file(name: str) -> bool:
    """True if a file with this name is worth compressing."""
    return name.endswith(_TEXT_FILES)


@lru_cache(maxsize=128)
def compressed_well(data: bytes, encoding: str) -> bytes:
    """Return a file's content, compressed at a high level in an encoding; the result is cached."""
    return _WELL[encoding](data)


class GzipStream:
    """A gzip stream of chunks; the client can read each chunk as soon as it arrives."""

    def __init__(self) -> None:
        self._checksum = self._length = 0

    def packed(self, chunk: bytes) -> bytes:
        """Return the next chunk, compressed."""
        head = b"" if self._length else _GZIP_HEAD
        self.count(chunk)
        return head + _deflated(chunk)

    def repeated(self, chunk: bytes) -> bytes:
        """Return a chunk in a compressed form that all streams share.

        The chunk must not be the first one of this stream. Call ``count`` once the chunk is sent.
        """
        return _deflated(chunk)

    def count(self, chunk: bytes) -> None:
        """Add a chunk to the stream's checksum and length, after ``repeated`` compressed it and it
        was sent.
        """
        self._checksum = zlib.crc32(chunk, self._checksum)
        self._length += len(chunk)

    def end(self) -> bytes:
        """Return the last bytes of the stream, with its checksum and length."""
        ends = self._checksum.to_bytes(4, "little") + (self._length & 0xFFFFFFFF).to_bytes(
            4, "little"
        )
        return (b"" if self._length else _GZIP_HEAD) + b"\x03\x00" + ends


async def gzipped_stream(
    chunks: AsyncIterator[bytes], stream: GzipStream | None = None
) -> AsyncIterator[bytes]:
    """Yield ``chunks`` as a gzip stream; other code may add chunks through ``stream``."""
    stream = stream or GzipStream()
    async for chunk in chunks:
        yield stream.packed(chunk)
    yield stream.end()


@lru_cache(maxsize=_CHUNKS)
def _deflated(chunk: bytes) -> bytes:
    """Return a chunk compressed independently of other chunks, so that all streams can send it."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)


class Compressing:
    """Compresses complete text answers without secrets, for clients that accept compression."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with a compressed body if the client accepts it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        encoding = encoding_for(Headers(scope=scope).get("accept-encoding", ""))
        start: Message | None = None

        async def sending(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_compressible(message):
                # Held until the body arrives, because compression changes the headers.
                start = message
                return
            if start is not None:
                started, start = start, None
                message = await _compressed(started, message, encoding)
                await send(started)
            await send(message)

        await self._app(scope, receive, sending)


async def _compressed(start: Message, body: Message, encoding: str | None) -> Message:
    """Return the compressed body, and change the headers of ``start`` accordingly."""
    headers, data = MutableHeaders(scope=start), body.get("body", b"")
    headers.setdefault("Vary", "Accept-Encoding")
    if encoding is None or body.get("more_body") or len(data) < _LEAST_BYTES:
        return body
    pack = _QUICKLY[encoding]
    packed = pack(data) if len(data) <= _LARGE_BYTES else await run_in_threadpool(pack, data)
    headers["Content-Encoding"] = encoding
    headers["Content-Length"] = str(len(packed))
    if (etag := headers.get("etag", "")).startswith('"'):
        # A weak ETag: the version is the same, the bytes are not.
        headers["ETag"] = f"W/{etag}"
    return {**body, "body": packed}


def _is_compressible(start: Message) -> bool:
    """True for a complete text that is neither encoded nor secret; streams have no length."""
    headers = Headers(raw=start["headers"])
    return (
        headers.get("content-type", "").startswith(_TEXT)
        and "content-length" in headers
        and "content-encoding" not in headers
        and headers.get("cache-control") != "no-store"
    )
