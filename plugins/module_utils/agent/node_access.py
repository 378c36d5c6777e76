# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the agent's checks touch the node: files, programs, users, mounts, jobs, a probe of a file system."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import pwd
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError, NodeAccess

# How the agent's own checks touch the node: its files, its programs, and its users' rights. Private, stdlib only.


TIMEOUT = 5.0
# A kernel log or a file of sysfs that is larger than this is none.
LARGEST = 16 << 20


class NodeCommands:
    """The programs of the node and the roots of its sysfs and proc; tests give another way to run programs."""

    def __init__(self, sysfs: str, proc: str, runner: t.Callable[..., Outcome] = run) -> None:
        self.sysfs, self.proc, self._runner = Path(sysfs), Path(proc), runner

    def ask(self, argv: t.Sequence[str], data: str | None = None, seconds: float = TIMEOUT) -> Outcome:
        """Run a program whose exit status is an answer; one that is absent or hangs raises BrokenError."""
        return NodeAccess(seconds, self._runner).ask(argv, data)

    def get(self, argv: t.Sequence[str], seconds: float = TIMEOUT) -> str:
        """Return the output of a program that has to succeed and to print something."""
        outcome = self.ask(argv, None, seconds)
        if outcome.problem or not outcome.out.strip():
            raise BrokenError(f"{' '.join(argv)}: {outcome.problem or 'no output'}")
        return outcome.out


def node_commands(context: Context) -> NodeCommands:
    """Return the NodeCommands that all checks of a suite share."""
    config = context.config
    return t.cast(NodeCommands, context.once("node_commands", lambda: NodeCommands(config.sysfs, config.proc)))


def text(path: str | Path) -> str | None:
    """Return the text of a small file, None where it cannot be read, as parts of sysfs cannot."""
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST).decode(errors="replace").strip()
    except OSError:
        return None


def needed(path: str | Path) -> str:
    """Return the text of a file that every system has; raises BrokenError where it is missing or empty."""
    content = text(path)
    if not content:
        raise BrokenError(f"{path} cannot be read or is empty")
    return content


def number(path: str | Path) -> int | None:
    """Return the whole number in a file, None for everything else."""
    content = text(path) or ""
    return int(content) if content.isascii() and content.isdigit() and len(content) < 20 else None


def listed(folder: str | Path, pattern: str = "*") -> list[Path]:
    """Return the paths in a directory, none where there is no directory."""
    try:
        return sorted(Path(folder).glob(pattern))
    except OSError:
        return []


@contextlib.contextmanager
def acting_as(user: str) -> t.Iterator[None]:
    """Act as another user, where root: file servers take root for nobody."""
    if not user or os.geteuid() != 0:
        yield
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError as exc:
        raise BrokenError(f"there is no user {user}") from exc
    groups = os.getgroups()
    try:
        os.initgroups(user, entry.pw_gid)
        os.setegid(entry.pw_gid)
        os.seteuid(entry.pw_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


# The mounted file systems. Pure but for the reading.


_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "ceph", "gpfs", "glusterfs", "9p", "virtiofs", "autofs")
_ESCAPE = re.compile(r"\\([0-7]{3})")


class MountedFilesystem(t.NamedTuple):
    """A line of /proc/mounts."""

    source: str
    path: str
    kind: str
    options: t.Sequence[str]

    @property
    def network(self) -> bool:
        return self.kind in _NETWORK or self.kind.partition(".")[0] == "fuse"

    @property
    def read_only(self) -> bool:
        return "ro" in self.options


def parse(text: str) -> list[MountedFilesystem]:
    """Return the mounts in their order; a later one hides an earlier one at the same place."""
    rows = (line.split(" ") for line in text.splitlines())
    return [
        MountedFilesystem(_plain(row[0]), _plain(row[1]), row[2], row[3].split(",")) for row in rows if len(row) >= 4
    ]


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)


def holding(mounts: t.Sequence[MountedFilesystem], path: str) -> MountedFilesystem | None:
    """Return the file system that a path is on."""
    inside = [mount for mount in mounts if path == mount.path or path.startswith(f"{mount.path.rstrip('/')}/")]
    longest = max((len(mount.path) for mount in inside), default=0)
    return next((mount for mount in reversed(inside) if len(mount.path) == longest), None)


def at(mounts: t.Sequence[MountedFilesystem], path: str) -> MountedFilesystem | None:
    """Return the file system mounted at the path itself, however that is written."""
    point = posixpath.normpath(path)
    return next((mount for mount in reversed(mounts) if mount.path == point), None)


# Write a file, read it back from where it is stored, and compare. Private, stdlib only.


_NAME = ".hpcai-probe-"
# What a killed probe left is removed by the next one; one that is younger may still be at work.
_OLD = 600.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DISK = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, getattr(errno, "EUCLEAN", errno.EIO))


class ProbeResult(t.NamedTuple):
    """``kind`` says whose fault a problem is, ``full`` that there is no room.

    ``served`` is the file server's time, ``skew`` how far ours is ahead.
    """

    seconds: float
    problem: str = ""
    kind: str = "hardware"
    served: float | None = None
    skew: float | None = None
    full: bool = False


def probe(folder: str | Path, size: int, data: bytes | None = None) -> ProbeResult:
    """Write and read ``size`` bytes of chance in a directory; nothing of it stays."""
    begin, sent = time.monotonic(), os.urandom(size) if data is None else data
    # A name that nobody can take before us: all may write where jobs write.
    path = Path(folder, f"{_NAME}{os.urandom(8).hex()}")
    try:
        clean(folder)
        try:
            stored = _through(path, sent)
            served, skew = _times(path.with_suffix(".d"))
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
    except OSError as exc:
        kind = "hardware" if exc.errno in _DISK else "config"
        return ProbeResult(time.monotonic() - begin, f"{folder}: {exc.strerror or exc}", kind, full=exc.errno in _FULL)
    seconds = time.monotonic() - begin
    if hashlib.sha256(stored).digest() == hashlib.sha256(sent).digest():
        return ProbeResult(seconds, served=served, skew=skew)
    wrong = next(
        (at for at, (actual, expected) in enumerate(zip(stored, sent)) if actual != expected), min(len(stored), size)
    )
    return ProbeResult(
        seconds, f"{folder}: {len(stored)} of {size} bytes came back, the first wrong one is number {wrong}"
    )


def _through(path: Path, data: bytes) -> bytes:
    """Return the bytes that the storage has; the page cache would only prove that memory works.

    By its name it is not opened again: where all may write, something else could be there by then.
    """
    with path.open("x+b") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        return file.read(len(data) + 1)


def _times(folder: Path) -> tuple[float, float]:
    """Return the file server's time and how far ours is ahead, by a new directory: of files clients set times."""
    folder.mkdir(mode=0o700)
    now = time.time()
    try:
        served = folder.stat().st_mtime
        return served, now - served
    finally:
        folder.rmdir()


def clean(folder: str | Path, now: float | None = None) -> None:
    """Remove what earlier probes left."""
    moment = time.time() if now is None else now
    for path in Path(folder).glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            if moment - path.lstat().st_mtime > _OLD:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


# Which jobs run on this node, from its processes: no command of Slurm is run. Private, stdlib only.


# The daemon of each step calls itself so; "slurmstepd infinity" only keeps a cgroup.
_STEP = re.compile(r"slurmstepd: \[(\d{1,12})\b")
_CGROUP = re.compile(r"/job_(\d{1,12})(?:/|$)", re.MULTILINE)
_NAME_OF = re.compile(r"\AName:\t(.*)")
_UID = re.compile(r"^Uid:\s+(\d+)", re.MULTILINE)
_ROOTS = re.compile(r"^Uid:\s+0\s+0\s+0\s+0\s*$", re.MULTILINE)
_STATE = re.compile(r"^State:\s+(\S)", re.MULTILINE)
# In uninterruptible sleep, and a child of init, as its parent has gone. Its command line could not be read.
_STAT = re.compile(r"(\d{1,12}) \((.{1,64})\) D 1 ")
_NOBODY = 4294967295


class JobProcess(t.NamedTuple):
    """A process. ``login`` is the user who logged in to start it, ``job`` the job whose cgroup it is in.

    ``program`` is the name that the kernel has for it; ``command`` is its command line if it is root's, for those of
    users are nobody's business.
    """

    pid: int
    uid: int
    login: int | None
    job: str
    state: str
    group: str
    command: str
    program: str = ""


def processes(proc: str | Path) -> list[JobProcess]:
    """Return all processes; one that ends meanwhile is none."""
    candidates = (_process(path) for path in listed(proc, "[0-9]*") if path.name.isdigit())
    return [process for process in candidates if process]


def _process(path: Path) -> JobProcess | None:
    """Return what /proc says of a process, None if it has ended; only root's command lines are read."""
    status = text(path / "status")
    if not status:
        return None
    uid, state = _UID.search(status), _STATE.search(status)
    if uid is None:
        return None
    group = text(path / "cgroup") or ""
    job = _CGROUP.search(group)
    root = uid.group(1) == "0"
    command = (text(path / "cmdline") or "").replace("\0", " ").strip() if root else ""
    program = _NAME_OF.search(status)
    return JobProcess(
        int(path.name),
        int(uid.group(1)),
        _login(text(path / "loginuid")),
        job.group(1) if job else "",
        state.group(1) if state else "",
        group,
        command,
        program.group(1) if program else "",
    )


def _login(content: str | None) -> int | None:
    """Return the user id of a login; None for daemons, where the kernel writes the largest number."""
    number = int(content) if content and content.isascii() and content.isdigit() else _NOBODY
    return None if number >= _NOBODY else number


def hung(proc: str | Path, name: str) -> list[int]:
    """Return the programs that earlier checks left behind in the kernel, which no signal ends."""
    paths = listed(proc, "[0-9]*")
    matches = ((path, _STAT.match(text(path / "stat") or "")) for path in paths)
    return [
        int(match.group(1)) for path, match in matches if match and match.group(2) == name and _is_roots(path, name)
    ]


def _is_roots(path: Path, name: str) -> bool:
    """Return whether root started a program of that name; users may call theirs, and sudo through a link, the same.

    A program that hangs while it ends has no file any more.
    """
    if not _ROOTS.search(text(path / "status") or ""):
        return False
    try:
        file = os.readlink(path / "exe")
    except OSError:
        return True
    return posixpath.basename(file.partition(" (deleted)")[0]) == name


def jobs(every: t.Iterable[JobProcess]) -> set[str]:
    """Return the jobs that have a step here."""
    matches = (_STEP.match(process.command) for process in every if process.uid == 0)
    return {match.group(1) for match in matches if match}


def ended(suite: str, environment: t.Mapping[str, str] | None = None) -> set[str]:
    """Return the job whose epilog this is; its steps have ended, even where their daemons have not yet."""
    known = os.environ if environment is None else environment
    job = known.get("SLURM_JOB_ID", "") if suite == "epilog" else ""
    return {job} if job else set()
