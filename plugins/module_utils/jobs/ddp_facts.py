# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a node that decide whether it takes part in a training without a scheduler. Private."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import socket
import typing as t
from pathlib import Path

Json = t.Dict[str, t.Any]
Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]
_PROBE = (
    "import json, torch; cuda = torch.cuda.is_available();"
    "print(json.dumps({'torch': torch.__version__, 'gpus': torch.cuda.device_count() if cuda else 0}))"
)


def facts(params: t.Mapping[str, t.Any], run: Run, squeue: str | None) -> Json:
    """Return the facts that decide whether this node may and can take part."""
    script = Path(params["script"]) if params["script"] else None
    paths = [Path(path) for path in [*params["paths"], *([script] if script else [])]]
    jobs, problem = slurm_jobs(run, squeue, socket.gethostname().partition(".")[0])
    return {
        **_torch(run, params["python"]),
        "python": params["python"],
        "hostname": socket.gethostname().partition(".")[0],
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "cpus": os.cpu_count(),
        "missing": [str(path) for path in paths if not os.access(path, os.R_OK)],
        "script_sha256": _digest(script),
        "unresolved": [name for name in params["addresses"] if not _resolves(name)],
        "port": params["port"],
        "port_free": _free(params["port"]),
        "jobs": jobs,
        "jobs_problem": problem,
    }


def _torch(run: Run, python: str) -> Json:
    none: Json = {"torch": "", "gpus": 0}
    rc, out, err = run([python, "-c", _PROBE])
    try:
        versions = json.loads(out.splitlines()[-1]) if rc == 0 else None
    except (ValueError, IndexError):
        versions = None
    if not isinstance(versions, dict):
        return {**none, "torch_problem": ((err or out).strip().splitlines() or [f"exit status {rc}"])[-1]}
    return {**versions, "torch_problem": ""}


def slurm_jobs(run: Run, squeue: str | None, host: str) -> tuple[list[str], str]:
    """Return the jobs that Slurm has on this node, and why it cannot tell; a machine without Slurm has none."""
    steps = _steps()
    if not squeue:
        return ([f"{len(steps)} steps"] if steps else []), ""
    rc, out, err = run([squeue, "-h", "-w", host, "-t", "R,CF,CG,S,SO,ST", "-o", "%i"])
    if rc == 0:
        return sorted(set(out.split())), ""
    if "Invalid node name" in err:
        return [], ""
    return [], (err or out).strip().replace("\n", " ")


def _steps(proc: Path = Path("/proc")) -> list[str]:
    """Return the processes that watch over job steps; they are there also where no client of Slurm is."""
    steps = []
    for path in proc.glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8").startswith("slurmstepd"):
                steps.append(path.parent.name)
        except OSError:
            continue
    return steps


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _digest(path: Path | None) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else None
    except OSError:
        return None
