# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module python_environment: its options, and making an environment from a lock."""

from __future__ import annotations

import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import (
    environment_store,
    installer,
    lock_files,
    versions,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.environment_store import (
    ARCHIVE,
    EnvironmentStore,
    Wheel,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.installer import Interpreter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import EnvironmentRefused

# Making one environment: nothing of it stays unless it is complete and proved.


Json = t.Dict[str, t.Any]


class InstallRequest(t.NamedTuple):
    """What to install and how; ``own_lock`` is the lock file of the installer itself."""

    kind: str
    program: str
    own_lock: str
    python: Interpreter
    locks: t.Sequence[tuple[str, str]]
    wheels: t.Sequence[Wheel]
    source: installer.Source
    timeout: float


def make(
    store: EnvironmentStore,
    name: str,
    inputs: t.Mapping[str, t.Any],
    order: InstallRequest,
    prove: t.Callable[[], Json],
) -> tuple[Json, Json]:
    """Build and prove an environment, which is complete once it has its manifest; return the manifest and the proof."""
    _verify(order.wheels)
    _check_room(store, order)
    target = store.begin(name)
    work = tempfile.mkdtemp(prefix=".cache-", dir=store.envs)
    try:
        seconds = _fill(order, str(target), work)
        complete_toolkits(target)
        facts = prove()
        content = {"inputs": inputs, "facts": facts, "made": time.time(), "seconds": round(seconds, 1)}
        store.finish(name, content)
    except (ValueError, OSError) as exc:
        full = f" ({store.root} is full)" if store.full() else ""
        raise EnvironmentRefused(f"{exc}{full}") from exc
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not store.manifest(name):
            store.abandon(name)
    return content, facts


def _verify(wheels: t.Iterable[Wheel]) -> None:
    for wheel in wheels:
        digest = sha256(wheel.path)
        if digest != wheel.sha256:
            raise EnvironmentRefused(f"{wheel.path} has sha256 {digest}, asked for was {wheel.sha256}")


def _check_room(store: EnvironmentStore, order: InstallRequest) -> None:
    size = installer.unpacked_size(order.source.folders, [wheel.path for wheel in order.wheels])
    free = store.free()
    if size > free:
        raise EnvironmentRefused(
            f"{store.root} has {free / 1e9:.1f} GB free, the environment takes {size / 1e9:.1f} GB. "
            "Nothing was changed; make room, or let fewer old environments stay (pytorch_keep)"
        )


def _fill(order: InstallRequest, target: str, work: str) -> float:
    if order.kind == "pip" and not order.python.venv:
        raise EnvironmentRefused(
            f"{order.python.command} has no venv or no ensurepip, which Debian and Ubuntu keep in the package "
            f"python{order.python.version}-venv. Install it, or use the installer uv, which needs neither"
        )
    folders = order.source.folders
    pins = lock_files.pins("of the installer", order.own_lock) if order.own_lock else []
    digests = {digest.rpartition(":")[2] for pin in pins for digest in pin.hashes}
    program = installer.program(order.kind, order.program, folders, digests, work)
    files = [
        _write_lock_file(Path(work, f"lock{number}.txt"), text, folders)
        for number, (dummy, text) in enumerate(order.locks)
    ]
    wheels = [wheel.path for wheel in order.wheels]
    commands = installer.steps(order.kind, program, order.python.command, target, files, wheels, order.source)
    return installer.perform(commands, installer.variables(order.kind, work, bool(folders)), order.timeout)


def complete_toolkits(target: Path) -> None:
    """Make a toolkit of the packages where nvcc is one of them: linkers look for libcudart.so in lib64 or lib.

    The packages have libcudart.so.13 in lib, as programs that run need no more.
    """
    for nvcc in target.glob("lib/python3*/site-packages/nvidia/cu*/bin/nvcc"):
        folder = nvcc.parents[1] / "lib"
        for library in sorted(folder.glob("lib*.so.*")):
            bare = folder / f"{library.name.partition('.so.')[0]}.so"
            if not bare.exists():
                bare.symlink_to(library.name)
        if not folder.with_name("lib64").exists():
            folder.with_name("lib64").symlink_to("lib")


def pack(target: Path, timeout: float) -> None:
    """Have all files of an environment in one, too, which nodes read at once where they would ask for each."""
    with tempfile.TemporaryDirectory(prefix=".cache-", dir=target.parent) as work:
        made = Path(work, ARCHIVE)
        options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
        outcome = run(["tar", "--create", *options, f"--file={made}", f"--directory={target}", "."], timeout)
        if outcome.rc != 0:
            raise EnvironmentRefused(f"{target} cannot be packed: {outcome.problem or outcome.err.strip()}")
        made.chmod(0o644)
        made.replace(target / ARCHIVE)


def _write_lock_file(path: Path, text: str, folders: t.Sequence[str]) -> str:
    """Write a lock file; a conda specification is rewritten for packages in a directory of this host."""
    is_local = lock_files.is_conda(text) and folders
    path.write_text(lock_files.local(lock_files.packages(path.name, text), folders[0]) if is_local else text + "\n")
    return str(path)


# The module python_environment: plan, build, prove, switch, prune.


SPEC: dict[str, dict[str, t.Any]] = {
    "path": {"type": "path", "required": True},
    "link": {"type": "str", "default": "current"},
    "state": {"type": "str", "choices": ["current", "built"], "default": "current"},
    "builds": {"type": "dict", "required": True},
    "build": {"type": "str", "default": "auto"},
    "drivers": {"type": "list", "elements": "dict", "default": []},
    "extra_locks": {"type": "list", "elements": "dict", "default": []},
    "wheels": {"type": "list", "elements": "dict", "default": []},
    "installer": {"type": "str", "choices": ["uv", "pip", "conda"], "default": "uv"},
    "installer_path": {"type": "path"},
    "installer_lock": {"type": "str"},
    "python": {"type": "str", "default": ""},
    "folders": {"type": "list", "elements": "path", "default": []},
    "indexes": {"type": "list", "elements": "str", "default": []},
    "imports": {"type": "list", "elements": "str", "default": []},
    "proof": {"type": "str", "choices": ["slurm", "local", "none"], "default": "local"},
    "proved": {"type": "dict"},
    "archive": {"type": "bool", "default": False},
    "keep": {"type": "int", "default": 3},
    "timeout": {"type": "float", "default": 3600},
}


class EnvironmentWorker:
    """One run of the module; in check mode it only returns the plan."""

    def __init__(self, params: t.Mapping[str, t.Any], check: bool) -> None:
        self.params = params
        self.check = check
        if params["keep"] < 0:
            raise EnvironmentRefused(f"keep (pytorch_keep) is {params['keep']}, a number from 0 is needed")
        self.store = EnvironmentStore(params["path"])
        self.store.refuse_others()
        self.python = installer.find_interpreter(params["python"])
        observed = versions.drivers(params["drivers"])
        known = versions.builds(params["builds"])
        version = "" if params["installer"] == "conda" else self.python.version
        self.build, self.why = versions.choose(known, params["build"], observed, version, self.python.machine)
        self.locks = environment_store.checked_locks(self.build, params["extra_locks"], params["installer"])
        self.wheels = environment_store.wheels(params["wheels"])
        self.indexes = installer.public(params["indexes"] or self.build.indexes)
        self.inputs = environment_store.inputs(
            self.build, self.locks, self.wheels, params["installer"], self.python, self.indexes
        )
        self.name = environment_store.label(self.build, self.python, params["installer"], self.inputs)
        self.proof_request = environment_store.proof_request(self.build, observed, params["imports"], self.locks)
        self.seconds: float | None = None

    def perform(self) -> Json:
        """Carry out the steps that are due; return the module's result."""
        before = self.store.goal(self.params["link"])
        changed, dropped = self._due(), self._removable() if self.params["state"] == "current" else ([], {})
        if (changed or dropped[0]) and not self.check:
            self.store.make()
            with lock(self.store.lock):
                changed = self._due()  # another run may have done it meanwhile
                dropped = self._work()
        after = self.name if self.params["state"] == "current" else before
        return {
            "changed": bool(changed or dropped[0]),
            "environment": self._described(),
            "needs": self._needs(),
            "settled": not (changed or dropped[0]),
            "removed": dropped[0],
            "kept": dropped[1],
            "diff": {"before": {self.params["link"]: before}, "after": {self.params["link"]: after}},
        }

    def _due(self) -> list[str]:
        """Return the names of the steps that are due."""
        exists = bool(self.store.manifest(self.name))
        steps = [] if exists else ["build"]
        if not installer.enough(
            self._proofs(), "local" if self.params["proof"] != "none" else "none", self.proof_request["imports"]
        ):
            steps.append("prove")
        if self.params["archive"] and not (self.store.target(self.name) / ARCHIVE).exists():
            steps.append("pack")
        if self.params["state"] == "current":
            if self.store.goal(self.params["link"]) != self.name:
                steps.append("switch")
            if self.params["proved"] and self._proofs().get("slurm") != self.params["proved"]:
                steps.append("record")
        return steps + ["clean"] * bool(self.store.unfinished())

    def _proofs(self) -> Json:
        return t.cast(Json, self.store.state(self.name).get("proofs", {}))

    def _needs(self) -> Json:
        """Return what the caller has to provide: packages for a build, a proof through Slurm before the switch."""
        enough = installer.enough(self._proofs(), self.params["proof"], self.proof_request["imports"])
        return {
            "packages": not self.store.manifest(self.name),
            "proof": not enough and self.params["proof"] == "slurm",
        }

    def _work(self) -> tuple[list[str], dict[str, str]]:
        self.store.clean()
        # The run that held the lock before may have made it.
        if not self.store.manifest(self.name):
            self._make()
        if "prove" in self._due():
            self._record("local", self._prove())
        if "pack" in self._due():
            pack(self.store.target(self.name), self.params["timeout"])
        if self.params["state"] == "built":
            return [], {}
        if self.params["proved"]:
            self._record("slurm", self.params["proved"])
        self._switch()
        removed, kept = self._removable()
        for name in removed:
            self.store.drop(name)
        return removed, kept

    def _make(self) -> None:
        params = self.params
        order = InstallRequest(
            kind=params["installer"],
            program=params["installer_path"] or "",
            own_lock=params["installer_lock"] or "",
            python=self.python,
            locks=self.locks,
            wheels=self.wheels,
            source=installer.Source(params["folders"], self.indexes),
            timeout=params["timeout"],
        )
        content, facts = make(self.store, self.name, self.inputs, order, self._prove)
        self.seconds = content["seconds"]
        self._record("local", facts)

    def _prove(self) -> Json:
        target = str(self.store.target(self.name))
        outcome = run(installer.argv(target, self.proof_request["imports"]), self.params["timeout"])
        return installer.accept(installer.read(outcome, "here"), self.proof_request, False, "here")

    def _record(self, where: str, facts: Json) -> None:
        self.store.remember(self.name, proofs={**self._proofs(), where: facts})

    def _switch(self) -> None:
        link = self.params["link"]
        before = self.store.goal(link)
        if before == self.name:
            return
        if self._needs()["proof"]:
            raise EnvironmentRefused(f"{self.name} was not proved on a compute node, so {link} stays where it is")
        if before:
            self.store.point(f"{link}.previous", before)
        self.store.point(link, self.name)
        self.store.remember(self.name, retired=None)
        if before:
            self.store.remember(before, retired=time.time())

    def _removable(self) -> tuple[list[str], dict[str, str]]:
        environments = self.store.complete()
        linked = self.store.linked() | {self.name}
        free = [environment.name for environment in environments if environment.name not in linked]
        if len(environments) <= self.params["keep"] or self.params["keep"] == 0 or not free:
            return environment_store.removable(
                environments, linked, environment_store.Use(), 0 if self.params["keep"] == 0 else len(environments)
            )
        return environment_store.removable(
            environments, linked, environment_store.read(str(self.store.envs), free), self.params["keep"]
        )

    def _described(self) -> Json:
        manifest = self.store.manifest(self.name)
        return {
            "name": self.name,
            "path": str(self.store.target(self.name)),
            "build": self.build.name,
            "cuda": self.build.cuda,
            "why": self.why,
            "python": {"command": self.python.command, "glibc": self.python.glibc, "markers": self.python.markers},
            "facts": manifest.get("facts"),
            "seconds": self.seconds,
            "indexes": self.indexes,
            "want": self.proof_request,
            "proofs": self._proofs(),
        }
