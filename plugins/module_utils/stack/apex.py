# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module apex_wheel without Ansible: look for the wheel, check the host, build, prove, keep. Private."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import trouble
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import identity, unpack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._source import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import (
    apex_checks,
    apex_facts,
    apex_probe,
    apex_proof,
    apex_recipe,
    apex_release,
    apex_store,
    apex_tools,
    apex_verdict,
    python_env_python,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_release import ApexError

Json = t.Dict[str, t.Any]

_WHERE = ["local", "slurm"]
SPEC: dict[str, dict[str, t.Any]] = {
    "directory": {"type": "path", "required": True},
    "python": {"type": "path", "required": True},
    "source": {"type": "dict", "required": True},
    "extensions": {"type": "list", "elements": "str", "default": ["cpp_ext", "cuda_ext"]},
    "architectures": {"type": "list", "elements": "str", "default": []},
    "submodules": {"type": "dict", "default": {}},
    "archive": {"type": "path"},
    "submodule_archives": {"type": "dict", "default": {}},
    "tools": {"type": "path"},
    "cuda_home": {"type": "path"},
    "compiler": {"type": "path"},
    "allow_cuda_mismatch": {"type": "bool", "default": False},
    "build_through": {"type": "str", "choices": _WHERE, "default": "local"},
    "prove_through": {"type": "str", "choices": _WHERE},
    "srun_options": {"type": "dict", "default": {}},
    "build_dir": {"type": "path"},
    "disk": {"type": "int", "default": 2048},
    "memory_per_job": {"type": "int", "default": 4096},
    "jobs": {"type": "int"},
    "environment": {"type": "dict", "default": {}},
    "timeout": {"type": "float", "default": 7200},
}


class Worker:
    """One run of the module; in check mode it tells whether a wheel would be built, and what for."""

    def __init__(self, params: t.Mapping[str, t.Any], check: bool) -> None:
        shared = params["directory"] if params["build_through"] == "slurm" else "/var/tmp"  # noqa: S108 - mkdtemp
        # What the link to an environment points to may change while a wheel is built.
        python = str(Path(params["python"]).parent.resolve() / Path(params["python"]).name)
        self.params = {**params, "build_dir": params["build_dir"] or shared, "python": python}
        self.check = check
        if not params["extensions"]:
            raise ApexError("extensions is empty: that would build Python only, no faster than PyTorch itself")
        self.start = self._prefix(params["build_through"])
        self.prove = self._prefix(params["prove_through"] or params["build_through"])

    def _prefix(self, through: str) -> list[str]:
        return apex_recipe.prefix(through, self.params["srun_options"], "apex")

    def run(self) -> Json:
        """Look for the wheel and build it when there is none; return the module's result."""
        facts = self._probe([], bool(self.start))
        found = self._find(facts)
        if found:
            return self._result(facts, found, False)
        if self.start and not self.check:
            facts = self._probe(self.start, False)
        self._refuse(facts)
        if self.check:
            return self._result(facts, {}, True)
        apex_store.prepare(self.params["directory"])
        with lock(Path(self.params["directory"], apex_store.LOCK)):
            found = self._find(facts)  # another run may have made it meanwhile
            return self._result(facts, found or self._make(facts), not found)

    def _find(self, facts: Json) -> Json:
        return apex_store.find(self.params["directory"], apex_recipe.inputs(self.params, facts))

    def _probe(self, start: t.Sequence[str], torch_only: bool) -> Json:
        request = {key: self.params[key] or "" for key in ("cuda_home", "compiler", "build_dir")}
        request["architectures"] = ";".join(apex_facts.architectures(self.params["architectures"]))
        python = self.params["python"]
        argv = [*start, python, "-", json.dumps({**request, "torch_only": torch_only})]
        said = run(argv, self.params["timeout"], text_of(apex_probe), {"PYTHONNOUSERSITE": "1"})
        return apex_facts.parse(said.out, python, said.problem)

    def _refuse(self, facts: Json) -> None:
        wish = apex_checks.Wish(
            self.params["python"],
            any(name != "cpp_ext" for name in self.params["extensions"]),
            apex_facts.architectures(self.params["architectures"]),
            self.params["allow_cuda_mismatch"],
            self.check or bool(self.params["tools"]),
            self.params["disk"],
            self.params["build_dir"],
        )
        found = apex_checks.problems(facts, wish)
        if found:
            raise ApexError(f"nothing was changed. {'. '.join(found)}")

    def _make(self, facts: Json) -> Json:
        """Build in a directory of its own; one that a killed run left is removed first, for only we have the lock."""
        place = self.params["build_dir"]
        tag = hashlib.sha256(self.params["directory"].encode()).hexdigest()[:8]
        for left in Path(place).glob(f"apex-build-{tag}-*"):
            shutil.rmtree(left, ignore_errors=True)
        scratch = tempfile.mkdtemp(prefix=f"apex-build-{tag}-", dir=place)
        try:
            build, edited = self._unpack(facts, scratch)
            variables = apex_recipe.variables(build)
            said = run(apex_recipe.command(build, self.start), self.params["timeout"], environment=variables)
            if said.rc != 0:
                raise ApexError(f"pip wheel failed on {facts['host']}: {trouble(said)}")
            made = {"seconds": round(said.seconds, 1), "edited": edited, "jobs": variables["MAX_JOBS"]}
            return self._keep(build, made)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _unpack(self, facts: Json, scratch: str) -> tuple[apex_recipe.Build, str]:
        if not self.params["archive"]:
            raise ApexError("a wheel is to be built, but archive, the file with Apex's source, is not given")
        source = unpack(self.params["archive"], identity(self.params["source"]), Path(scratch, "source"))
        setup = Path(source, "setup.py")
        release = apex_release.read(setup.read_text())
        extensions = apex_release.choose(release, self.params["extensions"])
        missing = apex_recipe.missing_sources(extensions, self.params["submodules"])
        if missing:
            raise ApexError(missing)
        self._submodules(source, scratch)
        text, edited = apex_recipe.edit(setup.read_text(), release, extensions, self.params["allow_cuda_mismatch"])
        setup.write_text(text)
        Path(scratch, "temporary").mkdir()
        pip = apex_tools.provide(apex_facts.missing_tools(facts), self.params["tools"], Path(scratch, "tools"))
        version = apex_tools.pip_version(pip, facts)
        path = os.environ.get("PATH", os.defpath)
        return apex_recipe.Build(self.params, facts, release, extensions, scratch, source, version, path), edited

    def _submodules(self, source: str, scratch: str) -> None:
        for number, (path, pinned) in enumerate(sorted(self.params["submodules"].items())):
            archive = self.params["submodule_archives"].get(path)
            if not archive or Path(path).is_absolute() or ".." in Path(path).parts:
                raise ApexError(f"submodule {path} needs a path inside the source and its file in submodule_archives")
            made = unpack(archive, identity(pinned), Path(scratch, f"submodule{number}"))
            shutil.rmtree(Path(source, path), ignore_errors=True)  # an archive of git holds an empty directory there
            shutil.move(made, str(Path(source, path)))

    def _keep(self, build: apex_recipe.Build, made: Json) -> Json:
        staged = apex_store.stage(self.params["directory"], f"{build.scratch}/wheels")
        try:
            request = {
                "modules": [name for one in build.extensions for name in one.modules],
                "maybe": [name for one in build.extensions for name in one.maybe],
            }
            variables = {"PYTHONPATH": str(staged / "content"), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            argv = [*self.prove, self.params["python"], "-", json.dumps(request)]
            said = run(argv, self.params["timeout"], text_of(apex_proof), variables)
            proof = apex_verdict.judge(said.out, said.problem, build.extensions)
            inputs = apex_recipe.inputs(self.params, build.facts)
            content = {"inputs": inputs, "proof": proof, "host": build.facts["host"], **made}
            return apex_store.keep(staged, apex_store.folder(self.params["directory"], inputs), content)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _result(self, facts: Json, found: Json, changed: bool) -> Json:
        keys = ("path", "sha256", "seconds", "proof", "inputs", "edited")
        told = {key: found.get(key) for key in keys}
        sources = ["apex", *sorted(self.params["submodules"])] if changed else []
        tools = apex_facts.missing_tools(facts) if changed else []
        result = {"changed": changed, "wheel": told if found else None, "sources": sources, "tools": tools}
        interpreter = python_env_python.ask(self.params["python"]) if tools else None
        return {**result, "interpreter": interpreter and interpreter._asdict()}
