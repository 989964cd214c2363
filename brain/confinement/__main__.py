"""``python -m brain.confinement HOME PLACE DIRECTORY COMMAND…``: confine a command."""

import os
import pwd
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Never

from brain.confinement import landlock, unveiled
from brain.confinement.landlock import called, libc

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _SLAVE = 1, 32, 4096, 16384, 1 << 19
#: Devices of accelerators and of fast networks, whose groups a job keeps.
_DEVICES = ("nvidia*", "dri/*", "kfd", "accel*", "accel/*", "infiniband/*", "davinci*")
#: Sockets of programs that start unconfined processes for any client.
_STARTERS = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")


def main(arguments: Sequence[str]) -> Never:
    """Give up every permission that a job of ``PLACE`` must not have, and execute the job's
    command.
    """
    home, place = Path(arguments[0]), Path(arguments[1])
    directory, command = arguments[2], arguments[3:]
    if os.geteuid() == 0:
        _need(landlock.LINKS, "5.19", "a job could mislead the service with links among its files")
        with _said("Landlock's rules cannot be created"):
            rules = landlock.ruleset(_open_beside(home, place))
        _become(place)
        otherwise = (
            f"jobs of this submitter run as user {os.getuid()}; let that user enter the directory "
            "(chmod, setfacl)"
        )
    else:
        _need(landlock.SIGNALS, "6.12", "a job could end the service")
        _hide(home, place)
        with _said("Landlock's rules cannot be created"):
            rules = landlock.ruleset(_open_beside(home, place))
        otherwise = (
            "jobs of submitters cannot see the home and the state directory of the user who runs "
            "`brain up`; name another directory"
        )
    with _said("Landlock cannot be enforced"):
        landlock.enforce(rules)
    with _said(f"directory {directory}", f"; {otherwise}, or leave `directory` out"):
        os.chdir(directory)
    may_not = f"jobs of this submitter run as user {os.getuid()}, who may not execute {command[0]}"
    with _said(may_not, "; let that user read and execute the file and its directories"):
        os.execvpe(command[0], list(command), unveiled(os.environ))
    raise AssertionError


def _need(version: int, linux: str, otherwise: str) -> None:
    if (here := landlock.version()) < version:
        has = f"version {here} of Landlock" if here else "no Landlock"
        sys.exit(f"this kernel has {has}, so {otherwise}; use Linux {linux} with lsm=landlock")


def _become(place: Path) -> None:
    """Become the user of a place, with no groups except those of devices."""
    owner = (place / "home").stat().st_uid
    found = (path for name in _DEVICES for path in Path("/dev").glob(name))
    groups = {path.stat().st_gid for path in found if path.is_char_device()} - {0}
    more = "; run `brain up` with the capabilities CAP_SETUID and CAP_SETGID"
    with _said(f"this process runs as root but may not become user {owner}", more):
        os.setgroups(sorted(groups))
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
    for needed in (place, Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent):
        closed = [each for each in (needed, *needed.parents) if not os.access(each, os.X_OK)]
        if closed:
            sys.exit(
                f"isolated jobs would run as user {owner}, who cannot enter {closed[-1]} on the "
                f"way to {needed}; move Brain and its state directory to paths that all users may "
                "enter, such as /opt and /var/lib"
            )


def _hide(home: Path, place: Path) -> None:
    """Hide all files of the service's user except ``place`` and, read-only, Brain's programs."""
    user, group = os.geteuid(), os.getegid()
    programs = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve().parents[2]]
    writable = [path for path in programs if os.access(path, os.W_OK)]
    hidden = _roots([home, *_private(user)])
    own = [place / "brain", place / "home"]
    beneath = [path for path in programs if any(path.is_relative_to(one) for one in hidden)]
    with _said("this kernel does not let users create namespaces; run `brain up` as root"):
        called(libc.unshare(_NEW_USER | _NEW_MOUNTS))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _mount(None, Path("/"), None, _RECURSIVE | _SLAVE)
        for folder in _renamable([*hidden, *programs]):
            _mount(os.fsencode(folder), folder, None, _BIND | _RECURSIVE)
        # Opened in the new namespace before anything is covered, because later they could not be
        # mounted.
        kept = {path: os.open(path, os.O_PATH) for path in [*own, *writable, *beneath]}
        for root in hidden:
            _mount(b"tmpfs", root, b"tmpfs", 0, b"mode=755,size=1m")
        for path in sorted(kept):
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            _mount(os.fsencode(f"/proc/self/fd/{kept[path]}"), path, None, _BIND | _RECURSIVE)
            if path not in own:
                _mount(None, path, None, _BIND | _REMOUNT | _READ_ONLY | _flags(path))
        for root in hidden:
            _mount(None, root, None, _BIND | _REMOUNT | _READ_ONLY | _flags(root))
        for socket in [*_sockets(user, place), *filter(_is_open, map(Path, _STARTERS))]:
            with suppress(FileNotFoundError):  # its program has ended
                _mount(b"/dev/null", socket.resolve(), None, _BIND)


def _renamable(paths: Sequence[Path]) -> list[Path]:
    """Return parent directories that the user could rename, to show the service other directories.

    A mount point cannot be renamed.
    """
    parents = {parent for path in paths for parent in path.resolve().parents}
    return [path for path in sorted(parents) if path.name and os.access(path.parent, os.W_OK)]


def _private(user: int) -> Iterator[Path]:
    """Yield the user's other private paths: a home, and sockets of programs that start
    processes.
    """
    with suppress(KeyError):
        yield Path(pwd.getpwuid(user).pw_dir)
    yield Path(f"/run/user/{user}")


def _sockets(user: int, place: Path) -> Iterator[Path]:
    """Yield the user's sockets: tmux or an SSH agent would act for a job without confinement."""
    for line in Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines():
        path = Path(line.split(maxsplit=7)[-1])
        with suppress(OSError):
            if path.is_absolute() and not path.is_relative_to(place) and path.stat().st_uid == user:
                yield path


def _is_open(path: Path) -> bool:
    return os.access(path, os.W_OK)


def _roots(paths: Sequence[Path]) -> list[Path]:
    """Return the existing paths that lie in none of the others."""
    found = {path.resolve() for path in paths if path.is_dir()} - {Path("/")}
    return [path for path in sorted(found) if not found & set(path.parents)]


def _open_beside(home: Path, place: Path) -> Iterator[int]:
    """Open the siblings of the state directory and of its parents, and the job's own home."""
    home = home.resolve()
    for folder in home.parents:
        with suppress(PermissionError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False) and not home.is_relative_to(entry.path):
                    with suppress(OSError):  # the directory is gone, or not accessible
                        yield os.open(entry, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    yield os.open(place / "home", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def _mount(
    source: bytes | None, target: Path, kind: bytes | None, flags: int, options: bytes | None = None
) -> None:
    called(libc.mount(source, os.fsencode(target), kind, flags, options))


def _flags(path: Path) -> int:
    """Return the flags of a mount that a user may not remove."""
    return os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME)


@contextmanager
def _said(what: str, otherwise: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as why:
        sys.exit(f"{what}: {why.strerror}{otherwise}")


if __name__ == "__main__":
    main(sys.argv[1:])
