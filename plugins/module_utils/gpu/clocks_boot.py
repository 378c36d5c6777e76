# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set clocks on a host without Ansible: at boot, and before and after jobs of Slurm. Private.

It never fails: a prolog that fails drains the node, a unit that fails holds up others, and clocks are worth neither.
The result goes to the journal as one line. The role gpu_clocks installs the program.
"""

from __future__ import annotations

import json
import os
import re
import sys
import syslog
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import (
    ClockChange,
    ClocksRequest,
    Smi,
    SmiError,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_apply import PATH, Record, apply

MINORS = "/proc/driver/nvidia/gpus"
Json = t.Dict[str, t.Any]


def request_for(settings: Json, event: str, environment: t.Mapping[str, str]) -> ClocksRequest | None:
    """Return the request of an event; None for a job that did not opt in."""
    with_jobs = settings["when"] == "job"
    clocks = ClocksRequest(settings["state"], settings.get("graphics") or None, settings.get("memory") or None)
    if event == "boot":
        return ClocksRequest("reset", persistence=True) if with_jobs else clocks
    if event == "epilog":
        return ClocksRequest("reset", persistence=True)
    return clocks if with_jobs and opted_in(settings.get("feature") or "", environment) else None


def opted_in(feature: str, environment: t.Mapping[str, str]) -> bool:
    """Return whether a job names the feature in a constraint or its comment; without a feature every job opts in."""
    if not feature:
        return True
    texts = (environment.get("SLURM_JOB_CONSTRAINTS", ""), environment.get("SLURM_JOB_COMMENT", ""))
    return any(feature in re.split(r"[^\w.+-]+", text) for text in texts)


def gpus_of_job(environment: t.Mapping[str, str], bus_ids: t.Sequence[str], root: str = MINORS) -> set[int]:
    """Return the indexes of a job's GPUs. Slurm counts device files, nvidia-smi counts along the bus."""
    numbers = {int(number) for number in environment.get("SLURM_JOB_GPUS", "").split(",") if number.strip().isdigit()}
    return {index for index, bus_id in enumerate(bus_ids) if _minor(bus_id, index, root) in numbers}


def _minor(bus_id: str, index: int, root: str) -> int:
    domain, dummy, address = bus_id.lower().partition(":")
    try:
        text = (Path(root) / f"{domain[-4:]}:{address}" / "information").read_text(encoding="utf-8")
    except OSError:
        return index
    match = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else index


def line(event: str, changes: t.Sequence[ClockChange], problem: str) -> str:
    """Return the result as one line of JSON."""
    message = {
        "event": event,
        "gpus": [change.gpu.index for change in changes],
        "changed": [change.gpu.index for change in changes if change.before != change.snapshot()],
        "problems": [
            *([problem] if problem else []),
            *(f"GPU {change.gpu.index}: {p}" for change in changes for p in change.problems),
        ],
    }
    return json.dumps(message)


class ClockJob:
    """The GPUs of a job, kept by its prolog for its epilog, to which older releases of Slurm do not pass them."""

    def __init__(self, record: Record, environment: t.Mapping[str, str]) -> None:
        name = re.sub(r"\D", "", environment.get("SLURM_JOB_ID", ""))
        self.folder = record.path.parent / "gpu_clocks_jobs"
        self.path = self.folder / f"{name or 'none'}.json"

    def begin(self, gpus: t.Collection[int]) -> None:
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.path.write_text(json.dumps(sorted(gpus)), encoding="ascii")

    def end(self) -> set[int]:
        if not self.path.exists():
            return set()
        gpus = set(json.loads(self.path.read_text(encoding="ascii")))
        self.path.unlink()
        return gpus

    def others(self) -> set[int]:
        """Return the GPUs whose clocks belong to a job."""
        return {gpu for path in self.folder.glob("*.json") for gpu in json.loads(path.read_text(encoding="ascii"))}


def choose(event: str, smi: Smi, job: ClockJob, environment: t.Mapping[str, str]) -> set[int]:
    """Return the indexes of the GPUs that an event is about."""
    if event == "epilog":
        return job.end()
    gpus = smi.query()
    if event == "prolog":
        indexes = gpus_of_job(environment, [gpu.bus_id for gpu in gpus])
        if indexes:
            job.begin(indexes)
        return indexes
    return {gpu.index for gpu in gpus} - job.others()


def act(event: str, settings: Json, environment: t.Mapping[str, str]) -> str:
    """Carry out the request of an event and return its result as a line; empty when there was nothing to do."""
    request = request_for(settings, event, environment)
    if request is None:
        return ""
    record = Record(settings.get("record") or PATH)
    budget = settings["budget"]["boot" if event == "boot" else "job"]
    smi = Smi(settings.get("program") or "nvidia-smi", settings["timeout"], budget)
    changes: list[ClockChange] = []
    try:
        only = choose(event, smi, ClockJob(record, environment), environment)
        if not only:
            return ""
        changes = apply(smi, record, request, only, settings["settle"])
        problem = smi.problem
    except SmiError as exc:
        problem = str(exc)
    return line(event, changes, problem)


def main(arguments: t.Sequence[str]) -> int:
    """``boot|prolog|epilog SETTINGS.json``; always returns 0."""
    event = arguments[0] if arguments else ""
    try:
        path = arguments[1]
        message = act(event, json.loads(Path(path).read_text(encoding="utf-8")), os.environ)
    except Exception as exc:
        message = f"{type(exc).__name__}: {exc}"
    if message and event == "boot":  # systemd takes standard output to the journal; slurmd throws it away
        sys.stdout.write(f"{message}\n")
    elif message:
        syslog.openlog("hpcai-gpu-clocks")
        syslog.syslog(syslog.LOG_NOTICE, message)
    return 0
