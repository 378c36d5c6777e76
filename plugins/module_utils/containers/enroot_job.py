# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node does for enroot around jobs: directories for the job's user, and none left over. Private.

It calls no command of Slurm and never fails: a prolog that fails drains the node, and jobs without containers need
none of this. What went wrong is in the journal, and enroot says by itself what it lacks. The role enroot installs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import syslog
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_dirs as dirs

STATE = "/run/hpcai-enroot"
CACHE, DATA, RUNTIME, TEMP = "cache", "data", "run", "tmp"
_ALL = (CACHE, DATA, RUNTIME, TEMP)
# Deletes at leisure what a job left, out of the epilog's time.
_UNIT = "hpcai-enroot.service"
Json = t.Dict[str, t.Any]


class Job(t.NamedTuple):
    """Whose job it is."""

    job: str
    uid: int
    gid: int


def asked(environment: t.Mapping[str, str]) -> Job | None:
    """Read what slurmd tells a prolog or an epilog."""
    job, uid, gid = (environment.get(f"SLURM_JOB_{name}", "") for name in ("ID", "UID", "GID"))
    if not job.isdecimal() or not uid.isdecimal():
        return None
    return Job(job, int(uid), int(gid) if gid.isdecimal() else dirs.group_of(int(uid)))


def leftovers(settings: t.Mapping[str, t.Any], full: float) -> list[str]:
    """Return which directories of a user without jobs go."""
    gone = [RUNTIME, TEMP] if settings["keep_containers"] else [RUNTIME, TEMP, DATA]
    return [*gone, CACHE] if full > settings["cache_until"] else gone


def mark(state: Path, job: Job) -> None:
    """Note that a user has a job here."""
    place = state / "jobs" / str(job.uid)
    place.mkdir(parents=True, exist_ok=True)
    (place / job.job).touch()


def unmark(state: Path, job: Job) -> None:
    (state / "jobs" / str(job.uid) / job.job).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others are left
        (state / "jobs" / str(job.uid)).rmdir()


def idle(state: Path, uid: int, proc: str = "/proc") -> bool:
    """Tell whether a user has neither a job nor a process here: jobs that began before us left no mark."""
    return not (state / "jobs" / str(uid)).exists() and uid not in owners(proc)


def owners(proc: str = "/proc") -> set[int]:
    """Return the users of all processes that are not dead yet."""
    found = set()
    for name in os.listdir(proc):  # noqa: PTH208 - names, not paths
        if name.isdecimal():
            with contextlib.suppress(OSError):
                found.add(owner(Path(proc, name, "status").read_text(errors="replace")))
    return found


def owner(status: str) -> int:
    """Read the real user of a process; -1 for a zombie."""
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    return -1 if "Z" in fields.get("State", "").split() else int(fields.get("Uid", "-1").split()[0])


def prolog(settings: Json, job: Job, state: Path) -> None:
    mark(state, job)
    dirs.base(settings["base"])
    dirs.have(settings["base"], job.uid, job.gid, _ALL)


def epilog(settings: Json, job: Job, state: Path) -> None:
    unmark(state, job)
    sweep(settings, state, [job.uid])


def sweep(settings: Json, state: Path, uids: t.Iterable[int]) -> None:
    """Take from users who are idle what nobody needs any more."""
    for uid in uids:
        if idle(state, uid):
            dirs.empty(settings["base"], uid, leftovers(settings, dirs.used(settings["base"])))


def clean(settings: Json, state: Path) -> None:
    """Have the directory before a user can; sweep up after all users, as a power cut may have ended jobs; delete."""
    with lock(state / "lock"):
        dirs.base(settings["base"])
        sweep(settings, state, dirs.users(settings["base"]))
    for path in dirs.trash(settings["base"]):
        subprocess.run(["/bin/rm", "-rf", "--one-file-system", "--", path], check=False, stdin=subprocess.DEVNULL)


def around(event: str, settings: Json, state: Path, environment: t.Mapping[str, str]) -> None:
    """Do what a prolog or an epilog has to."""
    job = asked(environment)
    if job is None:
        return
    with lock(state / "lock"):
        {"prolog": prolog, "epilog": epilog}[event](settings, job, state)
    if event == "epilog" and dirs.trash(settings["base"]):
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
