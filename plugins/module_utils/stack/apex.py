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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import (
    identity,
    sha256,
    text_of,
    trouble,
    unpack,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import (
    apex_probe,
    apex_proof,
    apex_recipe,
    installer,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_proof import CHECKS, MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import (
    ApexError,
    Extension,
    digest,
    same,
)

# Where wheels of Apex are kept: ``<directory>/apex-<digest>`` holds one with its manifest.


Json = t.Dict[str, t.Any]
MANIFEST = "manifest.json"
LOCK = ".apex.lock"
_STAGED = ".apex-"


def folder(directory: str, wanted: t.Mapping[str, t.Any]) -> Path:
    return Path(directory, f"apex-{digest(wanted)}")


def find(directory: str, wanted: t.Mapping[str, t.Any]) -> Json:
    """Return the manifest of the wheel that is wanted, with its path; empty when there is none."""
    for path in sorted(Path(directory).glob(f"apex-*/{MANIFEST}")):
        found = _manifest(path)
        wheel = path.parent / str(found.get("wheel"))
        if same(wanted, found.get("inputs", {})) and wheel.is_file():
            return {**found, "path": str(wheel)}
    return {}


def _manifest(path: Path) -> Json:
    """Read a manifest; one that was cut short by a full disk is none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def prepare(directory: str) -> None:
    try:
        Path(directory).mkdir(mode=0o755, parents=True, exist_ok=True)
        Path(directory, LOCK).touch()
    except OSError as exc:
        raise ApexError(f"wheels cannot be kept in {directory}: {exc.strerror}") from exc


def stage(directory: str, made: str) -> Path:
    """Put a wheel and its content beside the place where it will be; what a build that was killed left there goes."""
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
    """Make a proved wheel the one that its digest names, in one step, with all of it on the disk before."""
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


# Tools that an environment lacks, unpacked beside a build: an environment in use is never changed.


def provide(names: t.Sequence[str], wheels: str | None, into: Path) -> str:
    """Unpack the wheels of ``names``; programs come into ``bin``. Return pip's version when it is among them."""
    into.mkdir(parents=True)
    pip = ""
    for name in names:
        found = sorted(Path(wheels or "").glob(f"{name}-*.whl")) if wheels else []
        if len(found) != 1:
            raise ApexError(f"tools ({wheels}) must hold one wheel of {name}, not {len(found)}")
        _unpack(found[0], into)
        pip = found[0].name.split("-")[1] if name == "pip" else pip
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
    """Return the version of the pip that builds: what is unpacked comes first on the path."""
    version = unpacked or str(facts["tools"]["pip"])
    if not re.match(r"\d+\.\d+", version):
        raise ApexError(f"pip says that it is version {version!r}")
    return version


# What the proof of a build of Apex says: no I/O, no AnsibleModule, private.


def judge(output: str, problem: str, extensions: t.Sequence[Extension]) -> Json:
    """Return ``state`` (computed, imported), ``said``, ``gpu``, ``modules`` and ``left_out``; raises on a bad build."""
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        raise ApexError(f"the wheel was built, but not proved: {problem or 'the proof said nothing'}")
    found = json.loads(lines[-1])
    wrong = [*_broken(found), *_nothing(found, extensions), *_off(found["computed"])]
    if wrong:
        raise ApexError(f"the wheel was built, but is not kept, because its proof failed: {'; '.join(wrong)}")
    ran = [name for name in found["computed"] if CHECKS[name][1]]
    cuda = any(one.cuda for one in extensions)
    return {
        "state": "computed" if ran or not cuda else "imported",
        "said": _said(found, cuda and not ran),
        "gpu": found["gpu"],
        "modules": _modules(found),
        "left_out": found["absent"],
    }


def _modules(found: Json) -> list[str]:
    return [name for name in found["imported"] if name != "apex"]


def _broken(found: Json) -> list[str]:
    return [f"{name} cannot be imported: {why}" for name, why in found["failed"].items()]


def _nothing(found: Json, extensions: t.Sequence[Extension]) -> list[str]:
    """Name extensions that the release passed over with a warning only."""
    passed = {*found["imported"], *found["failed"]}
    return [
        f"{one.name} was asked for, but setup.py left {', '.join(one.maybe)} out, whose requirements are not met"
        for one in extensions
        if not passed & {*one.modules, *one.maybe}
    ]


def _off(computed: t.Mapping[str, t.Any]) -> list[str]:
    found = []
    for name, value in computed.items():
        if isinstance(value, str):
            found.append(f"{name} cannot be run: {value}")
        elif not value <= 1:
            found.append(f"{name} differs from PyTorch {value:.3g} times as much as is allowed")
    return found


def _said(found: Json, idle: bool) -> str:
    results = [f"{name} off by {value:.2g} of what is allowed" for name, value in found["computed"].items()]
    place = f"on {found['gpu']}" if found["gpu"] else "no GPU"
    why = "" if not idle else "none of them has a check" if found["gpu"] else "no GPU"
    told = [f"{', '.join(_modules(found))} imported", *([f"not run: {why}"] if idle else []), *results]
    return f"{', '.join(told)}{'' if idle else f' ({place})'}"


# The module apex_wheel without Ansible: look for the wheel, check the host, build, prove, keep.


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
        prepare(self.params["directory"])
        with lock(Path(self.params["directory"], LOCK)):
            found = self._find(facts)  # another run may have made it meanwhile
            return self._result(facts, found or self._make(facts), not found)

    def _find(self, facts: Json) -> Json:
        return find(self.params["directory"], apex_recipe.inputs(self.params, facts))

    def _probe(self, start: t.Sequence[str], torch_only: bool) -> Json:
        request = {key: self.params[key] or "" for key in ("cuda_home", "compiler", "build_dir")}
        request["architectures"] = ";".join(apex_recipe.architectures(self.params["architectures"]))
        python = self.params["python"]
        argv = [*start, python, "-", json.dumps({**request, "torch_only": torch_only})]
        said = run(argv, self.params["timeout"], text_of(apex_probe), {"PYTHONNOUSERSITE": "1"})
        return apex_recipe.parse(said.out, python, said.problem)

    def _refuse(self, facts: Json) -> None:
        wish = apex_recipe.ApexRequest(
            self.params["python"],
            any(name != "cpp_ext" for name in self.params["extensions"]),
            apex_recipe.architectures(self.params["architectures"]),
            self.params["allow_cuda_mismatch"],
            self.check or bool(self.params["tools"]),
            self.params["disk"],
            self.params["build_dir"],
        )
        found = apex_recipe.problems(facts, wish)
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
            made = unpack(archive, identity(pinned), Path(scratch, f"submodule{number}"))
            shutil.rmtree(Path(source, path), ignore_errors=True)  # an archive of git holds an empty directory there
            shutil.move(made, str(Path(source, path)))

    def _keep(self, build: apex_recipe.ApexBuild, made: Json) -> Json:
        staged = stage(self.params["directory"], f"{build.scratch}/wheels")
        try:
            request = {
                "modules": [name for one in build.extensions for name in one.modules],
                "maybe": [name for one in build.extensions for name in one.maybe],
            }
            variables = {"PYTHONPATH": str(staged / "content"), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            argv = [*self.prove, self.params["python"], "-", json.dumps(request)]
            said = run(argv, self.params["timeout"], text_of(apex_proof), variables)
            proof = judge(said.out, said.problem, build.extensions)
            inputs = apex_recipe.inputs(self.params, build.facts)
            content = {"inputs": inputs, "proof": proof, "host": build.facts["host"], **made}
            return keep(staged, folder(self.params["directory"], inputs), content)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _result(self, facts: Json, found: Json, changed: bool) -> Json:
        keys = ("path", "sha256", "seconds", "proof", "inputs", "edited")
        told = {key: found.get(key) for key in keys}
        sources = ["apex", *sorted(self.params["submodules"])] if changed else []
        tools = apex_recipe.missing_tools(facts) if changed else []
        result = {"changed": changed, "wheel": told if found else None, "sources": sources, "tools": tools}
        interpreter = installer.ask(self.params["python"]) if tools else None
        return {**result, "interpreter": interpreter and interpreter._asdict()}
