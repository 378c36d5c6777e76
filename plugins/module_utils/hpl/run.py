# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpl: find the program, write its input, run it, and collect what came back. Private."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import posixpath
import shutil
import socket
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run, run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Command, Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import check
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import problem as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl.affinity import understands
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import hpl, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.srun_busy import busy

NAMES = ("hpl.sh", "xhpl")
PLACES = ("/opt/gpu_test_tools/bin", "/workspace", "/opt/nvidia/hpc-benchmarks*", "/opt/hpl*", "/opt/hpl*/bin")
_INSIDE = "/workspace/hpl.sh"  # where NVIDIA's image hpc-benchmarks has it
_ADVICE = "; the container image nvidia/hpc-benchmarks of NVIDIA brings it, see container_image"
_PATIENCE = 30.0
_TAIL = 2000


def perform(params: t.Mapping[str, t.Any], check_mode: bool, folder: str) -> Json:
    """Run and return what the module returns; raises ValueError for options that make no sense."""
    try:
        launch = _launch.here(params, job_name="hpl", timeout=params["timeout"])
    except _find.NotFound as exc:
        return _without(params, None, "error", str(exc))
    asked.validate(params, launch)
    if check_mode:
        return _without(params, launch, "skipped", "check mode")
    memory = None if params["dat"] or params["n"] or launch.kind != "local" else _memory(params["timeout"])
    problem = asked.problem(params, launch, memory)
    if problem is None and not params["dat"]:
        expected = any(one["check"] == check.CHECK for one in params["expect"])
        if launch.kind != "local":
            raise asked.HplError(f"launcher {launch.kind} needs n, gpu_memory_mib or dat")
        return _without(params, launch, "error" if expected else "skipped", "no GPU, and neither n nor dat is given")
    return _looked(params, launch, problem, folder)


def _looked(params: t.Mapping[str, t.Any], launch: Launch, problem: asked.Problem | None, folder: str) -> Json:
    """Run between two looks at who else uses the GPUs."""
    try:
        program = _program(params["path"], launch)
    except _find.NotFound as exc:
        return _without(params, launch, "error", f"{exc}{_ADVICE}")
    watch = users.Watch(launch, params, users.visible(launch))
    if watch.refusal:
        return _without(params, launch, "skipped", watch.refusal)
    log = params["log"] or f"{folder}/hpl.log"
    with _work(params["directory"] or folder, problem) as work:
        dat = params["dat"] or f"{work}/HPL.dat"
        found = _solve(params, launch, program, problem, dat, log, watch)
    return {**found, "checks": [watch.noted(one) for one in found["checks"]]}


def _program(path: str | None, launch: Launch) -> str:
    """Return the program; what other machines or a container have at a given path is taken as given."""
    if launch.container_image:
        return path or _INSIDE
    if path and launch.kind != "local":
        return path if posixpath.basename(path).startswith(("hpl", "xhpl")) else f"{path.rstrip('/')}/xhpl"
    return _find.find(NAMES, path, PLACES, role=None)


@contextlib.contextmanager
def _work(folder: str, problem: asked.Problem | None) -> t.Iterator[str]:
    """Give a directory with HPL.dat that is removed again; a file that was given is left where it is."""
    if problem is None:
        yield folder
        return
    try:
        work = tempfile.mkdtemp(prefix="hpcai-hpl-", dir=folder)
    except OSError as exc:
        raise asked.HplError(f"HPL.dat cannot be written in {folder}: {exc.strerror}") from exc
    try:
        Path(work, "HPL.dat").write_text(problem.dat)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def arguments(program: str, dat: str, more: t.Sequence[str]) -> list[str]:
    """Return the command line for one rank; NVIDIA's script takes any file, xhpl only HPL.dat where it is started."""
    if posixpath.basename(program).endswith(".sh"):
        return [program, "--dat", dat, *more]
    if posixpath.basename(dat) != "HPL.dat":
        raise asked.HplError(f"{program} reads a file of the name HPL.dat, not {dat}")
    return ["sh", "-c", 'cd "$0" && exec "$@"', posixpath.dirname(dat), program, *more]


def _solve(
    params: t.Mapping[str, t.Any],
    launch: Launch,
    program: str,
    problem: asked.Problem | None,
    dat: str,
    log: str,
    watch: users.Watch,
) -> Json:
    if launch.container_image:
        where = posixpath.dirname(dat)
        launch = launch._replace(container_mounts=[*launch.container_mounts, f"{where}:{where}"])
    place = asked.affinity(params, launch)
    bound = place.arguments if understands(program) else []
    command = _launch.command(launch, arguments(program, dat, [*bound, *params["arguments"]]))
    outcome = run_to_file(command.argv, params["timeout"], log, command.environment)
    with text.opened(log) as lines:
        found = hpl.parse(itertools.chain(lines, [outcome.err]))
    facts = _facts(found, command, problem)
    taken = busy(outcome.out)
    if taken and not found.runs:
        return {**_without(params, launch, "skipped", taken), **facts}
    finding = check.read(found, outcome, problem)
    gpus = params["gpus"] or (launch.ranks if problem and not params["n"] else None)
    common = _about(params, launch)
    common.update(seconds=outcome.seconds, evidence=outcome.out[-_TAIL:] if finding.problem or finding.failures else "")
    version = found.runs[0].version if found.runs else None
    common["context"].update(argv=command.argv, version=version, log=params["log"])
    common["context"]["affinity"] = " ".join(bound) or place.reason or f"{program} takes none"
    return {"checks": [check.judged(finding, gpus, launch.nodes, watch.limits(params["expect"]), common)], **facts}


def _facts(log: Log[hpl.Run], command: Command, problem: asked.Problem | None) -> Json:
    rows = [dataclasses.asdict(row) for found in log.runs for row in found.rows]
    residuals = [dataclasses.asdict(one) for found in log.runs for one in found.residuals]
    what = {"problem": problem and problem._asdict(), "dat": problem and problem.dat}
    return {"rows": rows, "residuals": residuals, **what, **command._asdict()}


def _memory(timeout: float) -> int | None:
    """Return the memory of the smallest GPU of this machine in MiB."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    query = [smi, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    outcome = run(query, min(timeout, _PATIENCE))
    runs = parse_csv(outcome.out, ["memory.total"]).runs if outcome.rc == 0 else []
    sizes = [row.number("memory.total") for one in runs for row in one.rows]
    return int(min(size for size in sizes if size)) if any(sizes) else None


def _about(params: t.Mapping[str, t.Any], launch: Launch | None) -> Json:
    host = launch.hosts[0] if launch and launch.hosts else socket.gethostname().partition(".")[0]
    node = None if launch and launch.nodes > 1 else params["name"] or host
    context = {"tool": "HPL", "version": None, "argv": [], "profile": params["profile"], "launcher": params["launcher"]}
    return {"node": node, "time": time.time(), "run": params["run"], "context": context}


def _without(params: t.Mapping[str, t.Any], launch: Launch | None, verdict: str, reason: str) -> Json:
    found = record(check.CHECK, verdict=verdict, reason=reason, **_about(params, launch))
    command = Command([], dict(launch.environment) if launch else {})
    return {**_facts(hpl.parse(""), command, None), "checks": [found]}
