# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site for tests of python_environment: wheels made here, a torch of a few lines, programs that are emulated."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

from conftest import COLLECTIONS, Json
from forked import run_module
from patience import patience
from stand_in import answer, stand_in

TORCH = """
import sys, time, types
__version__ = "1.0"
version = types.SimpleNamespace(cuda={cuda!r})
class _Tensor:
    def matmul(self, other): return self
    def sum(self): return {total}
def ones(*shape, device="cpu"):
    if device == "cuda": raise RuntimeError("Found no NVIDIA driver on your system")
    return _Tensor()
def compiled_with_cxx11_abi(): return True
cuda = types.SimpleNamespace(device_count=lambda: 0)
_C = types.SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80 sm_90")
if {slow}: time.sleep(600)
for name in ("torch.utils", "torch.utils.data"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch.utils.data"].DataLoader = object
"""


def wheel(folder: Path, name: str, version: str, text: str, requires: str = "") -> dict[str, str]:
    """Write a wheel with one module; return it as the module wants it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}/__init__.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{one},,\n" for one in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as out:
        for one, content in {**files, f"{info}/RECORD": record}.items():
            out.writestr(zipfile.ZipInfo(one), content)
    return {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def conda_lock(folder: Path, url: str = "https://conda.example.org") -> str:
    """Write a conda package that only the emulation can read; return its lock file."""
    path = folder / "torch-1.0-0.conda"
    path.write_text(TORCH.format(cuda=None, total=8, slow=False))
    place = f"{folder}" if url == "file://" else "/linux-64"
    return f"# platform: linux-64\n@EXPLICIT\n{url}{place}/{path.name}#{hashlib.md5(path.read_bytes()).hexdigest()}\n"


# Of the environment that runs the tests, else of this machine.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
# The faster one, where the installer is not what a test is about.
USUAL = "uv" if shutil.which("uv", path=PATH) else "pip"


class Site:
    """One shared directory, one directory of wheels, one PATH."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder, self.wheels, self.bin = folder, folder / "wheels", folder / "bin"
        self.root = (root or folder / "shared") / "pytorch"
        self.envs = self.root / "envs"
        self.bin.mkdir(exist_ok=True)
        self.torch()
        self.helper = wheel(self.wheels, "helper", "1.0", "")

    def torch(self, cuda: str | None = None, total: int = 8, slow: bool = False) -> None:
        made = wheel(self.wheels, "torch", "1.0", TORCH.format(cuda=cuda, total=total, slow=slow))
        self.digest = made["sha256"]

    def lock(self, extra: bool = False) -> str:
        more = f"helper==1.0 --hash=sha256:{self.helper['sha256']}\n" if extra else ""
        return f"torch==1.0 --hash=sha256:{self.digest}\n{more}"

    def micromamba(self) -> str:
        return str(stand_in(self.bin / "micromamba", "micromamba.py"))

    def squeue(self, jobs: str | None) -> None:
        """Have Slurm know of these jobs, or not answer."""
        answer(self.bin / "squeue", f"{jobs}\n" if jobs is not None else "", status=int(jobs is None))

    def asked(self, module: str, check_mode: bool = False, **given: t.Any) -> tuple[str, str, dict[str, str]]:
        """Return the name of a module, its arguments and its environment."""
        params = given
        if module == "python_environment":
            builds = {"cpu": {"lock": self.lock()}}
            own: Json = {"path": str(self.root), "builds": builds, "python": sys.executable, "installer": USUAL}
            params = {**own, "folders": [str(self.wheels)], **given}
            self.root.mkdir(parents=True, exist_ok=True)
        document = {"ANSIBLE_MODULE_ARGS": {**params, "_ansible_check_mode": check_mode, "_ansible_diff": True}}
        environment = {
            "PATH": f"{self.bin}:{PATH}",
            "PYTHONPATH": str(COLLECTIONS),
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_INDEX": "1",
            "UV_FIND_LINKS": str(self.wheels),
            "UV_OFFLINE": "1",
            "HOME": str(self.folder),
        }
        return f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{module}", json.dumps(document), environment

    def start(self, module: str = "python_environment", **given: t.Any) -> subprocess.Popen[str]:
        """Start a module that is looked at while it runs, or ended."""
        name, arguments, environment = self.asked(module, **given)
        pipes: Json = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        argv = [sys.executable, "-m", name, arguments]
        return subprocess.Popen(argv, env=environment, text=True, start_new_session=True, **pipes)

    def result(self, process: subprocess.Popen[str], fails: bool = False) -> Json:
        out, err = process.communicate(timeout=patience(180))
        return self.said(out, err, fails)

    def run(self, module: str = "python_environment", fails: bool = False, **given: t.Any) -> Json:
        name, arguments, environment = self.asked(module, **given)
        done = run_module(name, arguments, env=environment, timeout=patience(180))
        return self.said(done.stdout, done.stderr, fails)

    @staticmethod
    def said(out: str, err: str, fails: bool) -> Json:
        """Return what a module printed, which failed or did not, as is wanted."""
        found: Json = json.loads(out)
        assert found.get("failed", False) == fails, f"{out}\n{err}"
        return found

    def current(self, link: str = "current") -> str:
        return os.readlink(self.root / link).rpartition("/")[2]

    def python(self) -> Path:
        return self.root / "current/bin/python"

    def complete(self) -> list[str]:
        return sorted(path.parent.name for path in self.envs.glob("*/manifest.json"))
