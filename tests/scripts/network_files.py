"""A directory with the ways of a network file system: no server, one machine, FUSE.

Its exclusive locks need a descriptor that may write, as on NFS, where Linux locks bytes for
``flock``; with ``--no-locks`` it refuses them, as without a lock daemon. Unlike NFS on Linux it
takes no sockets, as other shared file systems do not.
"""

import argparse
import errno
import fcntl
import os
import stat

import mfusepy

_STAT = ("mode", "nlink", "size", "gid", "uid", "ino", "blocks")
_FREE = ("bavail", "bfree", "favail", "ffree")
_STATVFS = (*_FREE, "blocks", "bsize", "files", "flag", "frsize", "namemax")


class Passing(mfusepy.Operations):
    """Every call goes on to the backing directory, but for locks and sockets."""

    use_ns = True

    def __init__(self, backing: str, *, locks: bool) -> None:
        self.backing, self.locks = backing, locks
        self.may_write: dict[int, bool] = {}

    def at(self, path):
        return self.backing + path

    def getattr(self, path, fh=None):
        seen = os.lstat(self.at(path))
        times = {f"st_{each}time": getattr(seen, f"st_{each}time_ns") for each in "amc"}
        return times | {f"st_{each}": getattr(seen, f"st_{each}") for each in _STAT}

    def statfs(self, path):
        seen = os.statvfs(self.at(path))
        return {f"f_{each}": getattr(seen, f"f_{each}") for each in _STATVFS}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self.at(path))]

    def readlink(self, path):
        return os.readlink(self.at(path))

    def mknod(self, path, mode, dev):
        if stat.S_ISSOCK(mode):
            raise mfusepy.FuseOSError(errno.EPERM)
        os.mknod(self.at(path), mode, dev)

    def mkdir(self, path, mode):
        os.mkdir(self.at(path), mode)

    def rmdir(self, path):
        os.rmdir(self.at(path))

    def unlink(self, path):
        os.unlink(self.at(path))

    def symlink(self, target, source):
        os.symlink(source, self.at(target))

    def link(self, target, source):
        os.link(self.at(source), self.at(target))

    def rename(self, old, new):
        os.rename(self.at(old), self.at(new))

    def chmod(self, path, mode):
        os.chmod(self.at(path), mode)

    def chown(self, path, uid, gid):
        os.chown(self.at(path), uid, gid)

    def utimens(self, path, times=None):
        os.utime(self.at(path), ns=times)

    def open(self, path, flags):
        fd = os.open(self.at(path), flags)
        self.may_write[fd] = bool(flags & (os.O_WRONLY | os.O_RDWR))
        return fd

    def create(self, path, mode, fi=None):
        fd = os.open(self.at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
        self.may_write[fd] = True
        return fd

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(self.at(path), length)

    def flush(self, path, fh):
        return 0

    def fsync(self, path, datasync, fh):
        os.fsync(fh)

    def release(self, path, fh):
        os.close(fh)

    def flock(self, path, fh, operation):
        if not self.locks:
            raise mfusepy.FuseOSError(errno.ENOLCK)
        if operation & fcntl.LOCK_EX and not self.may_write[fh]:
            raise mfusepy.FuseOSError(errno.EBADF)
        fcntl.flock(fh, operation)
        return 0


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--no-locks", action="store_true")
parser.add_argument("backing")
parser.add_argument("mountpoint")
given = parser.parse_args()
passing = Passing(given.backing, locks=not given.no_locks)
mfusepy.FUSE(passing, given.mountpoint, foreground=True, allow_other=True)
