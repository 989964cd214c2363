"""Paths of the sockets and files through which programs on one machine communicate; each program
computes the same paths.
"""

from hashlib import sha256
from typing import Final

#: Longest path of a Unix socket here: Linux allows 107 bytes, and the difference is for longer
#: names in the same directory.
SOCKET_PATH_BYTES: Final = 100


def probe_socket(home: str, uid: int) -> str:
    """Return the path of the socket at which a machine's collector receives the probes' samples.

    The path is ``$BRAIN_HOME/collector/probe.sock``, or, if that is too long for a socket, the same
    name in ``/tmp/brain-<uid>-<hash of home>/``. ``home`` is absolute and resolved; the process
    that binds it creates the directory with mode 0700.

    >>> probe_socket("/home/ada/.brain", 1000)
    '/home/ada/.brain/collector/probe.sock'
    >>> probe_socket("/" + "long/" * 20 + "home", 1000)
    '/tmp/brain-1000-094b1e86f099/probe.sock'
    """
    return short_socket(home.rstrip("/") + "/collector/probe.sock", home, uid)


def short_socket(path: str, home: str, uid: int) -> str:
    """Return ``path``; if it is too long for a socket, return what ``local_socket`` returns: a
    short path with the same file name.
    """
    return path if len(path.encode()) <= SOCKET_PATH_BYTES else local_socket(path, home, uid)


def local_socket(path: str, home: str, uid: int) -> str:
    """Return a path with the file name of ``path`` in the short directory of ``home``, which is in
    ``/tmp`` and so local to the machine.
    """
    hashed = sha256(home.rstrip("/").encode()).hexdigest()[:12]
    return f"/tmp/brain-{uid}-{hashed}/{path.rsplit('/', 1)[-1]}"
