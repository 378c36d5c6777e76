# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Extra wheels of the training stack: their lock, and building one from a pinned source."""

from __future__ import annotations

import contextlib
import email.parser
import hashlib
import json
import os
import re
import shutil
import tempfile
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _process, _sources, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildError, BuildStep, run_steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import TrustError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex import provide
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.lock_files import normal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import version_for

# Wheels of pinned sources, built for one environment and stored by a digest of what decides their content.


Json = t.Dict[str, t.Any]
_FACTS = (
    "import gc, json, os, sys, sysconfig; import torch; gc.freeze(); print(json.dumps({"
    "'prefix': os.path.realpath(sys.prefix), 'soabi': sysconfig.get_config_var('SOABI'), 'torch': torch.__version__}))"
)
# build_editable needs no pip, and pip would want to change the environment.
_EDITABLE = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"


class ExtrasError(ValueError):
    """A package cannot be built or resolved; the text is fit for the user."""


class ExtraRequest(t.NamedTuple):
    """The requested build; `tools` are the projects that it imports."""

    directory: Path
    python: str
    name: str
    version: str
    source: t.Mapping[str, t.Any]
    tools: t.Sequence[str]
    options: t.Sequence[str] = ()
    editable: bool = False
    environment: t.Mapping[str, str] = {}


def wheel_dir(request: ExtraRequest, facts: Json) -> Path:
    """Return the directory of the wheel: another source, environment, option or tool gives another one."""
    try:
        pinned = _sources.identity(request.source)
    except _sources.SourceError as exc:
        raise ExtrasError(f"source of {request.name}: {exc}") from exc
    decided = {
        **request._asdict(),
        "directory": None,
        "python": facts,
        "source": pinned,
        "environment": dict(request.environment),
    }
    text = json.dumps(decided, sort_keys=True, default=list)
    return request.directory / f"{normal(request.name)}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def facts_of(python: str) -> Json:
    """Return prefix, ABI and torch version of an environment; one without torch is refused."""
    outcome = _process.run([python, "-I", "-c", _FACTS], 120)
    try:
        return (
            t.cast(Json, json.loads(outcome.out.splitlines()[-1])) if outcome.rc == 0 else _no(python, outcome.problem)
        )
    except (ValueError, IndexError) as exc:
        raise ExtrasError(f"{python} does not say what it is: {outcome.problem or exc}") from exc


def _no(python: str, reason: str) -> Json:
    raise ExtrasError(f"{python} is no environment with torch: {reason}")


def stored_manifest(folder: Path) -> Json | None:
    """Return the manifest of the wheel in a directory, None without a wheel; refuses what somebody else put there."""
    trusted = _trusted.trusted_users()
    try:
        _trusted.check(str(folder.parent), trusted)
        known: Json = json.loads(_trusted.read(str(folder / "manifest.json"), trusted))
    except TrustError as exc:
        raise ExtrasError(f"wheels in {folder} are not used: {exc}") from exc
    except (OSError, ValueError):
        return None
    wheel = folder / str(known.get("file"))
    if wheel.is_file() and (foreign := _trusted.distrust(str(wheel), trusted)):
        raise ExtrasError(f"{wheel} is not used: {foreign}")
    return known if wheel.is_file() else None


def build(request: ExtraRequest, facts: Json, archive: str, wheels: str, timeout: float) -> Json:
    """Build the wheel in a temporary directory and store it once it is the requested one; return its manifest."""
    folder = wheel_dir(request, facts)
    try:
        _trusted.make(str(request.directory), _trusted.trusted_users())
    except TrustError as exc:
        raise ExtrasError(f"wheels cannot be kept in {request.directory}: {exc}") from exc
    with _files.lock(request.directory / f".{folder.name}.lock"):
        manifest = stored_manifest(folder)
        if manifest:
            return manifest
        # An editable package stays where it was built: its wheel only points there.
        shutil.rmtree(folder, ignore_errors=True)
        aside = folder if request.editable else Path(tempfile.mkdtemp(prefix="new-", dir=request.directory))
        try:
            manifest = _build(request, aside, archive, wheels, timeout)
            if aside != folder:
                shutil.rmtree(aside / "build")
                aside.chmod(0o755)
                aside.rename(folder)
        except (_sources.SourceError, BuildError, OSError) as exc:
            shutil.rmtree(aside, ignore_errors=True)
            raise ExtrasError(f"{request.name}: {exc}") from exc
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    return manifest


def _build(request: ExtraRequest, aside: Path, archive: str, wheels: str, timeout: float) -> Json:
    build_dir, out = aside / "build", aside / "out"
    build_dir.mkdir(parents=True)
    out.mkdir()
    source = _sources.unpack(archive, _sources.identity(request.source), build_dir / "source")
    try:
        provide(_spelled(request.tools, wheels), wheels or None, build_dir / "tools")
    except ValueError as exc:
        raise ExtrasError(f"{request.name}: {exc}") from exc
    path = os.pathsep.join([str(build_dir / "tools/bin"), str(Path(request.python).parent), os.environ["PATH"]])
    # Of the same source the same wheel, if its build lets it: its digest is a part of the environment's.
    fixed = {"PYTHONPATH": str(build_dir / "tools"), "PYTHONNOUSERSITE": "1", "SOURCE_DATE_EPOCH": "315532800"}
    environment = {**fixed, "PATH": path, **request.environment}
    with _inside(source):
        run_steps([BuildStep(_argv(request, str(out)))], environment, timeout)
    files = list(out.glob("*.whl"))
    if len(files) != 1:
        raise ExtrasError(f"the build of {request.name} left {len(files)} wheels, not one")
    return _keep(request, aside, files[0])


def _spelled(tools: t.Sequence[str], wheels: str) -> list[str]:
    """Return the projects as the names of their wheels spell them."""
    spellings = {
        normal(path.name.split("-")[0]): path.name.split("-")[0] for path in Path(wheels).glob("*.whl") if wheels
    }
    return [spellings.get(normal(name), name) for name in tools]


def _argv(request: ExtraRequest, out: str) -> list[str]:
    if request.editable:
        return [request.python, "-c", _EDITABLE, out]
    if request.options:
        return [request.python, "setup.py", *request.options, "bdist_wheel", "--dist-dir", out]
    return [request.python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", out, "."]


@contextlib.contextmanager
def _inside(path: str) -> t.Iterator[None]:
    """Work in a directory for a while; builds look for their files where they are started."""
    before = str(Path.cwd())
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def _keep(request: ExtraRequest, aside: Path, wheel: Path) -> Json:
    about = metadata(wheel)
    if normal(about["name"]) != normal(request.name) or (request.version and about["version"] != request.version):
        raise ExtrasError(
            f"the source of {request.name} {request.version} is {about['name']} {about['version']}: correct its entry"
        )
    final = aside / wheel.name
    wheel.replace(final)
    (aside / "out").rmdir()
    known = {**about, "file": final.name, "sha256": _sources.sha256(final)}
    (aside / "manifest.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
    return known


def metadata(wheel: Path) -> Json:
    """Return name, version and what a wheel requires without extras."""
    try:
        with zipfile.ZipFile(wheel) as content:
            (name,) = [entry for entry in content.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", entry)]
            headers = email.parser.Parser().parsestr(content.read(name).decode())
    except (OSError, ValueError, zipfile.BadZipFile) as exc:
        raise ExtrasError(f"{wheel} is no wheel: {exc}") from exc
    requires = [entry for entry in headers.get_all("Requires-Dist", []) if not re.search(r"\bextra\s*==", entry)]
    return {"name": str(headers["Name"]), "version": str(headers["Version"]), "requires": requires}


# One lock for the packages beside PyTorch, which does not change what is installed.


_INSTALLED = (
    "import importlib.metadata as m, json, platform, sys; print(json.dumps({'packages': {d.metadata['Name']: d.version"
    " for d in m.distributions()}, 'python': '%d.%d' % sys.version_info[:2], 'machine': platform.machine()}))"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PLATFORMS = {"x86_64": "x86_64-manylinux_2_28", "aarch64": "aarch64-manylinux_2_28"}


def installed(python: str) -> dict[str, t.Any]:
    """Return the packages of an environment, and which Python it is."""
    outcome = _process.run([python, "-I", "-c", _INSTALLED], 60)
    try:
        return t.cast(t.Dict[str, t.Any], json.loads(outcome.out))
    except ValueError as exc:
        raise ExtrasError(f"{python} does not say what it has: {outcome.problem or exc}") from exc


def inputs(
    packages: t.Sequence[t.Mapping[str, t.Any]], wheels: t.Sequence[t.Mapping[str, t.Any]], torch: str = ""
) -> list[str]:
    """Return what has to be resolved: packages of the index, and what built wheels require besides each other.

    Of projects in a wheel's C(relax) any version will do; some releases pin what they need not.
    """
    built = {normal(wheel["name"]) for wheel in wheels}
    requirements = [
        f"{package['name']}=={version_for(package, torch)}" for package in packages if not package.get("source")
    ]
    for wheel in wheels:
        loose = {normal(name) for name in wheel.get("relax") or []}
        needs = [requirement for requirement in wheel["requires"] if _required(requirement) not in built]
        requirements += [
            _required(requirement) if _required(requirement) in loose else requirement for requirement in needs
        ]
    return sorted(set(requirements))


def _required(text: str) -> str:
    name = _NAME.match(text)
    return normal(name.group()) if name else ""


def with_wheels(base: t.Mapping[str, t.Any], wheels: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """Return the environment as it is with the built wheels, which others may require in the version that was built."""
    return {**base, "packages": {**base["packages"], **{wheel["name"]: wheel["version"] for wheel in wheels}}}


def constraints(base: t.Mapping[str, str]) -> list[str]:
    """Return constraints that keep the installed versions, local ones such as 2.13.0+cpu included."""
    return sorted(f"{normal(name)}=={version}" for name, version in base.items())


def without_installed(lock: str, base: t.Mapping[str, str]) -> str:
    """Return the lock without the packages that the environment has."""
    own = {normal(name) for name in base}
    kept, keep = [], True
    for line in lock.splitlines():
        if not line.startswith((" ", "#")):
            keep = _required(line) not in own
        if keep and not line.startswith("#"):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept if line.strip())


def compile_lock(uv: str, requirements: t.Sequence[str], base: t.Mapping[str, t.Any], timeout: float) -> str:
    """Resolve with uv for the environment's Python and machine; a conflict is reported with uv's output.

    Local versions such as 2.13.0+cpu are of no index. So it is first resolved against their public version, which finds
    conflicts but drags in what that one requires, and then without them, which makes the lock.
    """
    if base["machine"] not in _PLATFORMS:
        raise ExtrasError(f"no lock can be made for {base['machine']}: give a lock file of your own")
    local = {name: version.partition("+")[0] for name, version in base["packages"].items() if "+" in version}
    if local:
        outcome, dummy = _resolve(uv, requirements, {**base, "packages": {**base["packages"], **local}}, (), timeout)
        unknown = any(f"no version of {normal(name)}=={version}" in outcome.err for name, version in local.items())
        if outcome.rc != 0 and not unknown:
            raise ExtrasError(_conflict(outcome, requirements))
    public = {name: version for name, version in base["packages"].items() if name not in local}
    outcome, lock = _resolve(uv, requirements, {**base, "packages": public}, tuple(local), timeout)
    if outcome.rc != 0:
        raise ExtrasError(_conflict(outcome, requirements))
    return lock


def _resolve(
    uv: str, requirements: t.Sequence[str], base: t.Mapping[str, t.Any], without: t.Sequence[str], timeout: float
) -> tuple[_process.Outcome, str]:
    with tempfile.TemporaryDirectory(prefix="extras-") as folder:
        need, fixed, never, out = (Path(folder, name) for name in ("wanted.in", "fixed.txt", "never.txt", "lock.txt"))
        for path, lines in (
            (need, requirements),
            (fixed, constraints(base["packages"])),
            (never, [f"{normal(name)}; python_version < '0'" for name in without]),
        ):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        argv = [uv, "pip", "compile", str(need), "--constraint", str(fixed), "--override", str(never)]
        argv += ["--output-file", str(out), "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
        argv += ["--python-version", base["python"], "--python-platform", _PLATFORMS[base["machine"]]]
        outcome = _process.run(argv, timeout)
        return outcome, without_installed(out.read_text(encoding="utf-8"), base["packages"]) if outcome.rc == 0 else ""


def _conflict(outcome: _process.Outcome, requirements: t.Sequence[str]) -> str:
    if outcome.rc is None:
        return f"{outcome.problem}: install uv on the control host, or give training_extras_lock_file"
    output = " ".join(outcome.err.split())
    return f"{', '.join(requirements)} do not fit into the environment: {output[:1500]}"
