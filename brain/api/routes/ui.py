"""The dashboard's built files: ``brain/_ui`` of a wheel, ``web/dist`` of a checkout.

They are public, because they contain only code; all data comes through the API.
"""

from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path

from fastapi.responses import FileResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from brain.api.compression import compressed_well, encoding_for, is_text_file
from brain.errors import NotFound

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; connect-src 'self'; img-src 'self' data:; style-src 'self'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
#: Headers of every answer, unless it has its own.
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_FOREVER = "public, max-age=31536000, immutable"


def directory() -> Path | None:
    """Return the directory of the built dashboard; None if it was not built."""
    package = Path(__file__).parents[2]
    places = (package / "_ui", package.parent / "web" / "dist")
    return next((place for place in places if (place / "index.html").is_file()), None)


class Dashboard:
    """Answers requests for paths without a route: with a built file or, if a browser opens a page,
    with the dashboard.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root and root.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the answer is 404 unless it asks for a file or is a navigation."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        path = scope["path"]
        if request.method not in ("GET", "HEAD"):
            raise HTTPException(404)
        response: Response
        if file := self._file(path):
            caching = _FOREVER if path.startswith("/assets/") else "no-cache"
            response = await run_in_threadpool(_answer, request, file, caching)
        elif _is_navigation(request):
            response = await run_in_threadpool(self._page, request)
        else:
            raise HTTPException(404)
        await response(scope, receive, send)

    def _file(self, path: str) -> Path | None:
        """Return the built file of a path, looked up again each time because a build may have
        replaced it.
        """
        if self._root is None:
            return None
        try:
            file = (self._root / path.lstrip("/")).resolve(strict=True)
        except (OSError, ValueError):
            # No file of this name exists, or can exist.
            return None
        return file if file.is_relative_to(self._root) and file.is_file() else None

    def _page(self, request: Request) -> Response:
        if self._root is None:
            raise NotFound("the dashboard was not built; run `make web`")
        return _answer(request, self._root / "index.html", "no-cache")


def _answer(request: Request, file: Path, caching: str) -> Response:
    """Return a file, compressed if it is text; status 304 if the client has it."""
    if not is_text_file(file.name):
        return FileResponse(file, headers={"Cache-Control": caching})
    data, encoding = file.read_bytes(), encoding_for(request.headers.get("accept-encoding", ""))
    etag = f'"{sha256(data).hexdigest()[:16]}{f"-{encoding}" if encoding else ""}"'
    headers = {"Cache-Control": caching, "ETag": etag, "Vary": "Accept-Encoding"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if encoding is not None:
        headers["Content-Encoding"] = encoding
        data = compressed_well(data, encoding)
    kind, _ = guess_type(file.name)
    return Response(data, headers=headers, media_type=kind)


def _is_navigation(request: Request) -> bool:
    """Return True if a person opened a page of the dashboard by its address or a link."""
    path = request.url.path
    machine = path.startswith(("/api/", "/assets/", "/v1/")) or "." in path.rsplit("/", 1)[-1]
    return not machine and "text/html" in request.headers.get("accept", "")
