# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules as processes of their own, on machines that tests make up; no tests in here."""

from __future__ import annotations

import json
import subprocess
import sys
import types
import typing as t
from importlib import import_module
from pathlib import Path

import yaml
from emulated_machine import install
from forked import run_module
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _profiles

COLLECTION = Path(_checks.__file__).parents[2]
SECRET = "of the caller"
Result = t.Dict[str, t.Any]
# Ansible starts modules with its arguments in memory; ansible-core 2.19 wants the profile, too.
_START = """\
import sys
from importlib import import_module
from ansible.module_utils import basic
basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = sys.argv[2].encode(), "legacy"
{prepare}
import_module("ansible_collections.hpcai.gpu_cluster.plugins.modules." + sys.argv[1]).main()
"""


def documented(module: types.ModuleType) -> Result:
    """Return the options of a module as they are documented, those of its fragments included, without prose."""
    documentation = yaml.safe_load(vars(module)["DOCUMENTATION"])
    options: Result = {}
    for fragment in documentation["extends_documentation_fragment"]:
        name, dummy, part = fragment.replace("hpcai.gpu_cluster.", "").partition(".")
        found = import_module(f"ansible_collections.hpcai.gpu_cluster.plugins.doc_fragments.{name}")
        options.update(yaml.safe_load(getattr(found.ModuleDocFragment, part.upper() or "DOCUMENTATION"))["options"])
    options.update(documentation["options"])
    return {name: {k: v for k, v in one.items() if k != "description"} for name, one in options.items()}


def running(pid: int) -> bool:
    """Say whether a process is there and no zombie, which its new parent may have left."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except OSError:
        return False


class Machine:
    """A module, and a folder with ``bin``, where it finds programs: put stand-ins there."""

    module = ""
    prepare = ""  # Python for the module's process, such as other places than those where this machine has programs

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        self.environment: dict[str, str] = {}

    def arguments(self, check_mode: bool = False, **params: t.Any) -> str:
        sent = {**params, "_ansible_check_mode": check_mode, "_ansible_remote_tmp": str(self.folder / "tmp")}
        sent["_ansible_keep_remote_files"] = False
        return json.dumps({"ANSIBLE_MODULE_ARGS": sent})

    def variables(self) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(COLLECTION.parents[2]),
            "SECRET": SECRET,
            **self.environment,
        }

    def start(self, **params: t.Any) -> subprocess.Popen[str]:
        """Start the module for somebody who ends it before its time."""
        return subprocess.Popen(
            [sys.executable, "-c", _START.format(prepare=self.prepare), self.module, self.arguments(**params)],
            env=self.variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, check_mode: bool = False, **params: t.Any) -> Result:
        done = run_module(
            f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{self.module}",
            input=self.arguments(check_mode, **params),
            env=self.variables(),
            timeout=patience(120),
            prepare=self.prepare,
        )
        assert SECRET not in done.stdout
        assert done.stdout.lstrip().startswith("{"), f"{done.stdout}\n{done.stderr}"
        return t.cast(Result, json.loads(done.stdout))


class Emulated(Machine):
    """The emulated NDv4 of lab/roles/lab_nodes/files/gpu_tools; faults are those of its tools."""

    profile = _profiles.load("nd96asr_v4")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        install(folder, self.profile, "gpu001")
        self.environment = {
            "GPU_TOOLS_HOST": "gpu001",
            "GPU_TOOLS_MACHINE": str(folder / "machine.json"),
            "GPU_TOOLS_FAULTS": str(folder / "faults.json"),
        }

    def link(self, name: str) -> None:
        """Install a tool that the machine type does not have by itself."""
        (self.bin / name).symlink_to("../gpu_tools/emulate")

    def __call__(self, check_mode: bool = False, faults: t.Any = None, **params: t.Any) -> Result:
        (self.folder / "faults.json").write_text(json.dumps(faults or {}))
        return super().__call__(check_mode, timeout=params.pop("timeout", 20), **params)
