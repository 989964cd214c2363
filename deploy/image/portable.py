"""A Python that runs wherever it is copied to: `copy` this one, and `link` it with its libraries.

An interpreter finds its modules relative to itself, but its shared libraries by absolute paths, and
libssl, libffi and the like may be missing in a job's image. `link` puts every library that is not
the C library itself beside the interpreter and says so in each file (by `patchelf`).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

#: Parts of the C library, and what must come with it: taken from the image that it runs in.
_SYSTEM = re.compile(
    r"(linux-vdso|ld-linux\S*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libnsl)\.so"
)
#: Not needed to run anything, and most of the size.
_WITHOUT = ("site-packages", "__pycache__", "config-*", "test", "idlelib", "tkinter", "turtledemo")
_LINE = re.compile(r"\s*(\S+) => (/\S+) \(")


def copy(target: Path) -> None:
    """Copy the interpreter that runs this, and its standard library, without its packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base, library = Path(sys.base_prefix), target / "lib" / version
    (target / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy2(base / "bin" / version, target / "bin" / version)
    for name in ("python3", "python"):
        (target / "bin" / name).unlink(missing_ok=True)
        (target / "bin" / name).symlink_to(version)
    skipped = shutil.ignore_patterns(*_WITHOUT)
    shutil.copytree(base / "lib" / version, library, ignore=skipped, dirs_exist_ok=True)
    (library / "site-packages").mkdir(exist_ok=True)
    for shared in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(shared, target / "lib" / shared.name, follow_symlinks=False)
    subprocess.run([target / "bin" / "python3", "-m", "ensurepip", "--upgrade"], check=True)


def link(target: Path) -> None:
    """Bring every library that anything under ``target`` loads, and point everything at them."""
    patchelf = Path(sys.executable).with_name("patchelf")
    libraries = target / "lib"
    binaries = [path for path in target.rglob("*") if _is_elf(path)]
    for binary in binaries:
        for name, found in _loaded(binary).items():
            if not _SYSTEM.match(name) and not (libraries / name).exists():
                shutil.copy2(found, libraries / name)
    for binary in {path for path in target.rglob("*") if _is_elf(path)}:
        up = os.path.relpath(libraries, binary.parent)
        subprocess.run([patchelf, "--set-rpath", f"$ORIGIN/{up}", binary], check=True)


def _is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _loaded(binary: Path) -> dict[str, Path]:
    told = subprocess.run(["ldd", binary], check=False, capture_output=True, text=True).stdout
    return {found[1]: Path(found[2]) for found in map(_LINE.match, told.splitlines()) if found}


if __name__ == "__main__":
    {"copy": copy, "link": link}[sys.argv[1]](Path(sys.argv[2]))
