# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where PyTorch keeps the extensions that it compiles at first use: print the directory, after a look at its locks.

PyTorch's own place is below the home directory, which nodes share: one environment's code is loaded by another, one
machine's by another with an older CPU, and who compiles makes a file ``lock`` that stays for ever when it is killed
(torch/utils/file_baton.py); then all that come later wait for it. So each environment has a directory of the user's own
on the node's own disk. Whoever compiles has the file open until the end: one that no process has open is removed. This
is only true of processes on the same node, so no other directory is looked at. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import stat
import sys
import time
import typing as t
from pathlib import Path

# On the node's own disk nearly everywhere, and what is there stays when the machine is restarted.
PLACES = ("/var/tmp", "/tmp")  # noqa: S108  # what is there counts only if it is the user's alone


class Unsafe(OSError):
    """A directory is not the user's own; the text says why."""


def environment() -> str:
    """Return a digest of what compiled code depends on: this interpreter and its PyTorch."""
    found = importlib.util.find_spec("torch")
    version = Path(found.origin).with_name("version.py") if found and found.origin else None
    parts = [os.path.realpath(sys.prefix), sys.version, os.uname().machine]
    parts.append(version.read_text(encoding="utf-8") if version and version.exists() else "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def own(path: Path) -> Path:
    """Make a directory that is the user's alone; what is loaded from it is run."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise Unsafe(f"{path} is not a directory of this user's alone")
    return path


def directory(places: t.Iterable[str] = PLACES) -> Path:
    """Return this environment's directory in the first place that has one and lets programs be run."""
    problems = []
    for place in places:
        try:
            if os.statvfs(place).f_flag & os.ST_NOEXEC:
                problems.append(f"{place} is mounted noexec")
                continue
            return own(own(Path(place, f"hpcai-torch-extensions-{os.geteuid()}")) / environment())
        except OSError as exc:
            problems.append(str(exc))
    raise Unsafe("; ".join(problems))


def held(proc: Path = Path("/proc")) -> set[str]:
    """Return the files named lock that a process of this user has open."""
    paths = set()
    for link in proc.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            target = os.readlink(link)
            if target.endswith("/lock"):
                paths.add(target)
    return paths


def release(folder: Path, pause: float = 0.5) -> list[Path]:
    """Remove the locks of compiles that were cut off; return them."""
    free = _free(folder)
    if free:
        # Who has just ended closes the file a moment before removing it.
        time.sleep(pause)
        free = {path: identity for path, identity in _free(folder).items() if free.get(path) == identity}
    for path in free:
        path.unlink(missing_ok=True)
    return list(free)


def _free(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the locks that nobody has open, and which files they are. One that is made meanwhile is not among them."""
    locks = {}
    for path in folder.glob("*/lock"):
        with contextlib.suppress(OSError):
            locks[path] = (path.lstat().st_ino, path.lstat().st_mtime_ns)
    taken = held() if locks else set()
    return {path: identity for path, identity in locks.items() if os.path.realpath(path) not in taken}


def main() -> int:
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    if given:
        print(given)
        return 0
    try:
        folder = directory(sys.argv[1:] or PLACES)
        for path in release(folder):
            print(f"{path} was left by a compile that was cut off, and is removed", file=sys.stderr)
    except OSError as exc:
        print(f"PyTorch keeps extensions where it does by itself: {exc}", file=sys.stderr)
        return 0
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
