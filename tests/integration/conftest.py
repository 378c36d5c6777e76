# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules as real processes on an emulated machine: the same tools that the lab's nodes have, in a directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
import warnings
from pathlib import Path

import pytest
from azurite import Azurite, MissingError
from emulated_machine import SETUP, install, set_up
from forked import run_module
from patience import patience
from stand_in import instead

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / ".build/collections"


__all__ = ["COLLECTIONS", "NODES", "ROOT", "SETUP", "Cluster", "Json", "findings"]
NODES = ("c1", "c2")
Json = t.Dict[str, t.Any]


def pytest_configure() -> None:
    """Have every Python that tests start keep what it compiles of the modules that Ansible sends."""
    (ROOT / ".build/bytecode").mkdir(exist_ok=True)
    path = [str(Path(__file__).parent / "start"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))


class Cluster:
    """Two emulated nodes of one machine type; commands run as on the first of them."""

    def __init__(self, directory: Path, sku: str) -> None:
        self.directory = directory
        self.profile = load(sku)
        install(directory, self.profile, *NODES)
        (directory / "launchers").mkdir()
        for name in ("mpirun", "srun"):
            instead(directory / "launchers" / name, sys.executable, Path(__file__).with_name("launcher.py"), name)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "NCCL_", "SLURM_"))},
            "PATH": f"{directory}/bin:{directory}/launchers:{os.environ['PATH']}",
            "PYTHONPATH": str(COLLECTIONS),
            "GPU_TOOLS_HOST": NODES[0],
            "GPU_TOOLS_MACHINE": str(directory / "machine.json"),
            "GPU_TOOLS_FAULTS": str(directory / "faults.json"),
            "GPU_TOOLS_STATE": str(directory / "state/state.json"),
        }
        self.environment.pop("DISPLAY", None)

    def damage(self, *nodes: str, **faults: t.Any) -> None:
        """Break nodes, the first one when none is named."""
        set_up(self.directory, "faults", faults, *(nodes or NODES[:1]))

    def add(self, tool: str) -> None:
        """Install a tool that the machine type does not have by itself."""
        (self.directory / "bin" / tool).symlink_to("../gpu_tools/emulate")

    @property
    def sysfs(self) -> str:
        return str(self.directory / "sys" / NODES[0])

    def tool(self, *argv: str, rc: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a tool by hand."""
        variables = {**self.environment, **environment}
        done = subprocess.run(
            argv,
            env=variables,
            text=True,
            capture_output=True,
            timeout=patience(30),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert rc is None or done.returncode == rc, done.stdout + done.stderr
        return done

    def module(self, module: str, check_mode: bool = False, **options: t.Any) -> Json:
        """Run a module as Ansible does: arguments as JSON on standard input, result as JSON on standard output."""
        shared = {"expect": self.profile["expect"], "profile": self.profile["profile"], "name": NODES[0]}
        arguments = {**shared, "_ansible_check_mode": check_mode, "_ansible_remote_tmp": str(self.directory), **options}
        given = {"ANSIBLE_MODULE_ARGS": {key: value for key, value in arguments.items() if value is not None}}
        done = run_module(
            f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{module}",
            input=json.dumps(given),
            env=self.environment,
            cwd=self.directory,
            timeout=patience(60),
        )
        assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
        result: Json = json.loads(done.stdout)
        result.pop("invocation", None)
        assert not result.get("failed"), result
        return result

    def checks(self, module: str, **options: t.Any) -> dict[str, Json]:
        """The records of a module, by check."""
        return {record["check"]: record for record in self.module(module, **options)["checks"]}


@pytest.fixture(scope="module")
def account(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Azurite]:
    """A storage account, started for the tests of a file, which are skipped loudly where there can be none."""
    try:
        running = Azurite(tmp_path_factory.mktemp("azurite"))
    except (MissingError, OSError, subprocess.SubprocessError) as exc:
        reason = f"the tests of {request.path.name} do NOT run: {exc}"
        warnings.warn(reason, stacklevel=1)
        pytest.skip(reason)
    yield running
    running.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, "ND96asr_v4")


def findings(record: Json, label: str = "gpu") -> list[t.Any]:
    """Which GPUs or adapters have a metric that is not what it should be."""
    bad = [metric.get(label) for metric in record["metrics"] if metric["verdict"] in ("fail", "error", "warn")]
    return sorted({value for value in bad if value is not None})
