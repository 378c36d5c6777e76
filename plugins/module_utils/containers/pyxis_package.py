# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules pyxis_package and pyxis_info: build pyxis against this Slurm, and look at what is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _sources, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._elf import ElfError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildStep, run_steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import debian, pyxis_fit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.pyxis_fit import PACKAGE

# How pyxis is built, and from what.


# Raised when the commands or the fields below change in a way that makes another package.
RECIPE = 1

_SLURM_PACKAGES = ("slurmd", "slurm-client", "slurm-smd-slurmd", "slurm-smd-client")


class PyxisError(ValueError):
    """pyxis cannot be built or used; the text is fit for the user."""


class Inputs(t.NamedTuple):
    """Everything that decides the result of a build; None where this host cannot tell."""

    source: str
    slurm: str | None
    headers: str | None
    compiler: str | None
    home: str
    architecture: str
    recipe: int = RECIPE


def same(requested: Inputs, built: t.Mapping[str, t.Any]) -> bool:
    """Return whether a package is the requested one, as far as this host can tell: its compiler may be gone."""
    return all(value is None or built.get(key) == value for key, value in requested._asdict().items())


def version(makefile: str) -> str:
    """Read the version of pyxis out of its makefile."""
    match = re.search(r"^PYXIS_VER\s*\??=\s*(\d[\w.]*)\s*$", makefile, re.MULTILINE)
    if not match:
        raise PyxisError("the source is not pyxis: its Makefile sets no PYXIS_VER")
    return match.group(1)


def full_version(pyxis: str, inputs: Inputs) -> str:
    """Return the version of the package, e.g. ``0.24.0+slurm24.11.5+hpcai.3f1c52a09b7e``."""
    return debian.version(f"{pyxis}+slurm{inputs.slurm}", inputs._asdict())


def build_step(source: str, tree: str, inputs: Inputs, machine: str, home: str) -> BuildStep:
    """Return the build command; the installed paths are those of NVIDIA's own package."""
    argv = ["make", "-C", source, f"DESTDIR={tree}", "prefix=/usr", f"libdir=/usr/lib/{machine}-linux-gnu"]
    # From the environment, for on the command line they would take the place of the makefile's own. The second makes
    # the same inputs the same file, wherever it is built.
    flags = {"CFLAGS": f"-ffile-prefix-map={source}=/usr/src/pyxis", "CPPFLAGS": f"-I{home}/include" if home else ""}
    return BuildStep([*argv, "datarootdir=/usr/share", "install"], flags)


def fields(pyxis: str, inputs: Inputs, slurm: pyxis_fit.InstalledSlurm, libc: str) -> dict[str, str]:
    """Return the control fields of the package."""
    control = {
        "Package": PACKAGE,
        "Version": full_version(pyxis, inputs),
        "Architecture": inputs.architecture,
        "Maintainer": "hpcai.gpu_cluster <root@localhost>",
        "Section": "admin",
        "Priority": "optional",
        "Homepage": "https://github.com/NVIDIA/pyxis",
        "Depends": f"libc6 (>= {libc})",
        "Recommends": "enroot (>= 3.1.0) | enroot-hardened (>= 3.1.0)",
        "Description": f"Slurm plugin for containerized job steps, built for Slurm {slurm.release}\n"
        f"Built by role hpcai.gpu_cluster.pyxis from {inputs.source} with the headers of Slurm {slurm}.",
    }
    if not inputs.home:
        # An upgrade of everything then leaves Slurm alone, instead of a node where no job step starts.
        after = f"{slurm.major}.{slurm.minor + 1:02d}~"
        control["Breaks"] = ", ".join(f"{name} (<< {slurm.release}), {name} (>= {after})" for name in _SLURM_PACKAGES)
    return control


# The module pyxis_package: build the package unless it is stored, prove it, store it.


Json = t.Dict[str, t.Any]

PACKAGE_SPEC: dict[str, dict[str, t.Any]] = {
    "source": {"type": "dict", "required": True},
    "archive": {"type": "path"},
    "slurm_home": {"type": "str", "default": ""},
    "slurm_version": {"type": "str", "default": ""},
    "packages": {"type": "list", "elements": "str", "default": []},
    "cache_dir": {"type": "path", "default": "/var/cache/hpcai/packages"},
    "build_dir": {"type": "path", "default": "/var/tmp"},  # noqa: S108 - a private directory is made in it
    "timeout": {"type": "float", "default": 600},
}
_TOOLS = {"cc": "gcc", "make": "make", "dpkg-deb": "dpkg"}


class PyxisBuilder:
    """One run of the module; in check mode it only returns the plan."""

    def __init__(self, params: t.Mapping[str, t.Any], check: bool) -> None:
        self.check = check
        self.params = params
        self.home: str = params["slurm_home"].rstrip("/")
        self.cache = Path(params["cache_dir"])
        self.slurm = self._requested_slurm()
        self.headers, headers = pyxis_fit.headers(self.home)
        compiler = run(["cc", "-dumpfullversion", "-dumpmachine"], 20.0)
        self.inputs = Inputs(
            source=_sources.identity(params["source"]),
            slurm=str(self.headers) if self.headers else None,
            headers=headers or None,
            compiler=" ".join(compiler.out.split()) if compiler.rc == 0 else None,
            home=self.home,
            architecture=run(["dpkg", "--print-architecture"], 20.0).out.strip(),
        )

    def _requested_slurm(self) -> pyxis_fit.InstalledSlurm | None:
        """Return the version of Slurm that the plugin is for: the option's, or the installed one's."""
        option = self.params["slurm_version"]
        requested = pyxis_fit.from_text(option if option.count(".") > 1 else f"{option}.0") if option else None
        if option and not requested:
            raise PyxisError(f"slurm_version {option!r} is no version such as 24.11 or 24.11.5")
        slurmd, client = pyxis_fit.installed(self.home)
        return requested or slurmd or client

    def perform(self) -> Json:
        if self.check:
            return self._plan()
        self.cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        with lock(self.cache / ".pyxis.lock"):
            plan = self._plan()
            if not plan["build"]:
                return plan
            self._refuse(plan["packages"])
            stored = self._build()
        return {**plan, "package": stored, "diff": {"before": {}, "after": stored}}

    def _plan(self) -> Json:
        stored = self._kept()
        needed = [] if stored else self._missing()
        if not stored and self.check:
            self._refuse([name for name in needed if name.partition("=")[0] not in self.params["packages"]])
        why = (
            "built before"
            if stored
            else f"not built from this source for Slurm {self.headers or self.slurm or ''} before"
        )
        result: Json = {
            "changed": not stored,
            "build": not stored,
            "package": stored,
            "packages": needed,
            "why": why.strip(),
        }
        return {**result, "diff": {"before": stored, "after": stored or {"why": why}}}

    def _kept(self) -> Json:
        """Return the manifest of the requested package; empty when none is stored."""
        _trusted.check(str(self.cache.absolute()), _trusted.trusted_users())  # root installs what is in it
        for path in sorted(self.cache.glob(f"{pyxis_fit.PACKAGE}_*.json")):
            try:
                manifest = json.loads(_trusted.read(str(path.absolute()), _trusted.trusted_users()))
                built = pyxis_fit.from_text(manifest["inputs"]["slurm"])
            except (OSError, ValueError, KeyError, TypeError):  # cut short by a full disk: it is built again
                continue
            fits = built and (not self.slurm or self.slurm.loads(built))
            if fits and same(self.inputs, manifest["inputs"]) and debian.whole(Path(manifest["file"])):
                return dict(manifest)
        return {}

    def _missing(self) -> list[str]:
        """Return the packages with what the build lacks."""
        packages = [package for tool, package in _TOOLS.items() if not shutil.which(tool)]
        packages += [] if Path("/usr/include/stdio.h").exists() else ["libc6-dev"]
        wrong = not self.inputs.headers or (self.slurm and self.headers and not self.slurm.loads(self.headers))
        return packages + ([self._headers_package()] if wrong and not self.home else [])

    def _headers_package(self) -> str:
        """Return the package of headers in the version of the installed Slurm: another would replace that Slurm."""
        for prefix, name in (("slurm-smd", "slurm-smd-dev"), ("", "libslurm-dev")):
            for other in ("-client", "d", "-slurmd", "ctld"):
                version = debian.installed(f"{prefix or 'slurm'}{other}")
                if version:
                    return f"{name}={version}"
        return "libslurm-dev"

    def _refuse(self, missing: t.Sequence[str]) -> None:
        """Raise with everything that makes a build impossible, before anything is changed."""
        folder = f"{pyxis_fit.include_dir(self.home)}/slurm"
        problems = [f"what package {name} brings is missing" for name in missing]
        if not self.inputs.headers and (self.home or missing):
            problems.append(f"there are no headers of Slurm in {folder}")
        if self.home or not self.check:
            problems.append(
                pyxis_fit.headers_problem(self.headers, folder, self.slurm, "the Slurm that pyxis is wanted for")
            )
        problems = [text for text in problems if text]
        if problems:
            raise PyxisError(f"cannot be built, nothing was changed: {'; '.join(problems)}")

    def _build(self) -> Json:
        archive = self.params["archive"]
        if not archive:
            raise PyxisError("it is to be built, but no archive with its source is given")
        scratch = Path(tempfile.mkdtemp(prefix="pyxis-", dir=self.params["build_dir"]))
        try:
            return self._make(_sources.unpack(archive, self.inputs.source, scratch / "source"), scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _make(self, source: str, scratch: Path) -> Json:
        """Build pyxis, prove that the plugin loads in a Slurm of these headers, and keep the package."""
        if self.headers is None:  # _refuse has seen to it
            raise PyxisError("there are no headers of Slurm")
        try:
            pyxis = version(Path(source, "Makefile").read_text())
        except OSError as exc:
            raise PyxisError(f"the source is not pyxis: {exc}") from exc
        tree, machine = scratch / "tree", os.uname().machine
        step = build_step(source, str(tree), self.inputs, machine, self.home)
        seconds = run_steps([step], {}, self.params["timeout"])
        plugin = tree / f"usr/lib/{machine}-linux-gnu/slurm/{pyxis_fit.PLUGIN}"
        built = pyxis_fit.plugin(str(plugin))
        if not built or not self.headers.loads(built.slurm):
            raise PyxisError(
                f"was built with headers of Slurm {self.headers}, but the plugin says {built and built.slurm}"
            )
        doc = tree / "usr/share/doc" / pyxis_fit.PACKAGE
        doc.mkdir(parents=True)
        shutil.copyfile(Path(source, "LICENSE"), doc / "copyright")
        proof = load(plugin, self.home, scratch)
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
        control = fields(pyxis, self.inputs, built.slurm, libc.split()[-1])
        file = debian.pack(tree, control, {}, self.cache)
        return self._keep(file, control["Version"], {"pyxis": pyxis, "seconds": round(seconds, 1), "proof": proof})

    def _keep(self, file: Path, version: str, extra: Json) -> Json:
        """Write the manifest; a package counts only with it."""
        manifest: Json = {
            "name": pyxis_fit.PACKAGE,
            "version": version,
            "file": str(file),
            "sha256": _sources.sha256(file),
        }
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        manifest.update({"inputs": self.inputs._asdict(), "made": made, **extra})
        goal = file.with_suffix(".json")
        partial = goal.with_name(f".{goal.name}.{os.getpid()}")
        partial.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
        partial.rename(goal)
        return manifest


def load(plugin: Path, home: str, scratch: Path) -> str:
    """Let srun load the plugin with a separate configuration; its help then shows the plugin's options."""
    srun = pyxis_fit.program("srun", home)
    if not srun:
        return "its version was read; there is no srun here to load it"
    stack, conf = scratch / "plugstack.conf", scratch / "slurm.conf"
    stack.write_text(f"required {plugin}\n")
    conf.write_text(f"{pyxis_fit.PROBE}PlugStackConfig={stack}\n")
    outcome = run([srun, "--help"], 30.0, environment={"SLURM_CONF": str(conf)})
    if "--container-image" not in outcome.out:
        errors = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if "error" in line or "fatal" in line]
        raise PyxisError(f"{srun} does not load the plugin that was built: {'; '.join(errors) or outcome.problem}")
    return "srun loaded it"


# The module pyxis_info.


INFO_SPEC: dict[str, dict[str, t.Any]] = {
    "drop_in": {"type": "path", "default": pyxis_fit.DROP_IN},
    "plugin": {"type": "path"},
    "package": {"type": "path"},
    "must_fit": {"type": "bool", "default": False},
    "ask": {"type": "bool", "default": True},
    "slurm_home": {"type": "str", "default": ""},
}


def look(params: t.Mapping[str, t.Any]) -> Json:
    """Return the installed plugin, the versions of Slurm, and whether they fit."""
    home = params["slurm_home"].rstrip("/")
    named, options = pyxis_fit.used(pyxis_fit.read(params["drop_in"]))
    path = params["package"] or params["plugin"] or named
    plugin, broken = _plugin(path, bool(params["package"]))
    slurmd, client = pyxis_fit.installed(home) if path else (None, None)
    running, controller = pyxis_fit.running(home) if path and params["ask"] else (None, None)
    observed = pyxis_fit.ObservedPyxis(plugin and plugin.slurm, slurmd, client, running, controller)
    problems = pyxis_fit.misfits(observed, path) + broken
    if path and not plugin and not broken:
        consequence = (
            f"{params['drop_in']} names it, so no job step starts here" if path == named else "nothing names it"
        )
        problems.append(f"there is no {path}; {consequence}")
    return {
        "changed": False,
        "plugin": path if plugin else "",
        "options": options,
        "package": debian.installed(pyxis_fit.PACKAGE),
        "versions": {key: str(value or "") for key, value in observed._asdict().items()},
        "fits": not problems,
        "problems": problems,
        "remarks": pyxis_fit.remarks(observed),
    }


def _plugin(path: str, is_package: bool) -> tuple[pyxis_fit.Plugin | None, list[str]]:
    try:
        return (pyxis_fit.packed(path) if is_package else pyxis_fit.plugin(path)) if path else None, []
    except ElfError as exc:
        return None, [str(exc)]
