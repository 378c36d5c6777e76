# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module pyxis_package without Ansible: see what is there, build what is not, prove it, keep it. Private."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _pinned_source as pinned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import run_steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import deb
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_fit as fit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_host as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_recipe as recipe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.pyxis_recipe import Inputs, PyxisError

Json = t.Dict[str, t.Any]

SPEC: dict[str, dict[str, t.Any]] = {
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


class Worker:
    """One run of the module; in check mode it only tells what it would do."""

    def __init__(self, params: t.Mapping[str, t.Any], check: bool) -> None:
        self.check = check
        self.params = params
        self.home: str = params["slurm_home"].rstrip("/")
        self.cache = Path(params["cache_dir"])
        self.slurm = self._wanted()
        self.headers, headers = host.headers(self.home)
        compiler = run(["cc", "-dumpfullversion", "-dumpmachine"], 20.0)
        self.inputs = Inputs(
            source=pinned.identity(params["source"]),
            slurm=str(self.headers) if self.headers else None,
            headers=headers or None,
            compiler=" ".join(compiler.out.split()) if compiler.rc == 0 else None,
            home=self.home,
            architecture=run(["dpkg", "--print-architecture"], 20.0).out.strip(),
        )

    def _wanted(self) -> fit.Slurm | None:
        """Return the Slurm that the plugin is for."""
        given = self.params["slurm_version"]
        found = fit.from_text(given if given.count(".") > 1 else f"{given}.0") if given else None
        if given and not found:
            raise PyxisError(f"slurm_version {given!r} is no version such as 24.11 or 24.11.5")
        slurmd, client = host.installed(self.home)
        return found or slurmd or client

    def run(self) -> Json:
        if self.check:
            return self._plan()
        self.cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        with lock(self.cache / ".pyxis.lock"):
            plan = self._plan()
            if not plan["build"]:
                return plan
            self._refuse(plan["packages"])
            kept = self._build()
        return {**plan, "package": kept, "diff": {"before": {}, "after": kept}}

    def _plan(self) -> Json:
        kept = self._kept()
        needed = [] if kept else self._missing()
        if not kept and self.check:
            self._refuse([name for name in needed if name.partition("=")[0] not in self.params["packages"]])
        why = (
            "built before"
            if kept
            else f"not built from this source for Slurm {self.headers or self.slurm or ''} before"
        )
        result: Json = {"changed": not kept, "build": not kept, "package": kept, "packages": needed, "why": why.strip()}
        return {**result, "diff": {"before": kept, "after": kept or {"why": why}}}

    def _kept(self) -> Json:
        """Return what the manifest says of the package that is wanted; nothing when there is none."""
        for path in sorted(self.cache.glob(f"{host.PACKAGE}_*.json")):
            try:
                manifest = json.loads(path.read_text())
                built = fit.from_text(manifest["inputs"]["slurm"])
            except (OSError, ValueError, KeyError, TypeError):  # cut short by a full disk: it is built again
                continue
            fits = built and (not self.slurm or self.slurm.loads(built))
            if fits and recipe.same(self.inputs, manifest["inputs"]) and deb.whole(Path(manifest["file"])):
                return dict(manifest)
        return {}

    def _missing(self) -> list[str]:
        """Return the packages that would bring what the build lacks."""
        found = [package for tool, package in _TOOLS.items() if not shutil.which(tool)]
        found += [] if Path("/usr/include/stdio.h").exists() else ["libc6-dev"]
        wrong = not self.inputs.headers or (self.slurm and self.headers and not self.slurm.loads(self.headers))
        return found + ([self._headers_package()] if wrong and not self.home else [])

    def _headers_package(self) -> str:
        """In the version that is installed: another one would bring another Slurm along."""
        for prefix, name in (("slurm-smd", "slurm-smd-dev"), ("", "libslurm-dev")):
            for other in ("-client", "d", "-slurmd", "ctld"):
                version = deb.installed(f"{prefix or 'slurm'}{other}")
                if version:
                    return f"{name}={version}"
        return "libslurm-dev"

    def _refuse(self, missing: t.Sequence[str]) -> None:
        """Say what keeps a build from being possible, before anything is changed."""
        place = f"{host.include_dir(self.home)}/slurm"
        said = [f"what package {name} brings is missing" for name in missing]
        if not self.inputs.headers and (self.home or missing):
            said.append(f"there are no headers of Slurm in {place}")
        if self.home or not self.check:
            said.append(fit.headers_problem(self.headers, place, self.slurm, "the Slurm that pyxis is wanted for"))
        said = [text for text in said if text]
        if said:
            raise PyxisError(f"cannot be built, nothing was changed: {'; '.join(said)}")

    def _build(self) -> Json:
        archive = self.params["archive"]
        if not archive:
            raise PyxisError("it is to be built, but no archive with its source is given")
        scratch = Path(tempfile.mkdtemp(prefix="pyxis-", dir=self.params["build_dir"]))
        try:
            return self._make(pinned.unpack(archive, self.inputs.source, scratch / "source"), scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _make(self, source: str, scratch: Path) -> Json:
        if self.headers is None:  # _refuse has seen to it
            raise PyxisError("there are no headers of Slurm")
        try:
            pyxis = recipe.version(Path(source, "Makefile").read_text())
        except OSError as exc:
            raise PyxisError(f"the source is not pyxis: {exc}") from exc
        tree, machine = scratch / "tree", os.uname().machine
        step = recipe.step(source, str(tree), self.inputs, machine, self.home)
        seconds = run_steps([step], {}, self.params["timeout"])
        plugin = tree / f"usr/lib/{machine}-linux-gnu/slurm/{host.PLUGIN}"
        made = host.plugin(str(plugin))
        if not made or not self.headers.loads(made.slurm):
            raise PyxisError(
                f"was built with headers of Slurm {self.headers}, but the plugin says {made and made.slurm}"
            )
        doc = tree / "usr/share/doc" / host.PACKAGE
        doc.mkdir(parents=True)
        shutil.copyfile(Path(source, "LICENSE"), doc / "copyright")
        proof = load(plugin, self.home, scratch)
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
        control = recipe.fields(pyxis, self.inputs, made.slurm, libc.split()[-1])
        file = deb.pack(tree, control, {}, self.cache)
        return self._keep(file, control["Version"], {"pyxis": pyxis, "seconds": round(seconds, 1), "proof": proof})

    def _keep(self, file: Path, version: str, more: Json) -> Json:
        """Write the manifest; a package counts only with it."""
        manifest: Json = {"name": host.PACKAGE, "version": version, "file": str(file), "sha256": pinned.sha256(file)}
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        manifest.update({"inputs": self.inputs._asdict(), "made": made, **more})
        goal = file.with_suffix(".json")
        partial = goal.with_name(f".{goal.name}.{os.getpid()}")
        partial.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
        partial.rename(goal)
        return manifest


def load(plugin: Path, home: str, scratch: Path) -> str:
    """Let srun load the plugin with a configuration of its own; its help then shows the plugin's options."""
    srun = host.program("srun", home)
    if not srun:
        return "its version was read; there is no srun here to load it"
    stack, conf = scratch / "plugstack.conf", scratch / "slurm.conf"
    stack.write_text(f"required {plugin}\n")
    conf.write_text(f"{host.PROBE}PlugStackConfig={stack}\n")
    outcome = run([srun, "--help"], 30.0, environment={"SLURM_CONF": str(conf)})
    if "--container-image" not in outcome.out:
        said = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if "error" in line or "fatal" in line]
        raise PyxisError(f"{srun} does not load the plugin that was built: {'; '.join(said) or outcome.problem}")
    return "srun loaded it"
