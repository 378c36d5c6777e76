# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that Slurm calls to create and remove nodes (ResumeProgram, SuspendProgram, ResumeFailProgram). Private.

A provider's file is the program's entry: it calls `main` with its own class, so nothing else has to know of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power import config as settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.actions import Actions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import PowerError, Provider
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.slurm import Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand

_USAGE = "usage: hpcai-power resume|suspend|resume-fail HOSTLIST, or hpcai-power sweep|status\n"
_ON_NODES = ("resume", "suspend", "resume-fail")


def main(argv: t.Sequence[str], provider: type[Provider]) -> int:
    """Run one command; the configuration's path is the last argument."""
    *words, path = argv or [""]
    verb, hosts = [*words, "", ""][:2]
    if verb not in (*_ON_NODES, "sweep", "status") or len(words) != 1 + (verb in _ON_NODES):
        sys.stderr.write(_USAGE)
        return 2
    try:
        config = settings.load(path, provider)
        names = expand(hosts)
    except (PowerError, HostlistError) as exc:
        sys.stderr.write(f"hpcai-power {verb}: {exc}\n")
        return 1
    say = _log(config.log, verb)
    actions = Actions(config, provider(config.settings, config.cluster), Slurm(), say)
    try:
        with _lock(Path(config.state_dir) / "lock", alone=verb == "sweep"):
            return 0 if _run(actions, verb, names) else 1
    except (PowerError, OSError) as exc:
        say(f"failed: {exc}")
        return 1


def _run(actions: Actions, verb: str, names: list[str]) -> bool:
    if verb == "sweep":
        return actions.sweep(time.time())
    if verb == "status":
        for name, state in sorted(actions.provider.instances().items()):
            sys.stdout.write(f"{name} {state}\n")
        return True
    act: dict[str, t.Callable[[t.Sequence[str]], bool]] = {
        "resume": actions.resume,
        "suspend": actions.suspend,
        "resume-fail": actions.resume_fail,
    }
    return act[verb](names)


def _log(path: str, verb: str) -> t.Callable[[str], None]:
    """Write lines to the log and, for whoever runs the program by hand, to standard error; Slurm gives it none."""

    def say(text: str) -> None:
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {verb}: {text}\n"
        with contextlib.suppress(OSError), Path(path).open("a", encoding="utf-8") as file:
            file.write(line)
        with contextlib.suppress(OSError, AttributeError):
            sys.stderr.write(line)

    return say


@contextlib.contextmanager
def _lock(path: Path, alone: bool) -> t.Iterator[None]:
    """Calls of Slurm run beside each other; a sweep, which compares, runs alone."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
