# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring what a training reads to this node's scratch, then become the command: staging.py COMMAND [ARGUMENT ...].

``HPCAI_STAGE`` is a JSON list of files and directories, ``HPCAI_SCRATCH`` the directory of the node's own disks, and
``HPCAI_DATA`` a directory that has each of them by its name: on the shared directory, and after this on scratch, unless
something stands against it, which is said. What is copied has the sizes and times of its source, so a copy that is
complete is known by them; one that was cut off goes on. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import sys
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Network file systems answer many questions at a time.
THREADS = 16
# Stays free on scratch.
RESERVE = 1 << 30
Tree = t.Dict[str, t.List[t.Any]]


class Refused(OSError):
    """Nothing can be staged here; the text says why."""


def safe(path: Path) -> Path:
    """Return a directory in which nobody else can exchange an entry of this user's."""
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        about = folder.stat()
        if about.st_uid not in (0, os.geteuid()) or (about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX):
            raise Refused(f"others could exchange what is in {folder}")
    return real


def own(path: Path) -> Path:
    """Make a directory that is the user's alone; what is read from it is believed."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise Refused(f"{path} is not a directory of this user's alone")
    return path


def tree(top: Path) -> Tree:
    """Return what a file or directory holds: by its path below it, what tells a changed entry from an unchanged one."""
    found: Tree = {}
    todo = [(top, "")]
    while todo:
        path, name = todo.pop()
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            found[name] = ["link", os.readlink(path)]
        elif stat.S_ISDIR(about.st_mode):
            found[name] = ["directory"]
            todo += [(Path(entry.path), f"{name}/{entry.name}") for entry in os.scandir(path)]
        elif stat.S_ISREG(about.st_mode):
            found[name] = ["file", about.st_size, about.st_mtime_ns, bool(about.st_mode & 0o111)]
        else:
            raise Refused(f"{path} is neither file nor directory")
    return found


def size(wanted: Tree) -> int:
    return sum(entry[1] for entry in wanted.values() if entry[0] == "file")


def copy(source: Path, target: Path, entry: t.Sequence[t.Any]) -> None:
    """Copy one file; its time, by which a complete copy is known, is set when its content is on the disk."""
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    os.utime(target, ns=(entry[2], entry[2]))
    target.chmod(0o500 if entry[3] else 0o400)


def fill(source: Path, target: Path, wanted: Tree) -> None:
    """Make the target what the source is; what is already there and unchanged stays."""
    there = tree(target) if os.path.lexists(target) else {}
    if not there.keys() <= wanted.keys():  # the user has put something there
        shutil.rmtree(target)
        there = {}
    files = []
    for name, entry in sorted(wanted.items()):
        path = Path(f"{target}{name}")
        if there.get(name) == entry:
            continue
        if entry[0] == "directory":
            path.mkdir(mode=0o700)
        elif entry[0] == "link":
            path.unlink(missing_ok=True)
            path.symlink_to(entry[1])
        else:
            files.append((Path(f"{source}{name}"), path, entry))
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda words: copy(*words), files))
    if tree(target) != wanted:
        raise Refused(f"{source} has changed while it was copied")


def make_room(root: Path, wanted: t.Collection[Path], needed: int, alone: bool) -> None:
    """Remove what was not used for longest until there is room; while other jobs of the user run, nothing."""
    others = [path for path in root.iterdir() if path not in wanted] if alone else []
    others.sort(key=lambda path: path.lstat().st_mtime_ns)
    while True:
        about = os.statvfs(root)
        free = about.f_bavail * about.f_frsize - RESERVE
        if free >= needed:
            return
        if not others:
            raise Refused(f"{needed >> 20} MiB are needed in {root}, and {max(free, 0) >> 20} MiB are free")
        shutil.rmtree(others.pop(0))


def staged(scratch: Path, sources: t.Sequence[str]) -> tuple[Path, int]:
    """Return the directory that has each source by its name, and what holds it while it is open."""
    root = own(safe(scratch) / f"hpcai-staged-{os.geteuid()}")
    held = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with (root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one rank copies, the others wait for it
            return brought(root, [Path(source) for source in sources], held), held
    except BaseException:
        os.close(held)
        raise


def brought(root: Path, sources: t.Sequence[Path], held: int) -> Path:
    """Copy what is not there yet, and return a directory of links to it."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except BlockingIOError:
        alone = False
    wanted: dict[Path, tuple[Path, Tree]] = {}
    for source in sources:
        real = Path(os.path.realpath(source))
        found = tree(real)
        key = hashlib.sha256(json.dumps([str(real), source.name, sorted(found.items())]).encode()).hexdigest()
        wanted[root / key[:16] / source.name] = (real, found)
    links = root / hashlib.sha256("\n".join(map(str, wanted)).encode()).hexdigest()[:16]
    needed = sum(size(found) - (size(tree(path)) if path.exists() else 0) for path, (dummy, found) in wanted.items())
    make_room(root, {links, root / ".lock", *(path.parent for path in wanted)}, needed, alone)
    own(links)
    for path, (real, found) in wanted.items():
        fill(real, own(path.parent) / path.name, found)
        os.utime(path.parent)
        link = links / path.name
        if not link.is_symlink():
            link.symlink_to(path)
    # Others of the user's jobs may use it as well, and none may remove it.
    fcntl.flock(held, fcntl.LOCK_SH)
    return links


def main() -> t.NoReturn:
    # A signal asks for a checkpoint; there is no rank yet.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        links, held = staged(Path(os.environ["HPCAI_SCRATCH"]), json.loads(os.environ["HPCAI_STAGE"]))
        os.set_inheritable(held, True)
        os.environ["HPCAI_DATA"] = str(links)
    except OSError as exc:
        print(f"{os.uname().nodename} reads {os.environ['HPCAI_DATA']} itself: {exc}", file=sys.stderr, flush=True)
    os.environ["HPCAI_STAGED"] = "1"
    # A shell cannot trap what was ignored when it began.
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # the command is the caller's own


if __name__ == "__main__":
    main()
