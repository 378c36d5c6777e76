# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide where each GPU test program comes from, and say what is missing before anything is changed. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import SourceError, identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_host as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_proof as proof
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_recipe as recipe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_store as store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.tools_recipe import Tool, ToolError


class Plan(t.NamedTuple):
    """What is done about one tool. ``origin`` is empty for an optional tool that is nowhere."""

    tool: Tool
    origin: str = ""
    directory: str = ""
    build: bool = False
    inputs: t.Mapping[str, t.Any] = {}
    packages: t.Sequence[str] = ()
    why: str = ""


class Host(t.NamedTuple):
    """What was found once for all tools."""

    needs: t.Mapping[str, host.Need]
    architectures: t.Sequence[str]
    supported: t.Collection[str]


def look(params: t.Mapping[str, t.Any], tools: t.Sequence[Tool]) -> Host:
    names = {name for tool in tools for name in tool.needs} if "source" in params["origins"] else set()
    needs = host.read(params, names)
    archs = recipe.architectures(params["architectures"] or host.gpus())
    cuda = needs["cuda"].home if "cuda" in needs else ""
    return Host(needs, archs, host.supported(cuda) if cuda else ())


def decide(params: t.Mapping[str, t.Any], tools: t.Sequence[Tool], found: Host) -> list[Plan]:
    """Plan every tool; raises one ToolError that names all that is missing."""
    plans: list[Plan] = []
    refused: dict[str, list[str]] = {}
    for tool in tools:
        chosen, reasons = _choose(params, tool, found)
        if chosen:
            plans.append(chosen)
        elif tool.required:
            for reason in reasons:
                refused.setdefault(reason, []).append(tool.name)
        else:
            plans.append(Plan(tool, why="; ".join(reasons)))
    if refused:
        raise ToolError("nothing was changed. " + ". ".join(f"{', '.join(v)}: {k}" for k, v in refused.items()))
    return plans


def _choose(params: t.Mapping[str, t.Any], tool: Tool, found: Host) -> tuple[Plan | None, list[str]]:
    reasons: list[str] = []
    for origin in params["origins"]:
        if origin == "image":
            directory = store.carried(tool, params["image_dirs"], lambda program: _fits(tool, program))
            if directory:
                return Plan(tool, origin, directory, why="; ".join(reasons) or "the image carries it"), []
            places = ", ".join([*params["image_dirs"], *tool.places])
            reasons.append(f"the image carries no usable {tool.proof}{_kind(tool)} in {places}")
        elif tool.source:
            plan, missing = _from_source(params, tool, found)
            if plan:
                return plan, []
            reasons += missing
        else:
            reasons.append("it is never built")
    return None, reasons


def _kind(tool: Tool) -> str:
    return "" if tool.source != "nccl_tests" else " with MPI" if "mpi" in tool.needs else " without MPI"


def _fits(tool: Tool, program: str) -> bool:
    """A build without MPI measures N times one GPU under mpirun, so the two are not mixed up."""
    return tool.source != "nccl_tests" or proof.links_mpi(program) == ("mpi" in tool.needs)


def _identity(tool: Tool, params: t.Mapping[str, t.Any]) -> str:
    try:
        return identity(params["sources"].get(tool.source) or {})
    except SourceError as exc:
        raise ToolError(f"source of {tool.source}: {exc}") from exc


def _from_source(params: t.Mapping[str, t.Any], tool: Tool, found: Host) -> tuple[Plan | None, list[str]]:
    wanted = recipe.inputs(tool, _identity(tool, params), found.architectures, found.needs)
    there = store.built(params["prefix"], wanted)
    if there:
        unknown = ", ".join(name for name, value in wanted.items() if value is None)
        why = f"built before; this host does not tell its {unknown}" if unknown else "built before"
        return Plan(tool, "source", there, inputs=wanted, why=why), []
    coming = {name.split("=")[0]: name for name in params["packages"]}
    absent = [need for name, need in found.needs.items() if name in tool.needs and not need.home]
    missing = [_missing(need) for need in absent if need.package not in coming] + _unsuitable(found)
    if missing:
        return None, missing
    why = "not built for this source, toolkit and these architectures before"
    packages = [coming[need.package] for need in absent]
    return Plan(tool, "source", store.folder(params["prefix"], wanted), True, wanted, packages, why), []


def _missing(need: host.Need) -> str:
    return f"{need.title} is missing, looked in {need.looked} (package {need.package})"


def _unsuitable(found: Host) -> list[str]:
    if not found.architectures:
        return ["no GPU here tells its compute capability, and no architectures are given"]
    # nvcc lists 90 and compiles for 90a and 90f as well.
    unknown = [one for one in found.architectures if found.supported and one.rstrip("af") not in found.supported]
    if not unknown:
        return []
    known = ", ".join(sorted(found.supported, key=int))
    cuda = found.needs["cuda"]
    return [f"CUDA {cuda.version} in {cuda.home} does not compile for {', '.join(unknown)} (it does for {known})"]
