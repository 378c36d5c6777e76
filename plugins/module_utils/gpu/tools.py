# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_test_tools without Ansible: build what is planned, prove it, then use it. Private."""

from __future__ import annotations

import os
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import run_steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import unpack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_host as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_plan as planning
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_proof as proof
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_recipe as recipe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools_store as store

Json = t.Dict[str, t.Any]

_ALL = list(recipe.TOOLS)
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


class Worker:
    """One run of the module over all tools; in check mode it only tells what it would do."""

    def __init__(self, params: t.Mapping[str, t.Any], check: bool) -> None:
        self.check = check
        self.params = {**params, "packages": params["packages"] if check else []}
        self.tools = [recipe.TOOLS[name] for name in dict.fromkeys(params["tools"])]
        self.variables = _launch.environment(params["environment"])
        self.found = planning.look(self.params, self.tools)
        self.plans = planning.decide(self.params, self.tools, self.found)
        self.warnings: list[str] = []

    def run(self) -> Json:
        """Do what is planned; return the module's result."""
        before = {tool.name: store.current(self.params["prefix"], tool.name) for tool in self.tools}
        done = [self._tool(plan) for plan in self.plans]
        builds = [plan for plan in self.plans if plan.build]
        return {
            "changed": any(result.pop("changed") for result in done),
            "tools": done,
            "report": [_line(plan, result) for plan, result in zip(self.plans, done)],
            "sources": sorted({plan.tool.source for plan in builds}),
            "packages": sorted({name for plan in builds for name in plan.packages}),
            "diff": {"before": before, "after": {plan.tool.name: plan.directory for plan in self.plans}},
        }

    def _tool(self, plan: planning.Plan) -> Json:
        prefix, seconds, proved = self.params["prefix"], None, None
        if plan.build and not self.check:
            seconds, proved = self._build(plan)
        wanted = store.links(prefix, plan.tool, plan.directory) if plan.directory else {}
        wrong, gone = store.wrong(wanted), store.stale(prefix, plan.tool, wanted)
        if (wrong or gone) and not self.check:
            proved = proved or (self._prove(plan, plan.directory) if plan.directory else None)
            store.point(wrong, gone)
        return {
            "name": plan.tool.name,
            "origin": plan.origin or None,
            "directory": plan.directory or None,
            "seconds": seconds,
            "proof": proved and proved._asdict(),
            "why": plan.why,
            "changed": bool(plan.build or wrong or gone),
        }

    def _build(self, plan: planning.Plan) -> tuple[float, proof.Proof]:
        archive = self.params["archives"].get(plan.tool.source)
        if not archive:
            raise recipe.ToolError(f"{plan.tool.name} is to be built, but archives has no {plan.tool.source}")
        needs, archs = self.found.needs, self.found.architectures
        jobs = self.params["jobs"] or len(os.sched_getaffinity(0))
        scratch = tempfile.mkdtemp(prefix="gpu_test_tools-", dir=self.params["build_dir"])
        try:
            source = unpack(archive, plan.inputs["source"], Path(scratch, "source"))
            made = f"{scratch}/build"
            if "nccl" in plan.tool.needs and not needs["nccl"].linked:
                store.name(f"{needs['nccl'].library}/libnccl.so.2", recipe.names(made), "libnccl.so")
            commands = recipe.steps(plan.tool, archs, needs, source, made, jobs)
            seconds = round(run_steps(commands, self.variables, self.params["timeout"]), 1)
            return seconds, self._install(plan, made, seconds)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _install(self, plan: planning.Plan, made: str, seconds: float) -> proof.Proof:
        staged = store.stage(plan.tool, made, plan.directory)
        try:
            proved = self._prove(plan, staged)
            content = {"inputs": plan.inputs, "seconds": seconds, "proof": proved._asdict()}
            store.keep(staged, plan.directory, content)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return proved

    def _prove(self, plan: planning.Plan, directory: str) -> proof.Proof:
        start: list[str] = []
        variables = self.variables
        if "mpi" in plan.tool.needs:
            start, more = proof.launcher(self.params["mpi_home"] or "")
            variables = {**more, **variables}
        stubs = self.found.needs["stubs"].library if "stubs" in self.found.needs else ""
        proved = proof.prove(plan.tool, directory, proof.Place(host.has_gpu(), variables, stubs), start)
        if proved.state == "failed":
            self.warnings.append(f"{plan.tool.name} is built and loads, but measured nothing here: {proved.said}")
        return proved


def _line(plan: planning.Plan, result: Json) -> str:
    """Say in one line what a tool is and why."""
    if not plan.origin:
        return f"{plan.tool.name}: none ({plan.why})"
    proved = result["proof"]
    said = f"; proof: {proved['state']}, {proved['said']}" if proved else ""
    return f"{plan.tool.name}: from the {plan.origin}, {plan.directory} ({plan.why}{said})"
