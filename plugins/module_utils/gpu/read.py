# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask nvidia-smi for everything that gpu_info needs, in three calls. Private.

A call that does not end is the last one: the next would hang in the same place, and each leaves a process behind that
even SIGKILL may not end.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._nvidia_smi_document import Run as Query
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_nvlink import Run as Nvlink
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import Run as Matrix

Runner = t.Callable[..., Outcome]

# Containers and systemd units have a PATH without these.
PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/run/nvidia/driver/usr/bin")
_CALLS = {"query": ["-q", "-x"], "topo": ["topo", "-m"], "nvlink": ["nvlink", "-s"]}


class Reading(t.NamedTuple):
    """What nvidia-smi said. ``problems`` says of a call (query, topo, nvlink) why nothing can be told from it.

    ``cause`` is what nvidia-smi itself complained about in place of showing GPUs.
    """

    query: Query | None
    matrix: Matrix | None
    nvlink: Nvlink | None
    problems: dict[str, str]
    cause: Cause | None
    commands: list[list[str]]


def read(
    program: str | None,
    timeout: float,
    environment: t.Mapping[str, str] | None = None,
    runner: Runner = run,
    find: t.Callable[..., str] = _find.find,
) -> Reading:
    """Make the calls, one after the other."""
    try:
        path = find("nvidia-smi", program, PLACES, role=None)
    except _find.NotFound as exc:
        return Reading(None, None, None, dict.fromkeys(_CALLS, str(exc)), None, [])
    caller = _Caller(path, timeout, environment or {}, runner)
    log = nvidia_smi.parse_xml(caller.ask("query"))
    query = log.runs[0] if log.runs else None
    if query is None or not query.gpus:
        cause = log.cause or nvidia_smi.message(caller.complaint) or nvidia_smi.status(caller.status)
        caller.give_up("query", cause.text if cause else "it showed no GPU")
        return Reading(query, None, None, caller.problems, cause, caller.commands)
    if not query.complete:
        caller.problems["query"] = "its output ends in the middle"
    topo = next(iter(nvidia_smi.parse_topo(caller.ask("topo")).runs), None)
    nvlink = next(iter(nvidia_smi.parse_nvlink(caller.ask("nvlink")).runs), None)
    return Reading(query, topo, nvlink, caller.problems, None, caller.commands)


class _Caller:
    """Runs nvidia-smi until it hangs."""

    def __init__(self, path: str, timeout: float, environment: t.Mapping[str, str], runner: Runner) -> None:
        self.problems: dict[str, str] = {}
        self.commands: list[list[str]] = []
        self.status: int | None = None
        self.complaint = ""
        self._path, self._timeout, self._environment, self._runner = path, timeout, environment, runner
        self._hung = ""

    def ask(self, name: str) -> str:
        """Return what a call printed; its status alone is no problem, since one lost GPU changes it."""
        if self._hung:
            self.problems[name] = f"not asked, because {self._hung}"
            return ""
        argv = [self._path, *_CALLS[name]]
        self.commands.append(argv)
        outcome = self._runner(argv, self._timeout, None, self._environment)
        self.status, self.complaint = outcome.rc, outcome.err
        if outcome.rc is None:
            self._hung = f"{' '.join(argv)}: {outcome.problem}"
            self.problems[name] = self._hung
            return ""
        if not outcome.out.strip():
            self.problems[name] = f"{' '.join(argv)}: {outcome.problem or 'no output'}"
        return f"{outcome.err}\n{outcome.out}" if name == "query" else outcome.out

    def give_up(self, name: str, why: str) -> None:
        """Nothing more can be asked where the first call showed no GPU."""
        self.problems.setdefault(name, f"{' '.join(self.commands[-1])}: {why}")
        for other in _CALLS:
            self.problems.setdefault(other, self.problems[name])
