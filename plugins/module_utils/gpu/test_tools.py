# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_test_tools: plan where each program comes from, build it, prove it, then link it into use."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import executable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import SourceError, identity, run_steps, unpack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools_recipe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.test_tools_recipe import (
    Tool,
    ToolError,
    digest,
    same,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test, nccl_tests, nvbandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import FirstCause

# The store of built programs, and programs that an image carries.


MANIFEST = "manifest.json"


def folder(prefix: str, inputs: t.Mapping[str, t.Any]) -> str:
    return f"{prefix}/versions/{inputs['tool']}-{digest(inputs)}"


def built(prefix: str, inputs: t.Mapping[str, t.Any]) -> str:
    """Return the directory of a build with these inputs; empty when there is none. Somebody else's is none."""
    for path in sorted(Path(prefix, "versions").glob(f"{inputs['tool']}-*/{MANIFEST}")):
        if same(inputs, manifest(str(path)).get("inputs", {})):
            return str(path.parent)
    return ""


def manifest(path: str) -> dict[str, t.Any]:
    """Read a manifest; one that was cut short by a full disk is none, and neither is somebody else's."""
    try:
        content = json.loads(_trusted.read(path, _trusted.trusted_users()))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def refuse_others(prefix: str) -> None:
    """Raise ToolError where somebody else could exchange what all users run."""
    for name in ("", "versions", "current", "bin"):
        try:
            _trusted.check(str(Path(prefix, name)), _trusted.trusted_users())
        except _trusted.TrustError as exc:
            raise ToolError(f"programs cannot be kept in {prefix}: {exc}") from exc


def current(prefix: str, name: str) -> str:
    """Return the directory that a tool is used from; empty when there is none."""
    link = Path(prefix, "current", name)
    return str(link.resolve()) if link.is_dir() else ""


def carried(tool: Tool, extra: t.Sequence[str], fits: t.Callable[[str], bool]) -> str:
    """Return the directory where the image carries a tool that ``fits``; empty when there is none."""
    for pattern in (*extra, *tool.places):
        for directory in sorted(glob.glob(pattern), reverse=True):  # noqa: PTH207 - absolute, with wildcards in the middle
            if executable(f"{directory}/{tool.proof}") and fits(f"{directory}/{tool.proof}"):
                return directory
    return ""


def programs(tool: Tool, directory: str) -> list[str]:
    """Return the programs of a tool that a directory has; older releases of nccl-tests have fewer collectives."""
    return [name for name in tool.programs if executable(f"{directory}/{name}")]


def name(library: str, folder: str, short: str) -> None:
    """Give a library the short name that the linker looks for."""
    Path(folder).mkdir()
    Path(folder, short).symlink_to(library)


def stage(tool: Tool, build: str, target: str) -> str:
    """Copy the programs of a build beside the place where they will be; return that directory."""
    if os.path.lexists(target) and (foreign := _trusted.distrust(target, _trusted.trusted_users())):
        raise ToolError(f"{target} is in the way of what is built, and not ours: {foreign}")
    partial = Path(f"{target}.{os.uname().nodename}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in programs(tool, build):
        shutil.copy(f"{build}/{name}", partial / name)
        (partial / name).chmod(0o755)
    return str(partial)


def keep(partial: str, target: str, content: t.Mapping[str, t.Any]) -> None:
    """Move a staged build to its final directory; its manifest is written before the rename."""
    Path(partial, MANIFEST).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    # Another host may have made the same build on a shared directory meanwhile, and may already run it.
    if manifest(f"{target}/{MANIFEST}").get("inputs") == content["inputs"]:
        shutil.rmtree(partial)
        return
    shutil.rmtree(target, ignore_errors=True)
    Path(partial).rename(target)


def links(prefix: str, tool: Tool, directory: str) -> dict[str, str]:
    """Return the links that a tool should have: path and what it points to."""
    inside = directory.startswith(f"{prefix}/versions/")
    links = {f"{prefix}/current/{tool.name}": os.path.relpath(directory, f"{prefix}/current") if inside else directory}
    for name in programs(tool, directory):
        links[f"{prefix}/bin/{name}{tool.suffix}"] = f"../current/{tool.name}/{name}"
    return links


def stale(prefix: str, tool: Tool, links: t.Mapping[str, str]) -> list[str]:
    """Return the links of programs that the version in use lacks."""
    ours = [f"{prefix}/bin/{name}{tool.suffix}" for name in tool.programs]
    return [path for path in ours if os.path.islink(path) and path not in links]  # noqa: PTH114


def wrong_links(links: t.Mapping[str, str]) -> dict[str, str]:
    return {path: goal for path, goal in links.items() if not Path(path).is_symlink() or os.readlink(path) != goal}


def set_links(links: t.Mapping[str, str], gone: t.Sequence[str]) -> None:
    """Set links one by one, each in one step; the directory comes first, then programs that are new in it."""
    for path, goal in links.items():
        Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = f"{path}.{os.getpid()}"
        Path(fresh).unlink(missing_ok=True)
        Path(fresh).symlink_to(goal)
        os.replace(fresh, path)  # noqa: PTH105 - a rename over the old link, never a moment without one
    for path in gone:
        Path(path).unlink()


# Prove that programs load and run here, or fail here as they should without a GPU.


# They come with the driver, so a host that only builds has none.
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_LIMIT = 180.0
_NO_DEVICE = re.compile(r"no CUDA-capable device|driver version is insufficient|CUDA_ERROR_NO_DEVICE|No devices found")
_OLD_DRIVER = re.compile(r"driver version is insufficient|CUDA_ERROR_COMPAT_NOT_SUPPORTED|unsupported PTX version")
_OTHER_GPU = re.compile(r"no kernel image|invalid device function|NO_BINARY_FOR_GPU|named symbol not found")


class Trial(t.NamedTuple):
    """The help option of a program, a word of its usage text, and the arguments of its shortest measurement."""

    help: t.Sequence[str]
    word: str
    measure: t.Sequence[str]
    ok: t.Callable[[str], bool]


class ProofHost(t.NamedTuple):
    """The host that a proof is made on; ``stubs`` is the directory of the toolkit's stand-ins for the driver."""

    gpu: bool
    environment: t.Mapping[str, str]
    stubs: str = ""


class Proof(t.NamedTuple):
    """``state`` is measured, no device, loads (its driver is elsewhere) or failed (the GPU is busy or ill)."""

    state: str
    summary: str


_SMALL = ["-b", "1M", "-e", "1M", "-n", "2", "-w", "1", "-g", "1", "-c", "1"]
_TRIALS = {
    "all_reduce_perf": Trial(["-h"], "USAGE:", _SMALL, lambda text: nccl_tests.parse(text).ok),
    "nvbandwidth": Trial(
        ["-h"], "nvbandwidth CLI", ["-t", "device_local_copy", "-b", "64"], lambda x: nvbandwidth.parse(x).ok
    ),
    "bandwidthTest": Trial(["--help"], "Usage:", ["--device=0", "--dtod"], lambda text: bandwidth_test.parse(text).ok),
}


def absent(ldd: str) -> list[str]:
    """Return the libraries that the loader does not find, from what ldd printed."""
    return re.findall(r"^\s*(\S+) => not found", ldd, re.MULTILINE) + re.findall(r"version `\S+' not found", ldd)


def links_mpi(program: str) -> bool:
    return "libmpi" in run(["ldd", program], _LIMIT).out


def launcher(mpi_home: str) -> tuple[list[str], dict[str, str]]:
    """Return how one MPI rank is started, and its variables; without mpirun the program starts by itself."""
    own_mpirun = f"{mpi_home}/bin/mpirun"
    try:
        path, variables = _launch.launcher("mpirun", own_mpirun if mpi_home and executable(own_mpirun) else None)
    except _launch.NotFound:
        return [], {}
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # The libraries of HPC-X are not found unless its module is loaded or its own mpirun starts the program.
    library_path = os.environ.get("LD_LIBRARY_PATH")
    return [path, "-np", "1", *root], {
        **variables,
        "LD_LIBRARY_PATH": ":".join(filter(None, [_beside(path), library_path])),
    }


def _beside(path: str) -> str:
    return str(Path(path).parents[1] / "lib")


def prove(tool: Tool, directory: str, host: ProofHost, start: t.Sequence[str] = ()) -> Proof:
    """Prove a tool; raises ToolError when its programs are not fit for this host."""
    lost: set[str] = set()
    for name in programs(tool, directory):
        outcome = run(["ldd", f"{directory}/{name}"], _LIMIT, environment=host.environment)
        lost |= set(absent(outcome.out + outcome.err))
        if lost - (set() if host.gpu else set(DRIVER_LIBRARIES)):
            raise ToolError(f"{directory}/{name} cannot be loaded, the loader does not find {', '.join(sorted(lost))}")
    trial, argv = _TRIALS[tool.proof], [*start, f"{directory}/{tool.proof}"]
    if lost:
        return _without_driver(trial, argv, host)
    _help(trial, argv, run([*argv, *trial.help], _LIMIT, environment=host.environment))
    outcome = run([*argv, *trial.measure], _LIMIT, environment=host.environment)
    return judge(trial, [*argv, *trial.measure], outcome, host.gpu)


def _without_driver(trial: Trial, argv: t.Sequence[str], host: ProofHost) -> Proof:
    """Load a program with the toolkit's stand-ins for the driver: its other symbols are resolved all the same."""
    if not host.stubs:
        return Proof("loads", "not run: this host has neither the driver's libraries nor the toolkit's stubs")
    with tempfile.TemporaryDirectory() as folder:
        for name in DRIVER_LIBRARIES:
            Path(folder, name).symlink_to(f"{host.stubs}/{name[:-2]}")
        library_path = host.environment.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH"))
        variables = {**host.environment, "LD_LIBRARY_PATH": ":".join(filter(None, [folder, library_path]))}
        _help(trial, argv, run([*argv, *trial.help], _LIMIT, environment=variables))
    return Proof("loads", "answered with the toolkit's stubs in place of the driver, which this host does not have")


def _help(trial: Trial, argv: t.Sequence[str], outcome: Outcome) -> None:
    if outcome.rc != 0 or trial.word not in outcome.out:
        raise ToolError(
            f"{' '.join([*argv, *trial.help])} did not print its usage: {outcome.problem or outcome.out[:200]}"
        )


def tool_name(argv: t.Sequence[str]) -> str:
    return next(Path(argument).name for argument in argv if Path(argument).name in _TRIALS)


def judge(trial: Trial, argv: t.Sequence[str], outcome: Outcome, gpu: bool) -> Proof:
    """Return what the shortest measurement proves; raises ToolError where only another build can help."""
    text = f"{outcome.out}\n{outcome.err}"
    if outcome.rc == 0 and trial.ok(outcome.out):
        return Proof("measured", " ".join([tool_name(argv), *trial.measure]))
    answer = _cause(text) or outcome.problem or "no result"
    if not gpu:
        if _NO_DEVICE.search(text):
            return Proof("no device", answer)
        raise ToolError(f"{' '.join(argv)} should only miss a GPU here, but says: {answer}")
    if _OLD_DRIVER.search(text):
        raise ToolError(f"{argv[0]} was built with a CUDA toolkit that is newer than this host's driver: {answer}")
    if _OTHER_GPU.search(text):
        raise ToolError(f"{' '.join(argv)} was not built for this host's GPUs: {answer}")
    return Proof("failed", answer)


def _cause(text: str) -> str:
    first = FirstCause()
    for line in text.splitlines():
        first.see(line)
    return first.cause.text if first.cause else ""


# Plan where each program comes from; what is missing is reported before anything is changed.


class ToolsPlan(t.NamedTuple):
    """The plan for one tool. ``origin`` is empty for an optional tool that was found nowhere."""

    tool: Tool
    origin: str = ""
    directory: str = ""
    build: bool = False
    inputs: t.Mapping[str, t.Any] = {}
    packages: t.Sequence[str] = ()
    why: str = ""


class BuildHost(t.NamedTuple):
    """What the host offers to all builds: requirements, GPU architectures, architectures of its CUDA."""

    needs: t.Mapping[str, test_tools_recipe.Need]
    architectures: t.Sequence[str]
    supported: t.Collection[str]


def read_host(params: t.Mapping[str, t.Any], tools: t.Sequence[Tool]) -> BuildHost:
    names = {name for tool in tools for name in tool.needs} if "source" in params["origins"] else set()
    needs = test_tools_recipe.read(params, names)
    archs = test_tools_recipe.architectures(params["architectures"] or test_tools_recipe.gpus())
    cuda = needs["cuda"].home if "cuda" in needs else ""
    return BuildHost(needs, archs, test_tools_recipe.supported(cuda) if cuda else ())


def plan(params: t.Mapping[str, t.Any], tools: t.Sequence[Tool], host: BuildHost) -> list[ToolsPlan]:
    """Plan every tool; raises one ToolError that names all that is missing."""
    plans: list[ToolsPlan] = []
    refused: dict[str, list[str]] = {}
    for tool in tools:
        chosen, reasons = _choose(params, tool, host)
        if chosen:
            plans.append(chosen)
        elif tool.required:
            for reason in reasons:
                refused.setdefault(reason, []).append(tool.name)
        else:
            plans.append(ToolsPlan(tool, why="; ".join(reasons)))
    if refused:
        raise ToolError("nothing was changed. " + ". ".join(f"{', '.join(v)}: {k}" for k, v in refused.items()))
    return plans


def _choose(params: t.Mapping[str, t.Any], tool: Tool, host: BuildHost) -> tuple[ToolsPlan | None, list[str]]:
    reasons: list[str] = []
    for origin in params["origins"]:
        if origin == "image":
            directory = carried(tool, params["image_dirs"], lambda program: _fits(tool, program))
            if directory:
                return ToolsPlan(tool, origin, directory, why="; ".join(reasons) or "the image carries it"), []
            places = ", ".join([*params["image_dirs"], *tool.places])
            reasons.append(f"the image carries no usable {tool.proof}{_kind(tool)} in {places}")
        elif tool.source:
            plan, problems = _from_source(params, tool, host)
            if plan:
                return plan, []
            reasons += problems
        else:
            reasons.append("it is never built")
    return None, reasons


def _kind(tool: Tool) -> str:
    return "" if tool.source != "nccl_tests" else " with MPI" if "mpi" in tool.needs else " without MPI"


def _fits(tool: Tool, program: str) -> bool:
    """Return whether a program has MPI as its tool needs; without it mpirun would measure N times one GPU."""
    return tool.source != "nccl_tests" or links_mpi(program) == ("mpi" in tool.needs)


def _identity(tool: Tool, params: t.Mapping[str, t.Any]) -> str:
    try:
        return identity(params["sources"].get(tool.source) or {})
    except SourceError as exc:
        raise ToolError(f"source of {tool.source}: {exc}") from exc


def _from_source(params: t.Mapping[str, t.Any], tool: Tool, host: BuildHost) -> tuple[ToolsPlan | None, list[str]]:
    inputs = test_tools_recipe.inputs(tool, _identity(tool, params), host.architectures, host.needs)
    directory = built(params["prefix"], inputs)
    if directory:
        unknown = ", ".join(name for name, value in inputs.items() if value is None)
        reason = f"built before; this host does not tell its {unknown}" if unknown else "built before"
        return ToolsPlan(tool, "source", directory, inputs=inputs, why=reason), []
    coming = {name.split("=")[0]: name for name in params["packages"]}
    absent = [requirement for name, requirement in host.needs.items() if name in tool.needs and not requirement.home]
    packages = {need: next((coming[name] for name in need.packages if name in coming), "") for need in absent}
    problems = [_missing(need) for need, package in packages.items() if not package] + _unsuitable(host)
    if problems:
        return None, problems
    reason = "not built for this source, toolkit and these architectures before"
    return ToolsPlan(
        tool, "source", folder(params["prefix"], inputs), True, inputs, list(packages.values()), reason
    ), []


def _missing(need: test_tools_recipe.Need) -> str:
    return f"{need.title} is missing, looked in {need.looked} (package {' or '.join(need.packages)})"


def _unsuitable(host: BuildHost) -> list[str]:
    if not host.architectures:
        return ["no GPU here tells its compute capability, and no architectures are given"]
    # nvcc lists 90 and compiles for 90a and 90f as well.
    unknown = [
        architecture
        for architecture in host.architectures
        if host.supported and architecture.rstrip("af") not in host.supported
    ]
    if not unknown:
        return []
    supported = ", ".join(sorted(host.supported, key=int))
    cuda = host.needs["cuda"]
    return [f"CUDA {cuda.version} in {cuda.home} does not compile for {', '.join(unknown)} (it does for {supported})"]


# The module without Ansible: build what is planned, prove it, then use it.


Json = t.Dict[str, t.Any]

_ALL = list(test_tools_recipe.TOOLS)
SPEC: dict[str, dict[str, t.Any]] = {
    "prefix": {"type": "path", "default": "/opt/gpu_test_tools"},
    "tools": {"type": "list", "elements": "str", "choices": _ALL, "default": _ALL},
    "origins": {"type": "list", "elements": "str", "choices": ["source", "image"], "default": ["source", "image"]},
    "sources": {"type": "dict", "default": {}},
    "archives": {"type": "dict", "default": {}},
    "architectures": {"type": "list", "elements": "str", "default": []},
    "cuda_home": {"type": "path"},
    "nccl_home": {"type": "path"},
    "mpi_home": {"type": "path"},
    "image_dirs": {"type": "list", "elements": "path", "default": []},
    "packages": {"type": "list", "elements": "str", "default": []},
    "build_dir": {"type": "path", "default": "/var/tmp"},  # noqa: S108 - a private directory is made in it
    "environment": {"type": "dict", "default": {}},
    "jobs": {"type": "int"},
    "timeout": {"type": "float", "default": 3600},
}


class TestToolsBuilder:
    """One run of the module over all tools; in check mode it only reports the plan."""

    def __init__(self, params: t.Mapping[str, t.Any], check: bool) -> None:
        self.check = check
        refuse_others(params["prefix"])
        self.params = {**params, "packages": params["packages"] if check else []}
        self.tools = [test_tools_recipe.TOOLS[name] for name in dict.fromkeys(params["tools"])]
        self.variables = _launch.environment(params["environment"])
        self.host = read_host(self.params, self.tools)
        self.plans = plan(self.params, self.tools, self.host)
        self.warnings: list[str] = []

    def perform(self) -> Json:
        """Carry out the plans and return the module's result."""
        before = {tool.name: current(self.params["prefix"], tool.name) for tool in self.tools}
        results = [self._tool(plan) for plan in self.plans]
        builds = [plan for plan in self.plans if plan.build]
        return {
            "changed": any(result.pop("changed") for result in results),
            "tools": results,
            "report": [_line(plan, result) for plan, result in zip(self.plans, results)],
            "sources": sorted({plan.tool.source for plan in builds}),
            "packages": sorted({name for plan in builds for name in plan.packages}),
            "diff": {"before": before, "after": {plan.tool.name: plan.directory for plan in self.plans}},
            "warnings": self.warnings,
        }

    def _tool(self, plan: ToolsPlan) -> Json:
        prefix, seconds, proved = self.params["prefix"], None, None
        if plan.build and not self.check:
            seconds, proved = self._build(plan)
        expected_links = links(prefix, plan.tool, plan.directory) if plan.directory else {}
        wrong, gone = wrong_links(expected_links), stale(prefix, plan.tool, expected_links)
        if (wrong or gone) and not self.check:
            proved = proved or (self._prove(plan, plan.directory) if plan.directory else None)
            set_links(wrong, gone)
        return {
            "name": plan.tool.name,
            "origin": plan.origin or None,
            "directory": plan.directory or None,
            "seconds": seconds,
            "proof": proved and proved._asdict(),
            "why": plan.why,
            "changed": bool(plan.build or wrong or gone),
        }

    def _build(self, plan: ToolsPlan) -> tuple[float, Proof]:
        archive = self.params["archives"].get(plan.tool.source)
        if not archive:
            raise test_tools_recipe.ToolError(
                f"{plan.tool.name} is to be built, but archives has no {plan.tool.source}"
            )
        needs, archs = self.host.needs, self.host.architectures
        jobs = self.params["jobs"] or len(os.sched_getaffinity(0))
        scratch = tempfile.mkdtemp(prefix="gpu_test_tools-", dir=self.params["build_dir"])
        try:
            source = unpack(archive, plan.inputs["source"], Path(scratch, "source"))
            build = f"{scratch}/build"
            if "nccl" in plan.tool.needs and not needs["nccl"].linked:
                name(f"{needs['nccl'].library}/libnccl.so.2", test_tools_recipe.names(build), "libnccl.so")
            commands = test_tools_recipe.steps(plan.tool, archs, needs, source, build, jobs)
            seconds = round(run_steps(commands, self.variables, self.params["timeout"]), 1)
            return seconds, self._install(plan, build, seconds)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _install(self, plan: ToolsPlan, build: str, seconds: float) -> Proof:
        staged = stage(plan.tool, build, plan.directory)
        try:
            proved = self._prove(plan, staged)
            content = {"inputs": plan.inputs, "seconds": seconds, "proof": proved._asdict()}
            keep(staged, plan.directory, content)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return proved

    def _prove(self, plan: ToolsPlan, directory: str) -> Proof:
        start: list[str] = []
        variables = self.variables
        if "mpi" in plan.tool.needs:
            start, more = launcher(self.params["mpi_home"] or "")
            variables = {**more, **variables}
        stubs = self.host.needs["stubs"].library if "stubs" in self.host.needs else ""
        proved = prove(plan.tool, directory, ProofHost(test_tools_recipe.has_gpu(), variables, stubs), start)
        if proved.state == "failed":
            self.warnings.append(f"{plan.tool.name} is built and loads, but measured nothing here: {proved.summary}")
        return proved


def _line(plan: ToolsPlan, result: Json) -> str:
    """Return one line with a tool's origin, directory, reason and proof."""
    if not plan.origin:
        return f"{plan.tool.name}: none ({plan.why})"
    proved = result["proof"]
    proof_text = f"; proof: {proved['state']}, {proved['summary']}" if proved else ""
    return f"{plan.tool.name}: from the {plan.origin}, {plan.directory} ({plan.why}{proof_text})"
