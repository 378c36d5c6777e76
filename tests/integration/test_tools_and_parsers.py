# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulated tools and the parsers agree: what a tool printed is what the parser read, intact and broken."""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

import pytest
from conftest import Cluster

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import (
    bandwidth_test,
    fio,
    hpl,
    infiniband,
    nccl_tests,
    nvbandwidth,
    nvidia_smi,
    perftest,
)

CSV = "index,pci.bus_id,persistence_mode,clocks.max.gr,clocks.gr,clocks_throttle_reasons.active"
HPL_DAT = """HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out      output file name (if any)
6            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{n}          Ns
1            # of NBs
1024         NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
{p}          Ps
{q}          Qs
16.0         threshold
"""


def test_a_tool_is_the_same_by_itself_and_as_a_fork(cluster: Cluster) -> None:
    link = cluster.directory / "bin/nvidia-smi"
    forked, lost = cluster.tool("nvidia-smi", "-L"), cluster.tool("nvidia-smi", "-i", "99", rc=None)
    assert forked.stdout.count("UUID") == 8 and lost.returncode
    emulate = link.resolve()
    emulate.write_text(re.sub(r"'[^']*/socket'", "'/nonexistent'", emulate.read_text()))
    alone, lost_alone = cluster.tool("nvidia-smi", "-L"), cluster.tool("nvidia-smi", "-i", "99", rc=None)
    ends = [(done.returncode, done.stdout, done.stderr) for done in (forked, lost, alone, lost_alone)]
    assert ends[:2] == ends[2:]


def test_every_gpu_as_xml(cluster: Cluster) -> None:
    cluster.damage(
        ecc={"2": 7}, throttle={"3": "0x48"}, hot={"4": 96}, pcie_width={"5": 8}, remap={"6": "failed"},
        processes=[{"gpu": 7, "pid": 4711, "name": "python3", "memory_mib": 512}],
    )  # fmt: skip
    log = nvidia_smi.parse_xml(cluster.tool("nvidia-smi", "-q", "-x").stdout)
    assert log.ok, log.cause
    gpus = log.runs[0].gpus
    assert [gpu.bus_id for gpu in gpus][4] == "0000000B:00:00.0"
    assert {gpu.name for gpu in gpus} == {"NVIDIA A100-SXM4-40GB"}
    assert [gpu.ecc.volatile_uncorrected for gpu in gpus] == [0, 0, 7, 0, 0, 0, 0, 0]
    assert gpus[3].throttle_mask == 0x48
    assert gpus[4].temperature_c == 96
    assert [gpu.pcie.width for gpu in gpus] == [16, 16, 16, 16, 16, 8, 16, 16]
    assert gpus[6].repairs.remap_failed is True
    assert [(one.pid, one.memory_mib) for one in gpus[7].processes] == [(4711, 512)]
    assert (gpus[0].max_clocks.graphics_mhz, gpus[0].application_clocks.graphics_mhz) == (1410, 1095)


def test_every_gpu_as_text(cluster: Cluster) -> None:
    log = nvidia_smi.parse_query(cluster.tool("nvidia-smi", "-q").stdout)
    assert log.ok, log.cause
    assert len(log.runs[0].gpus) == 8


def test_every_gpu_as_table(cluster: Cluster) -> None:
    log = nvidia_smi.parse_csv(cluster.tool("nvidia-smi", f"--query-gpu={CSV}", "--format=csv").stdout)
    assert log.ok, log.cause
    assert len(log.runs[0].rows) == 8


def test_wiring(cluster: Cluster) -> None:
    log = nvidia_smi.parse_topo(cluster.tool("nvidia-smi", "topo", "-m").stdout)
    assert log.ok, log.cause
    text = json.dumps([str(one) for one in log.runs])
    assert "24-47" in text and "NV12" in text and "mlx5_ib7" in text
    cluster.damage(nvlink_down={"6": [2, 3]})
    assert "NV10" in cluster.tool("nvidia-smi", "topo", "-m").stdout
    links = nvidia_smi.parse_nvlink(cluster.tool("nvidia-smi", "nvlink", "-s").stdout)
    assert links.runs, links.cause


@pytest.mark.parametrize(
    ("faults", "status", "words"),
    [
        ({"failing": "driver"}, 9, "couldn't communicate"),
        ({"failing": "mismatch"}, 18, "mismatch"),
        ({"failing": "no_devices"}, 6, "No devices"),
        ({"lost_gpu": [4]}, 15, "GPU is lost"),
    ],
)
def test_complaints(cluster: Cluster, faults: dict[str, object], status: int, words: str) -> None:
    cluster.damage(**faults)
    said = cluster.tool("nvidia-smi", "-q", "-x", rc=status).stdout
    message = nvidia_smi.message(said.splitlines()[0])
    assert message is not None
    assert words in message.text


def test_clocks_are_kept_and_clipped(cluster: Cluster) -> None:
    def clocks() -> list[str]:
        fields = "--query-gpu=clocks.gr,clocks.applications.gr,persistence_mode"
        return cluster.tool("nvidia-smi", fields, "--format=csv,noheader,nounits").stdout.splitlines()

    assert clocks() == ["210, 1095, Enabled"] * 8
    cluster.tool("nvidia-smi", "-i", "1", "-pm", "0")
    assert cluster.tool("nvidia-smi", "-lgc", "1410").stdout.count("gpuClkMin 1410, gpuClkMax 1410") == 8
    cluster.tool("nvidia-smi", "-ac", "1215,1395")
    assert clocks() == ["1410, 1395, Enabled", "1410, 1395, Disabled", *["1410, 1395, Enabled"] * 6]
    cluster.damage(clipped_clocks={"3": 1275})
    assert clocks()[2:5] == ["1410, 1395, Enabled", "1275, 1275, Enabled", "1410, 1395, Enabled"]
    cluster.tool("nvidia-smi", "-rgc")
    cluster.tool("nvidia-smi", "-rac")
    assert clocks()[0] == "210, 1095, Enabled"
    assert "is not supported" in cluster.tool("nvidia-smi", "-ac", "1215,1411", rc=2).stdout
    cluster.damage(no_locked_clocks=True)
    assert "is not supported" in cluster.tool("nvidia-smi", "-lgc", "1410", rc=3).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_clocks_are_not_for_everybody(cluster: Cluster, let_others_pass: t.Callable[[Path], None]) -> None:
    let_others_pass(cluster.directory)
    command = ["setpriv", "--reuid=65534", "--clear-groups", "nvidia-smi"]
    assert "does not have permission" in cluster.tool(*command, "-lgc", "1410", rc=4).stdout
    assert "Insufficient Permissions" in cluster.tool(*command, "-pm", "0", rc=4).stdout


@pytest.mark.parametrize("form", [[], ["--json"], ["--verbose"]])
def test_nvbandwidth(cluster: Cluster, form: list[str]) -> None:
    cluster.damage(slow_gpu={"6": 0.5})
    tests = ["host_to_device_memcpy_ce", "device_to_device_bidirectional_memcpy_read_ce", "device_local_copy"]
    log = nvbandwidth.parse(cluster.tool("nvbandwidth", *form, "-t", *tests).stdout)
    assert log.ok, log.cause
    first = log.runs[0].tests[0]
    assert (first.name, first.unit) == (tests[0], "GB/s")
    values = first.matrices[0][0]
    assert [index for index, value in enumerate(values) if value is not None and value < 20] == [6]
    assert [test.name for test in log.runs[0].tests] == tests


def test_nvbandwidth_refuses(cluster: Cluster) -> None:
    assert not nvbandwidth.parse(cluster.tool("nvbandwidth", "-t", "nonsense").stdout).ok
    lonely = cluster.tool("nvbandwidth", "-t", "device_to_device_memcpy_read_ce", CUDA_VISIBLE_DEVICES="0")
    assert not nvbandwidth.parse(lonely.stdout).ok
    nothing = cluster.tool("nvbandwidth", rc=1, CUDA_VISIBLE_DEVICES="")
    cause = nvbandwidth.parse(nothing.stdout + nothing.stderr).cause
    assert cause is not None and "no CUDA-capable device" in cause.text
    cluster.tool("nvbandwidth", "--nonsense", rc=1)


@pytest.mark.parametrize(
    ("options", "rows"), [([], 1), (["--mode=shmoo"], 81), (["--csv"], 1), (["--wc", "--htod"], 1)]
)
def test_bandwidth_test(cluster: Cluster, options: list[str], rows: int) -> None:
    cluster.add("bandwidthTest")
    log = bandwidth_test.parse(cluster.tool("bandwidthTest", "--device=2", *options).stdout)
    assert log.ok, log.cause
    assert log.runs[0].device == 2
    assert {len(block.rows) for block in log.runs[0].blocks} == {rows}


def test_copies_are_slower_far_from_the_gpu(cluster: Cluster) -> None:
    cluster.add("bandwidthTest")

    def speed(*front: str) -> float:
        log = bandwidth_test.parse(cluster.tool(*front, "bandwidthTest", "--device=0", "--htod").stdout)
        return float(log.runs[0].blocks[0].rows[0].printed or 0)

    assert speed("numactl", "--cpunodebind=1", "--membind=1") > 25 > 20 > speed("numactl", "-N", "0") == speed()
    assert speed("taskset", "-c", "24-47") > 25
    assert "out of range" in cluster.tool("numactl", "--physcpubind=96-99", "true", rc=1).stderr


def test_nccl_json(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("log.json", "log.json.0"):
        said = cluster.tool("all_reduce_perf", "-g", "8", "-b", "1M", "-J", str(tmp_path / "log.json")).stdout
        assert f"# Writing JSON output to {tmp_path / name}" in said
        log = nccl_tests.parse_json((tmp_path / name).read_text())
        assert log.ok, log.cause
        assert log.runs[0].peak_busbw == pytest.approx(nccl_tests.parse(said).runs[0].peak_busbw, rel=0.01)
        assert log.runs[0].ranks == 8


def test_hpl(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "HPL.dat").write_text(HPL_DAT.format(n=264192, p=4, q=2))
    run = ["sh", "-c", f"cd {tmp_path} && mpirun --np 8 xhpl"]
    log = hpl.parse(cluster.tool(*run).stdout)
    assert log.ok, log.cause
    row = log.runs[0].rows[0]
    assert (row.n, row.p, row.q) == (264192, 4, 2)
    assert 95e3 < row.gflops < 105e3
    cluster.damage(hpl_failed=True)
    assert not hpl.parse(cluster.tool(*run).stdout).ok
    cluster.tool("sh", "-c", f"cd {tmp_path} && xhpl", rc=1)


def test_infiniband(cluster: Cluster) -> None:
    cluster.damage(ib_down=["mlx5_ib3"])
    ports = infiniband.parse_ibstat(cluster.tool("ibstat").stdout)
    assert len(ports) == 9
    for one, other in zip(sorted(ports, key=str), sorted(infiniband.read_sysfs(cluster.sysfs), key=str)):
        assert (one.device, one.state, one.rate_gbps, one.link_layer) == (
            other.device, other.state, other.rate_gbps, other.link_layer,
        )  # fmt: skip
    assert [port.device for port in ports if not (port.state or "").lower().startswith("active")] == ["mlx5_ib3"]
    cluster.tool("ibstat", "mlx5_ib9", rc=255)


def test_perftest_alone(cluster: Cluster) -> None:
    cluster.damage(ib_down=["mlx5_ib3"])
    for options, words in (
        (["-d", "mlx5_ib0", "-p", "1", "localhost"], "Couldn't connect to localhost:1"),
        (["-d", "mlx5_ib9"], "Unable to find the Infiniband/RoCE device"),
        (["-d", "mlx5_ib3"], "Down"),
    ):
        done = cluster.tool("ib_write_bw", *options, rc=1)
        assert words in done.stderr
        log = perftest.parse(done.stdout + done.stderr)
        assert not log.ok and log.cause is not None


@pytest.mark.parametrize("way", ["read", "write"])
def test_fio(cluster: Cluster, way: str) -> None:
    done = cluster.tool("fio", "--name=x", f"--rw={way}", "--bs=1m", "--directory=/tmp", "--output-format=json")
    log = fio.parse(done.stdout)
    assert log.ok, log.cause
    cluster.tool("fio", "--name=x", "--rw=read", "--directory=/nonexistent", "--output-format=json", rc=1)


def test_faults_are_known(cluster: Cluster) -> None:
    (cluster.directory / "faults.json").write_text('{"slow_gpus": {"1": 0.5}}')
    assert "slow_gpus unknown" in cluster.tool("nvidia-smi", "-L", rc=1).stderr


def test_a_repaired_node_is_sound(cluster: Cluster) -> None:
    before = cluster.tool("find", "-L", str(cluster.directory / "sys/c1/"), "-type", "f").stdout
    cluster.damage(ib_down=["mlx5_ib3"], missing_gpu=[2])
    assert cluster.tool("nvidia-smi", "-L").stdout.count("GPU ") == 7
    assert not (Path(cluster.sysfs) / "bus/pci/devices/0003:00:00.0").exists()
    assert (cluster.directory / "sys/c2/bus/pci/devices/0003:00:00.0").exists()
    cluster.damage()
    assert cluster.tool("nvidia-smi", "-L").stdout.count("GPU ") == 8
    assert cluster.tool("find", "-L", str(cluster.directory / "sys/c1/"), "-type", "f").stdout == before
