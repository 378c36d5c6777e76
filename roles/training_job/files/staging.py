# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring what a training reads to this node's scratch, then become the command: staging.py COMMAND [ARGUMENT ...].

``HPCAI_STAGE`` is JSON: ``scratch``, the directory of the node's own disks; ``data``, a list of files and directories;
``python``, an interpreter. ``HPCAI_DATA`` is a directory that has each of the data by its name: on the shared
directory, and after this on scratch. A word of the command that is the interpreter becomes that of a copy of its
environment. What stands against either is said, and the training reads where it would have read.

Data that is copied has the sizes and times of its source, so a copy that is complete is known by them; one that was cut
off goes on. An environment has many thousand files, and to ask for each of them takes longer than to start from where
they are. So it is unpacked from the one file that role pytorch has made of it, and is known by the manifest, as nothing
in it is changed after that was written. Standard library only, and tar.
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
import subprocess
import sys
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Network file systems answer many questions at a time.
THREADS = 16
# Stays free on scratch.
RESERVE = 1 << 30
# Of role pytorch: what it writes when all else of an environment is there, and all files of it in one.
MANIFEST = "manifest.json"
ARCHIVE = "environment.tar"
COMPLETE = ".complete"
Tree = t.Dict[str, t.List[t.Any]]


class Staged(t.NamedTuple):
    """What is on scratch: a directory of links to the data, an interpreter; None for what is not, and why."""

    data: Path | None
    python: Path | None
    problems: t.Sequence[str]


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


def staged(scratch: Path, sources: t.Sequence[str], python: str = "") -> tuple[Staged, int]:
    """Return what is on scratch, and what holds it while it is open."""
    root = own(safe(scratch) / f"hpcai-staged-{os.geteuid()}")
    held = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with (root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one rank copies, the others wait for it
            found = _Scratch(root, held, lock.fileno()).brought([Path(source) for source in sources], python)
            # Others of the user's jobs may use it as well, and none may remove it.
            fcntl.flock(held, fcntl.LOCK_SH)
            return found, held
    except BaseException:
        os.close(held)
        raise


class _Scratch:
    """The user's own directory on scratch, while nobody else brings anything to it."""

    def __init__(self, root: Path, held: int, lock: int) -> None:
        self.root, self.kept, self.lock = root, {root / ".lock"}, lock
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.alone = True
        except BlockingIOError:
            self.alone = False

    def brought(self, sources: t.Sequence[Path], python: str) -> Staged:
        """Bring the environment and the data; where only one of them can be, that one."""
        data: Path | None = None
        local: Path | None = None
        problems: list[str] = []
        # Neither makes room for itself by removing the other.
        environment = self._environment(python) if python else None
        try:
            data = self._data(sources) if sources else None
        except OSError as exc:
            problems.append(_data_stays(exc))
        try:
            local = self._interpreter(python, *environment) if environment else None
        except OSError as exc:
            problems.append(_environment_stays(python, exc))
        return Staged(data, local, problems)

    def _environment(self, python: str) -> tuple[Path, Path] | None:
        """Return the archive of an interpreter's environment and the place of its copy, or None where there is none."""
        source = Path(os.path.realpath(Path(python).parent)).parent
        try:
            seal = (source / MANIFEST).read_bytes()
        except OSError:
            return None
        if not (source / ARCHIVE).exists():
            return None
        place = self.root / hashlib.sha256(str(source).encode() + b"\0" + seal).hexdigest()[:16]
        self.kept.add(place)
        return source / ARCHIVE, place / source.name

    def _interpreter(self, python: str, archive: Path, target: Path) -> Path:
        if os.statvfs(self.root).f_flag & os.ST_NOEXEC:
            raise Refused(f"{self.root} is mounted noexec")
        complete = own(target.parent) / COMPLETE
        # A system that tidies up removes what nobody has read for days, file by file. To wait until so many files are
        # on the disk may take longer than to unpack them: what was there before the machine started counts for nothing.
        if not complete.exists() or complete.read_text() != f"{boot()} {entries(target)}":
            if complete.exists() and not self.alone:
                raise Refused(f"{target} is not what was unpacked there, and another job may run it")
            complete.unlink(missing_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            make_room(self.root, self.kept, archive.stat().st_size, self.alone)
            self._unpack(archive, own(target))
            complete.write_text(f"{boot()} {entries(target)}")
        os.utime(target.parent)
        return target / "bin" / Path(python).name

    def _unpack(self, archive: Path, target: Path) -> None:
        argv = ["tar", "--extract", "--no-same-owner", f"--file={archive}", f"--directory={target}"]
        # It outlives this process where that alone is killed, and holds the lock then until it has ended.
        done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False, pass_fds=[self.lock])
        if done.returncode:
            raise Refused(f"{archive} cannot be unpacked: {done.stderr.strip()[-500:]}")

    def _data(self, sources: t.Sequence[Path]) -> Path:
        """Copy what is not there yet, and return a directory of links to it."""
        wanted: dict[Path, tuple[Path, Tree]] = {}
        for source in sources:
            real = Path(os.path.realpath(source))
            found = tree(real)
            key = hashlib.sha256(json.dumps([str(real), source.name, sorted(found.items())]).encode()).hexdigest()
            wanted[self.root / key[:16] / source.name] = (real, found)
        links = self.root / hashlib.sha256("\n".join(map(str, wanted)).encode()).hexdigest()[:16]
        self.kept |= {links, *(path.parent for path in wanted)}
        needed = sum(
            size(found) - (size(tree(path)) if path.exists() else 0) for path, (dummy, found) in wanted.items()
        )
        make_room(self.root, self.kept, needed, self.alone)
        own(links)
        for path, (real, found) in wanted.items():
            fill(real, own(path.parent) / path.name, found)
            os.utime(path.parent)
            link = links / path.name
            if not link.is_symlink():
                link.symlink_to(path)
        return links


def _data_stays(why: OSError) -> str:
    return f"reads {os.environ.get('HPCAI_DATA', 'its data')} itself: {why}"


def _environment_stays(python: str, why: OSError) -> str:
    return f"starts {python} itself: {why}"


def entries(folder: Path) -> int:
    """Count what is below a directory; what Python compiles it writes there itself."""
    count = 0
    for dummy, folders, files in os.walk(folder):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        count += len(folders) + len(files)
    return count


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def main() -> t.NoReturn:
    # A signal asks for a checkpoint; there is no rank yet.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    request, words = json.loads(os.environ["HPCAI_STAGE"]), sys.argv[1:]
    data, python = request.get("data", []), request.get("python", "")
    try:
        found, held = staged(Path(request["scratch"]), data, python)
        os.set_inheritable(held, True)
    except OSError as exc:
        stays = [*([_data_stays(exc)] if data else []), *([_environment_stays(python, exc)] if python else [])]
        found = Staged(None, None, stays)
    for problem in found.problems:
        print(f"{os.uname().nodename} {problem}", file=sys.stderr, flush=True)
    if found.data:
        os.environ["HPCAI_DATA"] = str(found.data)
    if found.python:
        words = [str(found.python) if word == python else word for word in words]
    os.environ["HPCAI_STAGED"] = "1"
    # A shell cannot trap what was ignored when it began.
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.execvp(words[0], words)  # noqa: S606  # the command is the caller's own


if __name__ == "__main__":
    main()
