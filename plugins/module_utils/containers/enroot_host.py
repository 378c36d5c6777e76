# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""enroot on a host: its directories, its configuration, and a job that proves it."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import syslog
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_config

# What unprivileged containers need of a host: namespaces, permission of AppArmor, file capabilities.


SYSCTL = "/etc/sysctl.d/60-hpcai-enroot.conf"
PROFILE = "/etc/apparmor.d/enroot"
_CARRIED_PROFILE = "/usr/share/enroot/apparmor.profile"
_RESTRICTED = "kernel/apparmor_restrict_unprivileged_userns"
_LOADED = "/sys/kernel/security/apparmor/profiles"
_KEYS = ("kernel.unprivileged_userns_clone", "user.max_user_namespaces", "user.max_mnt_namespaces")
# As pkg/deb/PACKAGE+caps.postinst in enroot's source; a copy of a system made by tar may have lost them.
CAPABILITIES = {
    "/usr/bin/enroot-mksquashovlfs": "cap_sys_admin=ep",
    "/usr/bin/enroot-aufs2ovlfs": "cap_sys_admin,cap_mknod=ep",
}
_TIMEOUT = 30.0
_PROOF = ["runuser", "-u", "nobody", "--", "/usr/bin/enroot-nsenter", "--user", "--mount", "/bin/true"]


class HostError(ValueError):
    """Containers cannot run on this host; the text is fit for the user."""


def sysctls(root: str = "/") -> dict[str, str]:
    """Read those settings that this kernel has."""
    values = {}
    for key in _KEYS:
        with contextlib.suppress(OSError):
            values[key] = Path(root, "proc/sys", key.replace(".", "/")).read_text().strip()
    return values


def kernel_file(root: str = "/") -> str | None:
    """Return the content of our file in sysctl.d; None where the kernel needs no setting."""
    file = Path(root, SYSCTL.lstrip("/"))
    noted = file.read_text() if file.is_file() else ""
    threads = int(Path(root, "proc/sys/kernel/threads-max").read_text())
    return enroot_config.sysctls(sysctls(root), noted, threads)


def closed(text: str | None, root: str = "/") -> dict[str, str]:
    """Return the settings of the file that are not in force."""
    required = dict(line.split(" = ", 1) for line in (text or "").splitlines() if " = " in line)
    observed = sysctls(root)
    return {key: value for key, value in required.items() if observed.get(key) != value}


def allow(settings: t.Mapping[str, str], root: str = "/") -> None:
    for key, value in settings.items():
        Path(root, "proc/sys", key.replace(".", "/")).write_text(value)


def apparmor_file(root: str = "/") -> str | None:
    """Return the profile that lets enroot make namespaces; None where nothing forbids it, or somebody else has one."""
    profile, carried = (Path(root, path.lstrip("/")) for path in (PROFILE, _CARRIED_PROFILE))
    if profile.is_file() and owned.MARK not in profile.read_text(errors="replace"):
        return None
    restricted = Path(root, "proc/sys", _RESTRICTED)
    if not restricted.is_file() or not carried.is_file():
        return None
    return enroot_config.HEAD + carried.read_text()


def profile_missing(root: str = "/") -> bool:
    """Return whether AppArmor forbids namespaces and has not loaded the profile yet."""
    restricted, loaded = Path(root, "proc/sys", _RESTRICTED), Path(root, _LOADED.lstrip("/"))
    if (
        not restricted.is_file()
        or restricted.read_text().strip() != "1"
        or not Path(root, PROFILE.lstrip("/")).exists()
    ):
        return False
    return not loaded.is_file() or "/usr/bin/enroot-nsenter" not in loaded.read_text()


def load_profile() -> None:
    outcome = run(["apparmor_parser", "--replace", "--write-cache", PROFILE], _TIMEOUT)
    if outcome.rc != 0:
        raise HostError(f"AppArmor does not take {PROFILE}: {outcome.problem}")


def capabilities_lost(programs: t.Mapping[str, str]) -> dict[str, str]:
    """Return the installed programs that lack the capabilities they need, with these capabilities."""
    lost = {}
    for path, required in programs.items():
        outcome = run(["getcap", path], _TIMEOUT)
        if os.access(path, os.X_OK) and set(outcome.out.split()[1:2]) != {required}:
            lost[path] = required
    return lost


def give(lost: t.Mapping[str, str]) -> None:
    for path, required in lost.items():
        outcome = run(["setcap", required, path], _TIMEOUT)
        if outcome.rc != 0:
            raise HostError(
                f"{path} cannot be given {required}, without which users cannot import images: {outcome.problem}"
            )


def prove() -> None:
    """Raise unless an ordinary user can make a namespace."""
    outcome = run(_PROOF, _TIMEOUT)
    if outcome.rc != 0:
        raise HostError(
            f"the user nobody cannot make a user namespace here ({' '.join(_PROOF)}: {outcome.problem}). Look at "
            f"{', '.join(f'{key} = {value}' for key, value in sysctls().items())}, at AppArmor "
            f"(/proc/sys/{_RESTRICTED}) and at what the container or machine around this host allows"
        )


# Directories of users below one that belongs to root, made and emptied by root. Prologs and epilogs call these.


TRASH = ".trash"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened(path: str, parent: int | None = None) -> t.Iterator[int]:
    """Open a directory that is no link."""
    handle = os.open(path, _DIRECTORY, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def base(path: str, owner: int = 0) -> None:
    """Make the directory of all users, owned by root. Whatever else has its name is moved aside.

    Its parent has to exist: where scratch is not mounted, nothing is made on the system disk instead.
    """
    above, name = os.path.split(path.rstrip("/"))
    with opened(above) as parent:
        _ensure_directory(parent, name, owner, 0o755, lambda: _aside(parent, name))
        with opened(name, parent) as directory:
            _ensure_directory(directory, TRASH, owner, 0o700, lambda: _aside(directory, TRASH))


def _aside(directory: int, name: str) -> None:
    os.rename(name, f".{name}.stray-{time.time_ns()}", src_dir_fd=directory, dst_dir_fd=directory)


def _ensure_directory(parent: int, name: str, owner: int, mode: int, away: t.Callable[[], None]) -> None:
    """Make a directory with this owner and mode, or correct the mode; ``away`` moves what else has its name."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        status = None
    if status and (not stat.S_ISDIR(status.st_mode) or status.st_uid != owner):
        away()
        status = None
    if not status:
        # Whoever makes it first in between makes this fail, and the job goes on without.
        os.mkdir(name, 0o700, dir_fd=parent)
    with opened(name, parent) as directory:
        current = os.fstat(directory)
        if current.st_uid != owner:
            os.fchown(directory, owner, -1)
        if stat.S_IMODE(current.st_mode) != mode:
            os.fchmod(directory, mode)


def have(path: str, uid: int, gid: int, names: t.Iterable[str]) -> None:
    """Make a user's directory, for that user alone, and directories in it, made with the user's rights."""
    with opened(path) as directory:
        _ensure_directory(directory, str(uid), uid, 0o700, lambda: away(directory, str(uid), directory))
    child = os.fork()
    if child == 0:
        _as_user(Path(path, str(uid)), uid, gid, names)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(f"user {uid} cannot make {', '.join(names)} in {path}/{uid}")


def _as_user(path: Path, uid: int, gid: int, names: t.Iterable[str]) -> t.NoReturn:
    """Make the directories as the user and end the process; this runs in a child."""
    status = 1
    try:
        if os.geteuid() == 0:
            os.setgroups([gid])
            os.setgid(gid)
            os.setuid(uid)
        for name in names:
            (path / name).mkdir(mode=0o700, exist_ok=True)
        status = 0
    finally:
        os._exit(status)


def away(directory: int, name: str, root: int) -> None:
    """Move an entry into the trash of the directory ``root`` in one step."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f"{TRASH}/{name}-{time.time_ns()}", src_dir_fd=directory, dst_dir_fd=root)


def empty(path: str, uid: int, names: t.Iterable[str]) -> None:
    """Move directories of a user into the trash."""
    with contextlib.suppress(FileNotFoundError), opened(path) as root, opened(str(uid), root) as directory:
        for name in names:
            away(directory, name, root)


def users(path: str) -> list[int]:
    """Return the users who have a directory."""
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir(path) if name.isdecimal())  # noqa: PTH208 - names, not paths
    return []


def trash(path: str) -> list[str]:
    """Return the paths in the trash."""
    with contextlib.suppress(OSError):
        return [f"{path}/{TRASH}/{name}" for name in os.listdir(f"{path}/{TRASH}")]  # noqa: PTH208
    return []


def used(path: str) -> float:
    """Return how full the file system is, in percent, as df counts: without the blocks reserved for root."""
    dummy, used_bytes, free = shutil.disk_usage(path)
    return 100.0 * used_bytes / (used_bytes + free) if used_bytes + free else 0.0


def group_of(uid: int) -> int:
    """Return the primary group of a user; for a user whom this node does not know, the user's number."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


# What a node does around jobs: makes directories for the job's user, and empties those of users without jobs.


STATE = "/run/hpcai-enroot"
CACHE, DATA, RUNTIME, TEMP = "cache", "data", "run", "tmp"
_ALL = (CACHE, DATA, RUNTIME, TEMP)
# Deletes what a job left, outside the epilog's time.
_UNIT = "hpcai-enroot.service"
Json = t.Dict[str, t.Any]


class EnrootProofJob(t.NamedTuple):
    """A job's number, user and group."""

    job: str
    uid: int
    gid: int


def job_of(environment: t.Mapping[str, str]) -> EnrootProofJob | None:
    """Return the job that slurmd's environment of a prolog or epilog names; None without one."""
    job, uid, gid = (environment.get(f"SLURM_JOB_{name}", "") for name in ("ID", "UID", "GID"))
    if not job.isdecimal() or not uid.isdecimal():
        return None
    return EnrootProofJob(job, int(uid), int(gid) if gid.isdecimal() else group_of(int(uid)))


def leftovers(settings: t.Mapping[str, t.Any], full: float) -> list[str]:
    """Return which directories of a user without jobs are emptied."""
    names = [RUNTIME, TEMP] if settings["keep_containers"] else [RUNTIME, TEMP, DATA]
    return [*names, CACHE] if full > settings["cache_until"] else names


def mark(state: Path, job: EnrootProofJob) -> None:
    """Record that a user has a job on this node."""
    directory = state / "jobs" / str(job.uid)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / job.job).touch()


def unmark(state: Path, job: EnrootProofJob) -> None:
    (state / "jobs" / str(job.uid) / job.job).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others are left
        (state / "jobs" / str(job.uid)).rmdir()


def idle(state: Path, uid: int, proc: str = "/proc") -> bool:
    """Return whether a user has neither a marked job nor a process: jobs older than the prolog have no mark."""
    return not (state / "jobs" / str(uid)).exists() and uid not in owners(proc)


def owners(proc: str = "/proc") -> set[int]:
    """Return the users of all processes that are not zombies."""
    uids = set()
    for name in os.listdir(proc):  # noqa: PTH208 - names, not paths
        if name.isdecimal():
            with contextlib.suppress(OSError):
                uids.add(owner(Path(proc, name, "status").read_text(errors="replace")))
    return uids


def owner(status: str) -> int:
    """Read the real user of a process; -1 for a zombie."""
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    return -1 if "Z" in fields.get("State", "").split() else int(fields.get("Uid", "-1").split()[0])


def prolog(settings: Json, job: EnrootProofJob, state: Path) -> None:
    mark(state, job)
    base(settings["base"])
    have(settings["base"], job.uid, job.gid, _ALL)


def epilog(settings: Json, job: EnrootProofJob, state: Path) -> None:
    unmark(state, job)
    sweep(settings, state, [job.uid])


def sweep(settings: Json, state: Path, uids: t.Iterable[int]) -> None:
    """Empty the directories of users who are idle."""
    for uid in uids:
        if idle(state, uid):
            empty(settings["base"], uid, leftovers(settings, used(settings["base"])))


def clean(settings: Json, state: Path) -> None:
    """Make the base directory, empty those of idle users, as a power cut may have ended jobs, and delete the trash."""
    with lock(state / "lock"):
        base(settings["base"])
        sweep(settings, state, users(settings["base"]))
    for path in trash(settings["base"]):
        subprocess.run(["/bin/rm", "-rf", "--one-file-system", "--", path], check=False, stdin=subprocess.DEVNULL)


def around(event: str, settings: Json, state: Path, environment: t.Mapping[str, str]) -> None:
    """Run the prolog or the epilog for the job in the environment."""
    job = job_of(environment)
    if job is None:
        return
    with lock(state / "lock"):
        {"prolog": prolog, "epilog": epilog}[event](settings, job, state)
    if event == "epilog" and trash(settings["base"]):
        subprocess.run(["/bin/systemctl", "restart", "--no-block", _UNIT], check=False, stdin=subprocess.DEVNULL)


def main(argv: list[str]) -> int:
    """``EVENT SETTINGS``: prolog, epilog or clean."""
    try:
        event, path = argv
        os.umask(0o077)
        state = Path(STATE)
        state.mkdir(mode=0o700, exist_ok=True)
        settings = json.loads(Path(path).read_text(encoding="utf-8"))
        if event == "clean":
            clean(settings, state)
        else:
            around(event, settings, state, os.environ)
    except Exception as exc:  # never fail, see above
        syslog.syslog(syslog.LOG_ERR, f"hpcai-enroot {' '.join(argv)}: {exc!r}")
        sys.stderr.write(f"hpcai-enroot: {exc!r}\n")
    return 0
