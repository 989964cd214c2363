"""The app on a socket, for clients that are no guests of the test's own event loop."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn


@contextmanager
def served(app: Any, *, lifespan: Literal["on", "off"] = "off") -> Iterator[str]:
    """Serve ``app`` on loopback; yields the URL.

    What it does beside requests, and the number of its threads, are of its ``lifespan``.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, lifespan=lifespan, log_config=None))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
