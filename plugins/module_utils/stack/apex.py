# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module apex_wheel: tools, store, build, and the verdict on the wheel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _elf, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import (
    identity,
    sha256,
    text_of,
    trouble,
    unpack,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import TrustError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import (
    apex_probe,
    apex_proof,
    apex_recipe,
    installer,
    versions,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_proof import CHECKS, MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import (
    ApexError,
    Extension,
    digest,
    same,
)

# The store of wheels: ``<directory>/apex-<digest>`` holds one with its manifest.


Json = t.Dict[str, t.Any]
MANIFEST = "manifest.json"
LOCK = ".apex.lock"
_STAGED = ".apex-"


def folder(directory: str, inputs: t.Mapping[str, t.Any]) -> Path:
    return Path(directory, f"apex-{digest(inputs)}")


def find(directory: str, inputs: t.Mapping[str, t.Any]) -> Json:
    """Return the manifest of the requested wheel, with its path; empty when none is stored.

    What somebody else made does not count, and is refused in the place of the requested wheel.
    """
    trusted, target = _trusted.trusted_users(), folder(directory, inputs)
    try:
        _trusted.check(directory, trusted)
        if os.path.lexists(target) and (foreign := _trusted.distrust(str(target), trusted)):
            raise TrustError(foreign)
    except TrustError as exc:
        raise ApexError(f"wheels in {directory} are not used: {exc}") from exc
    for path in sorted(Path(directory).glob(f"apex-*/{MANIFEST}")):
        manifest = _manifest(path, trusted)
        wheel = path.parent / str(manifest.get("wheel"))
        if same(inputs, manifest.get("inputs", {})) and wheel.is_file() and not _trusted.distrust(str(wheel), trusted):
            return {**manifest, "path": str(wheel)}
    return {}


def _manifest(path: Path, trusted: t.AbstractSet[int]) -> Json:
    """Read a manifest; an incomplete one, as a full disk leaves it, reads as empty, as does somebody else's."""
    try:
        content = json.loads(_trusted.read(str(path), trusted))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def prepare(directory: str) -> None:
    try:
        _trusted.make(directory, _trusted.trusted_users())
        Path(directory, LOCK).touch()
    except TrustError as exc:
        raise ApexError(f"wheels cannot be kept in {directory}: {exc}") from exc
    except OSError as exc:
        raise ApexError(f"wheels cannot be kept in {directory}: {exc.strerror}") from exc


def stage(directory: str, made: str) -> Path:
    """Copy a wheel and its content to a temporary directory of the store; those of killed builds are removed."""
    for path in Path(directory).glob(f"{_STAGED}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
    wheels = sorted(Path(made).glob("*.whl"))
    if len(wheels) != 1:
        raise ApexError(f"the build ended well, but made {len(wheels)} wheels instead of one")
    staged = Path(tempfile.mkdtemp(prefix=_STAGED, dir=directory))
    staged.chmod(0o755)
    shutil.copy(wheels[0], staged / wheels[0].name)
    shutil.unpack_archive(str(wheels[0]), staged / "content", "zip")
    return staged


def keep(staged: Path, target: Path, content: t.Mapping[str, t.Any]) -> Json:
    """Move a proved wheel to the directory of its digest in one step, after all of it is on the disk."""
    shutil.rmtree(staged / "content")
    wheel = next(staged.glob("*.whl"))
    manifest = {**content, "wheel": wheel.name, "sha256": sha256(wheel)}
    (staged / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    for path in staged.iterdir():
        path.chmod(0o644)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    shutil.rmtree(target, ignore_errors=True)
    staged.rename(target)
    return {**manifest, "path": str(target / wheel.name)}


# Tools that an environment lacks, unpacked beside a build: an environment in use is not changed.


def provide(names: t.Sequence[str], wheels: str | None, into: Path) -> str:
    """Unpack the wheels of ``names``, programs into ``bin``; return pip's version when it is among them."""
    into.mkdir(parents=True)
    pip = ""
    for name in names:
        candidates = sorted(Path(wheels or "").glob(f"{name}-*.whl")) if wheels else []
        if len(candidates) != 1:
            raise ApexError(f"tools ({wheels}) must hold one wheel of {name}, not {len(candidates)}")
        _unpack(candidates[0], into)
        pip = candidates[0].name.split("-")[1] if name == "pip" else pip
    return pip


def _unpack(wheel: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as content:
            content.extractall(into)
    except (zipfile.BadZipFile, OSError) as exc:
        raise ApexError(f"{wheel} cannot be unpacked: {exc}") from exc
    for scripts in into.glob("*.data/scripts"):
        (into / "bin").mkdir(exist_ok=True)
        for script in scripts.iterdir():
            shutil.move(str(script), str(into / "bin" / script.name))
    for path in [*(into / "bin").glob("*"), *into.glob("ninja/data/bin/*")]:
        path.chmod(0o755)


def pip_version(unpacked: str, facts: t.Mapping[str, t.Any]) -> str:
    """Return the version of the pip that builds: an unpacked one comes first on the path."""
    version = unpacked or str(facts["tools"]["pip"])
    if not re.match(r"\d+\.\d+", version):
        raise ApexError(f"pip says that it is version {version!r}")
    return version


# The verdict on a build.


def judge(output: str, problem: str, extensions: t.Sequence[Extension]) -> Json:
    """Return ``state`` (computed, imported), ``summary``, ``gpu``, ``modules``, ``left_out``; raises on a bad build."""
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        raise ApexError(f"the wheel was built, but not proved: {problem or 'the proof said nothing'}")
    proof = json.loads(lines[-1])
    faults = [*_broken(proof), *_passed_over(proof, extensions), *_deviations(proof["computed"])]
    if faults:
        raise ApexError(f"the wheel was built, but is not kept, because its proof failed: {'; '.join(faults)}")
    ran = [name for name in proof["computed"] if CHECKS[name][1]]
    cuda = any(extension.cuda for extension in extensions)
    return {
        "state": "computed" if ran or not cuda else "imported",
        "summary": _summary(proof, cuda and not ran),
        "gpu": proof["gpu"],
        "modules": _modules(proof),
        "left_out": proof["absent"],
    }


def _modules(proof: Json) -> list[str]:
    return [name for name in proof["imported"] if name != "apex"]


def _broken(proof: Json) -> list[str]:
    return [f"{name} cannot be imported: {why}" for name, why in proof["failed"].items()]


def _passed_over(proof: Json, extensions: t.Sequence[Extension]) -> list[str]:
    """Return the requested extensions that the release left out with only a warning."""
    passed = {*proof["imported"], *proof["failed"]}
    return [
        f"{extension.name} was asked for, but setup.py left {', '.join(extension.maybe)} out, whose "
        "requirements are not met"
        for extension in extensions
        if not passed & {*extension.modules, *extension.maybe}
    ]


def _deviations(computed: t.Mapping[str, t.Any]) -> list[str]:
    faults = []
    for name, value in computed.items():
        if isinstance(value, str):
            faults.append(f"{name} cannot be run: {value}")
        elif not value <= 1:
            faults.append(f"{name} differs from PyTorch {value:.3g} times as much as is allowed")
    return faults


def _summary(proof: Json, idle: bool) -> str:
    results = [f"{name} off by {value:.2g} of what is allowed" for name, value in proof["computed"].items()]
    device = f"on {proof['gpu']}" if proof["gpu"] else "no GPU"
    why = "" if not idle else "none of them has a check" if proof["gpu"] else "no GPU"
    parts = [f"{', '.join(_modules(proof))} imported", *([f"not run: {why}"] if idle else []), *results]
    return f"{', '.join(parts)}{'' if idle else f' ({device})'}"


def device_code(content: Path, requested: t.Sequence[str]) -> dict[str, list[str]]:
    """Return what each compiled module of a wheel holds code for; raises where one would not run on a requested GPU.

    A host without a GPU cannot tell by running it, and some extensions choose architectures of their own.
    """
    held, faults = {}, []
    for path in sorted(content.rglob("*.so")):
        try:
            codes = _elf.architectures(path)
        except _elf.FatbinError as exc:
            raise ApexError(f"the wheel was built, but is not kept: {exc}") from exc
        module = path.name.split(".")[0]
        useless = [name for name in requested if codes and not apex_recipe.runs(apex_recipe.number(name), codes)]
        if useless:
            faults.append(f"{module} has code for {', '.join(codes)} alone, none that runs on {', '.join(useless)}")
        if codes:
            held[module] = codes
    if faults:
        raise ApexError(f"the wheel was built, but is not kept: {'; '.join(faults)}. Leave that extension out")
    return held


# The module apex_wheel: look for the wheel, check the host, build, prove, store.


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


class ApexBuilder:
    """One run of the module; in check mode it returns whether a wheel would be built."""

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

    def perform(self) -> Json:
        """Look for the wheel and build it when there is none; return the module's result."""
        facts = self._probe([], bool(self.start))
        manifest = self._find(facts)
        if manifest:
            return self._result(facts, manifest, False)
        if self.start and not self.check:
            facts = self._probe(self.start, False)
        self._refuse(facts)
        if self.check:
            return self._result(facts, {}, True)
        prepare(self.params["directory"])
        with lock(Path(self.params["directory"], LOCK)):
            manifest = self._find(facts)  # another run may have made it meanwhile
            return self._result(facts, manifest or self._make(facts), not manifest)

    def _find(self, facts: Json) -> Json:
        return find(self.params["directory"], apex_recipe.inputs(self.params, facts))

    def _probe(self, start: t.Sequence[str], torch_only: bool) -> Json:
        request = {key: self.params[key] or "" for key in ("cuda_home", "compiler", "build_dir")}
        request["architectures"] = ";".join(apex_recipe.architectures(self.params["architectures"]))
        python = self.params["python"]
        argv = [*start, python, "-", json.dumps({**request, "torch_only": torch_only})]
        outcome = run(argv, self.params["timeout"], text_of(apex_probe), {"PYTHONNOUSERSITE": "1"})
        return apex_recipe.parse(outcome.out, python, outcome.problem)

    def _refuse(self, facts: Json) -> None:
        request = apex_recipe.ApexRequest(
            self.params["python"],
            any(name != "cpp_ext" for name in self.params["extensions"]),
            apex_recipe.architectures(self.params["architectures"]),
            self.params["allow_cuda_mismatch"],
            self.check or bool(self.params["tools"]),
            self.params["disk"],
            self.params["build_dir"],
        )
        commit = str(self.params["source"].get("commit") or "")
        built_with = (str(facts.get("torch") or ""), str(facts.get("cuda") or ""))
        problems = [
            *apex_recipe.problems(facts, request),
            *versions.apex_misfits(commit, self.params["extensions"], *built_with),
        ]
        if problems:
            raise ApexError(f"nothing was changed. {'. '.join(problems)}")

    def _make(self, facts: Json) -> Json:
        """Build in a temporary directory; those of killed runs are removed first, which the lock makes safe."""
        build_dir = self.params["build_dir"]
        tag = hashlib.sha256(self.params["directory"].encode()).hexdigest()[:8]
        for leftover in Path(build_dir).glob(f"apex-build-{tag}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        scratch = tempfile.mkdtemp(prefix=f"apex-build-{tag}-", dir=build_dir)
        try:
            build, edited = self._unpack(facts, scratch)
            variables = apex_recipe.variables(build)
            outcome = run(apex_recipe.command(build, self.start), self.params["timeout"], environment=variables)
            if outcome.rc != 0:
                raise ApexError(f"pip wheel failed on {facts['host']}: {trouble(outcome)}")
            at_once = int(variables[apex_recipe.PARALLEL]) * int(variables["MAX_JOBS"])
            made = {"seconds": round(outcome.seconds, 1), "edited": edited, "jobs": at_once}
            return self._keep(build, made)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _unpack(self, facts: Json, scratch: str) -> tuple[apex_recipe.ApexBuild, str]:
        if not self.params["archive"]:
            raise ApexError("a wheel is to be built, but archive, the file with Apex's source, is not given")
        source = unpack(self.params["archive"], identity(self.params["source"]), Path(scratch, "source"))
        setup = Path(source, "setup.py")
        release = apex_recipe.read(setup.read_text())
        extensions = apex_recipe.choose(release, self.params["extensions"])
        missing = apex_recipe.missing_sources(extensions, self.params["submodules"])
        if missing:
            raise ApexError(missing)
        self._submodules(source, scratch)
        text, edited = apex_recipe.edit(setup.read_text(), release, extensions, self.params["allow_cuda_mismatch"])
        setup.write_text(text)
        Path(scratch, "temporary").mkdir()
        pip = provide(apex_recipe.missing_tools(facts), self.params["tools"], Path(scratch, "tools"))
        version = pip_version(pip, facts)
        path = os.environ.get("PATH", os.defpath)
        return apex_recipe.ApexBuild(self.params, facts, release, extensions, scratch, source, version, path), edited

    def _submodules(self, source: str, scratch: str) -> None:
        for number, (path, pinned) in enumerate(sorted(self.params["submodules"].items())):
            archive = self.params["submodule_archives"].get(path)
            if not archive or Path(path).is_absolute() or ".." in Path(path).parts:
                raise ApexError(f"submodule {path} needs a path inside the source and its file in submodule_archives")
            unpacked = unpack(archive, identity(pinned), Path(scratch, f"submodule{number}"))
            shutil.rmtree(Path(source, path), ignore_errors=True)  # an archive of git holds an empty directory there
            shutil.move(unpacked, str(Path(source, path)))

    def _keep(self, build: apex_recipe.ApexBuild, made: Json) -> Json:
        staged = stage(self.params["directory"], f"{build.scratch}/wheels")
        try:
            request = {
                "modules": [name for extension in build.extensions for name in extension.modules],
                "maybe": [name for extension in build.extensions for name in extension.maybe],
            }
            variables = {"PYTHONPATH": str(staged / "content"), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            argv = [*self.prove, self.params["python"], "-", json.dumps(request)]
            outcome = run(argv, self.params["timeout"], text_of(apex_proof), variables)
            proof = judge(outcome.out, outcome.problem, build.extensions)
            proof["code"] = device_code(staged / "content", apex_recipe.architectures(self.params["architectures"]))
            inputs = apex_recipe.inputs(self.params, build.facts)
            content = {"inputs": inputs, "proof": proof, "host": build.facts["host"], **made}
            return keep(staged, folder(self.params["directory"], inputs), content)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _result(self, facts: Json, manifest: Json, changed: bool) -> Json:
        keys = ("path", "sha256", "seconds", "proof", "inputs", "edited")
        wheel = {key: manifest.get(key) for key in keys}
        sources = ["apex", *sorted(self.params["submodules"])] if changed else []
        tools = apex_recipe.missing_tools(facts) if changed else []
        result = {"changed": changed, "wheel": wheel if manifest else None, "sources": sources, "tools": tools}
        interpreter = installer.ask(self.params["python"]) if tools else None
        return {**result, "interpreter": interpreter and interpreter._asdict()}
