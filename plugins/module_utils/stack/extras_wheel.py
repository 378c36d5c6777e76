# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheels of pinned sources, built for one environment, kept by what decided what they are. Private.

The environment is not changed: what a build needs besides it is unpacked beside the sources and put on its path.
"""

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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command, _lock, _pinned_source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import BuildError, Step, run_steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_tools import provide

Json = t.Dict[str, t.Any]
_FACTS = (
    "import json, os, sys, sysconfig; import torch; print(json.dumps({'prefix': os.path.realpath(sys.prefix),"
    " 'soabi': sysconfig.get_config_var('SOABI'), 'torch': torch.__version__}))"
)
# build_editable needs no pip, and pip would want to change the environment.
_EDITABLE = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"


class ExtrasError(ValueError):
    """A package cannot be built or resolved; the text is fit for the user."""


class Request(t.NamedTuple):
    """What shall be built; `tools` are the projects that the build imports."""

    directory: Path
    python: str
    name: str
    version: str
    source: t.Mapping[str, t.Any]
    tools: t.Sequence[str]
    options: t.Sequence[str] = ()
    editable: bool = False
    environment: t.Mapping[str, str] = {}


def normal(name: str) -> str:
    """Return a project's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def place(request: Request, facts: Json) -> Path:
    """Return the directory of the wheel: another source, environment, option or tool gives another one."""
    try:
        pinned = _pinned_source.identity(request.source)
    except _pinned_source.SourceError as exc:
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
    """Ask an environment what it is; one without torch is none to build for."""
    done = _command.run([python, "-I", "-c", _FACTS], 120)
    try:
        return t.cast(Json, json.loads(done.out.splitlines()[-1])) if done.rc == 0 else _no(python, done.problem)
    except (ValueError, IndexError) as exc:
        raise ExtrasError(f"{python} does not say what it is: {done.problem or exc}") from exc


def _no(python: str, said: str) -> Json:
    raise ExtrasError(f"{python} is no environment with torch: {said}")


def kept(where: Path) -> Json | None:
    """Return the wheel that is there."""
    try:
        known: Json = json.loads((where / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known if (where / str(known.get("file"))).is_file() else None


def build(request: Request, facts: Json, archive: str, wheels: str, timeout: float) -> Json:
    """Build the wheel aside and keep it once it is what was asked for."""
    where = place(request, facts)
    request.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _lock.lock(request.directory / f".{where.name}.lock"):
        found = kept(where)
        if found:
            return found
        # An editable package stays where it was built: its wheel only points there.
        shutil.rmtree(where, ignore_errors=True)
        aside = where if request.editable else Path(tempfile.mkdtemp(prefix="new-", dir=request.directory))
        try:
            found = _build(request, aside, archive, wheels, timeout)
            if aside != where:
                shutil.rmtree(aside / "build")
                aside.chmod(0o755)
                aside.rename(where)
        except (_pinned_source.SourceError, BuildError, OSError) as exc:
            shutil.rmtree(aside, ignore_errors=True)
            raise ExtrasError(f"{request.name}: {exc}") from exc
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    return found


def _build(request: Request, aside: Path, archive: str, wheels: str, timeout: float) -> Json:
    build_dir, out = aside / "build", aside / "out"
    build_dir.mkdir(parents=True)
    out.mkdir()
    source = _pinned_source.unpack(archive, _pinned_source.identity(request.source), build_dir / "source")
    try:
        provide(_spelled(request.tools, wheels), wheels or None, build_dir / "tools")
    except ValueError as exc:
        raise ExtrasError(f"{request.name}: {exc}") from exc
    path = os.pathsep.join([str(build_dir / "tools/bin"), str(Path(request.python).parent), os.environ["PATH"]])
    # Of the same source the same wheel, if its build lets it: its digest is a part of the environment's.
    fixed = {"PYTHONPATH": str(build_dir / "tools"), "PYTHONNOUSERSITE": "1", "SOURCE_DATE_EPOCH": "315532800"}
    environment = {**fixed, "PATH": path, **request.environment}
    with _inside(source):
        run_steps([Step(_argv(request, str(out)))], environment, timeout)
    files = list(out.glob("*.whl"))
    if len(files) != 1:
        raise ExtrasError(f"the build of {request.name} left {len(files)} wheels, not one")
    return _keep(request, aside, files[0])


def _spelled(tools: t.Sequence[str], wheels: str) -> list[str]:
    """Return the projects as the names of their wheels spell them."""
    there = {normal(path.name.split("-")[0]): path.name.split("-")[0] for path in Path(wheels).glob("*.whl") if wheels}
    return [there.get(normal(name), name) for name in tools]


def _argv(request: Request, out: str) -> list[str]:
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


def _keep(request: Request, aside: Path, wheel: Path) -> Json:
    about = metadata(wheel)
    if normal(about["name"]) != normal(request.name) or (request.version and about["version"] != request.version):
        raise ExtrasError(
            f"the source of {request.name} {request.version} is {about['name']} {about['version']}: correct its entry"
        )
    final = aside / wheel.name
    wheel.replace(final)
    (aside / "out").rmdir()
    known = {**about, "file": final.name, "sha256": _pinned_source.sha256(final)}
    (aside / "manifest.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
    return known


def metadata(wheel: Path) -> Json:
    """Return name, version and what a wheel requires without extras."""
    try:
        with zipfile.ZipFile(wheel) as content:
            (name,) = [one for one in content.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one)]
            found = email.parser.Parser().parsestr(content.read(name).decode())
    except (OSError, ValueError, zipfile.BadZipFile) as exc:
        raise ExtrasError(f"{wheel} is no wheel: {exc}") from exc
    requires = [one for one in found.get_all("Requires-Dist", []) if not re.search(r"\bextra\s*==", one)]
    return {"name": str(found["Name"]), "version": str(found["Version"]), "requires": requires}
