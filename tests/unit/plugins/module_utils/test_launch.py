# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.doc_fragments import launch as fragment
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import per_numa

# ND96asr_v4: local ranks in GPU order for srun, in the order of NUMA nodes for mpirun.
BY_GPU = ["ffffff000000"] * 2 + ["ffffff"] * 2 + ["ffffff000000000000000000"] * 2 + ["ffffff000000000000"] * 2
BY_NUMA = ["ffffff"] * 2 + ["ffffff000000"] * 2 + ["ffffff000000000000"] * 2 + ["ffffff000000000000000000"] * 2
DEVICES = [2, 3, 0, 1, 6, 7, 4, 5]
BLANK: dict[str, t.Any] = {name: option.get("default") for name, option in _launch.SPEC.items()}
TOPOLOGY = "/opt/microsoft/ndv4/topo.xml"


def command(more: t.Mapping[str, t.Any] | None = None, **params: t.Any) -> tuple[str, dict[str, str]]:
    made = _launch.command(
        _launch.read({**BLANK, **params}, job_name="nccl", timeout=90, **(more or {})), ["prog", "-g", "1"]
    )
    return " ".join(made.argv), made.environment


HCOLL = {"OMPI_MCA_coll_hcoll_enable": "0"}
SRUN = "srun --job-name=nccl --kill-on-bad-exit=1 --exclusive --immediate=60 --chdir=/ --time=3 --export=ALL"
FORMS: list[t.Any] = [
    pytest.param({}, "prog -g 1", {}, id="local"),
    pytest.param(
        {"environment": {"NCCL_DEBUG": "INFO", "N": 1}, "visible_devices": DEVICES},
        "prog -g 1",
        {"NCCL_DEBUG": "INFO", "N": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,3,0,1,6,7,4,5"},
        id="local with variables",
    ),
    pytest.param(
        {"launcher": "mpirun", "ranks_per_node": 8},
        "mpirun --map-by ppr:8:node --bind-to none --host localhost:8 --np 8 prog -g 1",
        HCOLL,
        id="mpirun here",
    ),
    pytest.param(
        {
            "launcher": "mpirun",
            "hosts": ["a", "b"],
            "ranks_per_node": 8,
            "cpu_masks": BY_NUMA,
            "visible_devices": DEVICES,
            "environment": {"NCCL_DEBUG": "INFO", "OMPI_MCA_pml": "ucx", "OMPI_MCA_coll_hcoll_enable": "1"},
        },
        "mpirun --map-by ppr:2:numa --bind-to numa --host a:8,b:8 --np 16 -x NCCL_DEBUG -x CUDA_DEVICE_ORDER"
        " -x CUDA_VISIBLE_DEVICES prog -g 1",
        {
            "OMPI_MCA_coll_hcoll_enable": "1",
            "NCCL_DEBUG": "INFO",
            "OMPI_MCA_pml": "ucx",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": "2,3,0,1,6,7,4,5",
        },
        id="mpirun pinned",
    ),
    pytest.param(
        {
            "launcher": "mpirun",
            "launcher_path": "/opt/mpi/bin/mpirun",
            "hostfile": "/etc/hostfile",
            "nodes": 2,
            "launcher_options": {"map-by": "ppr:4:socket", "bind_to": "socket", "report_bindings": True},
        },
        "/opt/mpi/bin/mpirun --map-by ppr:4:socket --bind-to socket --report-bindings --hostfile /etc/hostfile --np 2"
        " prog -g 1",
        HCOLL,
        id="mpirun with options",
    ),
    pytest.param(
        {"launcher": "srun", "nodes": 2, "ranks_per_node": 8, "cpu_masks": BY_GPU, "environment": {"A": "secret"}},
        f"{SRUN} --cpu-bind=mask_cpu:0xffffff000000,0xffffff000000,0xffffff,0xffffff,0xffffff000000000000000000,"
        "0xffffff000000000000000000,0xffffff000000000000,0xffffff000000000000 --nodes=2 --ntasks-per-node=8"
        " --ntasks=16 prog -g 1",
        {**HCOLL, "A": "secret", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        id="srun pinned",
    ),
    pytest.param(
        {
            "launcher": "srun",
            "hosts": ["a", "b"],
            "launcher_options": {"mpi": "pmix", "exclusive": False, "--time": 9, "exclude": ["c", "d"]},
        },
        "srun --job-name=nccl --kill-on-bad-exit=1 --immediate=60 --chdir=/ --time=9 --export=ALL --mpi=pmix"
        " --exclude=c --exclude=d --nodes=2 --ntasks-per-node=1 --ntasks=2 --nodelist=a,b prog -g 1",
        HCOLL,
        id="srun with options",
    ),
    pytest.param(
        {
            "launcher": "srun",
            "nodes": 2,
            "container_image": "nvcr.io#nvidia/pytorch:24.05-py3",
            "container_mounts": ["/shared:/shared"],
            "environment": {"NCCL_TOPO_FILE": TOPOLOGY, "TOKEN": "secret"},
        },
        f"{SRUN} --container-env=OMPI_MCA_coll_hcoll_enable,NCCL_TOPO_FILE,TOKEN --nodes=2 --ntasks-per-node=1"
        " --ntasks=2 --container-image=nvcr.io#nvidia/pytorch:24.05-py3"
        f" --container-mounts=/shared:/shared,{TOPOLOGY}:{TOPOLOGY}:ro prog -g 1",
        {**HCOLL, "NCCL_TOPO_FILE": TOPOLOGY, "TOKEN": "secret"},
        id="container",
    ),
]


@pytest.mark.parametrize(("params", "argv", "environment"), FORMS)
def test_forms(params: dict[str, t.Any], argv: str, environment: dict[str, str]) -> None:
    assert command(**params) == (argv, environment)
    assert "secret" not in argv


def test_inside_a_job_a_step_neither_waits_nor_takes_one_cpu_per_rank() -> None:
    argv = command({"in_job": True}, launcher="srun", nodes=2)[0]
    assert "--exclusive" not in argv
    assert "--immediate" not in argv
    assert "--host" not in command({"in_job": True}, launcher="mpirun", nodes=2, ranks_per_node=8)[0]


def test_only_root_allows_root() -> None:
    assert "--allow-run-as-root" in command({"root": True}, launcher="mpirun")[0]
    assert "--allow-run-as-root" not in command(launcher="mpirun")[0]


@pytest.mark.parametrize(
    ("mounts", "added"),
    [
        ([], True),
        (["/opt/microsoft"], False),
        (["/srv/ms:/opt/microsoft/:ro"], False),
        ([f"/etc/topo.xml:{TOPOLOGY}"], False),
        (["/opt/microsoft:/data"], True),
        (["/opt/micro"], True),
    ],
)
def test_topology_file_is_mounted_once(mounts: list[str], added: bool) -> None:
    more: dict[str, t.Any] = {"container_mounts": mounts, "environment": {"NCCL_TOPO_FILE": TOPOLOGY}}
    argv = command(launcher="srun", container_image="i", **more)[0]
    assert (f"{TOPOLOGY}:{TOPOLOGY}:ro" in argv) is added


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"nodes": 0}, "at least 1"),
        ({"ranks_per_node": 0}, "at least 1"),
        ({"ranks_per_node": 8}, "local does not take more than one rank"),
        ({"nodes": 2}, "local does not take more than one rank"),
        ({"hosts": ["a"]}, "local does not take hosts"),
        ({"cpu_masks": ["f"]}, "local does not take cpu_masks"),
        ({"launcher_options": {"mpi": 1}}, "local does not take launcher_options"),
        ({"container_image": "i"}, "local does not take container_image"),
        ({"launcher": "srun", "container_mounts": ["/a"]}, "without container_image"),
        ({"launcher": "srun", "hostfile": "/h"}, "srun does not take hostfile"),
        ({"launcher": "srun", "hosts": ["a", "b"], "nodes": 3}, "nodes is 3, but hosts names 2"),
        ({"launcher": "srun", "hosts": ["a", "a"]}, "each once"),
        ({"launcher": "srun", "hosts": ["a;b"]}, "plain host names"),
        ({"launcher": "srun", "hosts": ["-w"]}, "plain host names"),
        ({"launcher": "mpirun", "container_image": "i"}, "mpirun does not take container_image"),
        ({"launcher": "mpirun", "nodes": 2}, "needs hosts or hostfile"),
        ({"launcher": "mpirun", "hosts": ["a"], "hostfile": "/h"}, "either hosts or hostfile"),
        ({"launcher": "srun", "ranks_per_node": 2, "cpu_masks": ["f"]}, "2 ranks per node need as many"),
        ({"launcher": "srun", "cpu_masks": ["0"]}, "not zero"),
        ({"launcher": "srun", "cpu_masks": ["0-23"]}, "hexadecimal"),
        ({"launcher": "mpirun", "ranks_per_node": 8, "cpu_masks": BY_GPU}, "rank_masks"),
        ({"launcher": "srun", "launcher_options": {"--nodelist": "a"}}, "nodelist: the module has options of its own"),
        ({"environment": {"A B": "1"}}, "no name"),
        ({"environment": {"A": True}}, "quote the text"),
        ({"environment": {"A": None}}, "quote the text"),
    ],
)
def test_what_makes_no_sense_is_refused(params: dict[str, t.Any], said: str) -> None:
    with pytest.raises(_launch.LaunchError, match=said):
        command(**params)


@pytest.mark.parametrize(("masks", "want"), [(BY_NUMA, 2), (["ff"] * 4 + ["ff00"] * 4, 4), (["5", "a"], 1), (["F"], 1)])
def test_ranks_per_numa_node(masks: list[str], want: int) -> None:
    assert per_numa(masks) == want


@pytest.mark.parametrize("masks", [BY_GPU, ["f", "f", "f0"], ["f", "f0", "f"], ["f", "f1"]])
def test_masks_that_mpirun_cannot_follow(masks: list[str]) -> None:
    with pytest.raises(_launch.LaunchError):
        per_numa(masks)


def test_doc_fragment_is_the_spec() -> None:
    documented = yaml.safe_load(fragment.ModuleDocFragment.DOCUMENTATION)["options"]
    told = {
        name: {key: value for key, value in option.items() if key != "description"}
        for name, option in documented.items()
    }
    assert told == _launch.SPEC
    assert list(told) == list(_launch.SPEC)


def _open_mpi() -> str | None:
    """The display options differ in Open MPI 5."""
    path = shutil.which("mpirun")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout if path else ""
    return path if "(Open MPI) 4." in said else None


@pytest.mark.skipif(not _open_mpi(), reason="Open MPI 4 is not installed")
def test_open_mpi_places_the_ranks_of_an_ndv4_where_their_gpus_are() -> None:
    params = {**BLANK, "launcher": "mpirun", "ranks_per_node": 8, "cpu_masks": BY_NUMA}
    launch = _launch.read({**params, "launcher_options": {"display_map": True, "do_not_launch": True}}, root=True)
    synthetic = {**os.environ, "HWLOC_SYNTHETIC": "pack:2 numa:2 core:24 pu:1"}
    out = subprocess.run(
        _launch.command(launch, ["true"]).argv, capture_output=True, text=True, check=False, env=synthetic, timeout=60
    ).stdout
    first = re.findall(r"Process rank: (\d+) Bound: socket \d\[core (\d+)\[", out)
    last = re.findall(r"Process rank: \d+ .*\[core (\d+)\[hwt 0\]\]:", out)
    assert [int(rank) for rank, dummy in first] == list(range(8))
    bound = [f"{core}-{end}" for (dummy, core), end in zip(first, last)]
    assert bound == ["0-23", "0-23", "24-47", "24-47", "48-71", "48-71", "72-95", "72-95"]


def test_launcher_is_found_with_what_it_needs(tmp_path: Path) -> None:
    mpirun = tmp_path / "hpcx-v2.18-gcc" / "ompi" / "bin" / "mpirun"
    mpirun.parent.mkdir(parents=True)
    mpirun.write_text("#!/bin/sh\n", encoding="utf-8")
    mpirun.chmod(0o755)
    assert _launch.launcher("local") == ("", {})
    assert _launch.launcher("mpirun", str(mpirun)) == (str(mpirun), {"OPAL_PREFIX": str(mpirun.parents[1])})
    launch = _launch.here({**BLANK, "launcher": "mpirun", "launcher_path": str(mpirun)})
    assert launch.environment["OPAL_PREFIX"] == str(mpirun.parents[1])
    with pytest.raises(_launch.NotFound, match="given path"):
        _launch.launcher("srun", "/nowhere/srun")
