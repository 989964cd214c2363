"""Landlock by system calls: https://docs.kernel.org/userspace-api/landlock.html.

Landlock rules bind a process and every process that it starts. Such a process can neither trace nor
signal a process that the rules do not bind, and can make links and pipes only beneath named
directories.
"""

import ctypes
import os
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_SCOPE_SIGNAL = 1 << 1
_MAKE_FIFO, _MAKE_SYM, _REFER = 1 << 10, 1 << 12, 1 << 13
_LINKS = _MAKE_FIFO | _MAKE_SYM | _REFER
_PR_SET_NO_NEW_PRIVS = 38

#: Version of the interface that can allow links between directories (Linux 5.19).
LINKS = 2
#: Version of the interface that confines signals (Linux 6.12).
SIGNALS = 6

libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("filesystem", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("directory", ctypes.c_int32))


def version() -> int:
    """Return the version of the kernel's Landlock interface; 0 if the kernel does not support
    Landlock.
    """
    return max(0, int(libc.syscall(_CREATE, None, 0, _VERSION)))


def ruleset(directories: Iterable[int]) -> int:
    """Return a descriptor of rules that allow links and pipes only beneath ``directories``.

    Each directory is given as a descriptor, which is closed once it is used, because a process
    could not hold all of them open.

    Raises:
        OSError: the kernel refuses.
    """
    signals = version() >= SIGNALS
    rules = _Ruleset(filesystem=_LINKS, scoped=_SCOPE_SIGNAL if signals else 0)
    size = ctypes.sizeof(rules) if signals else ctypes.sizeof(ctypes.c_uint64)
    made = called(libc.syscall(_CREATE, ctypes.byref(rules), size, 0))
    for directory in directories:
        beneath = _Beneath(allowed=_LINKS, directory=directory)
        try:
            called(libc.syscall(_ADD, made, _PATH_BENEATH, ctypes.byref(beneath), 0))
        finally:
            os.close(directory)
    return made


def enforce(rules: int) -> None:
    """Bind this process to the rules permanently; no program that it starts can gain more rights.

    Raises:
        OSError: the kernel refuses.
    """
    called(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    called(libc.syscall(_RESTRICT, rules, 0))


def called(answer: int) -> int:
    """Return the result of a system call; raise an ``OSError`` if the call failed."""
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
