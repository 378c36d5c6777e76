# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import infiniband

FIXTURES = Path(__file__).parents[3] / "fixtures" / "infiniband"


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def tree(root: Path, files: t.Mapping[str, str]) -> str:
    for name, text in files.items():
        path = root / "class" / "infiniband" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return str(root)


def port(device: str, **files: str) -> dict[str, str]:
    told = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}
    return {f"{device}/ports/1/{name}": text for name, text in {**told, **files}.items()}


def test_ibstat() -> None:
    log = infiniband.parse(read("authored-ibstat.txt"))
    assert (log.ok, log.complete, log.cause) == (True, True, None)
    assert [
        (p.device, p.port, p.state, p.physical_state, p.rate_gbps, p.link_layer, p.infiniband, p.active)
        for p in log.ports
    ] == [
        ("mlx5_an0", 1, "Active", "LinkUp", 40.0, "Ethernet", False, True),
        ("mlx5_ib0", 1, "Active", "LinkUp", 200.0, "InfiniBand", True, True),
        ("mlx5_ib1", 1, "Initializing", "LinkUp", 200.0, "InfiniBand", True, False),
        ("mlx5_ib1", 2, "Down", "Polling", 2.5, "InfiniBand", True, False),
    ]
    assert [(p.type, p.firmware, p.sm_lid) for p in log.ports[:3]] == [
        ("MT4120", "16.30.1284", 0),
        ("MT4124", "20.31.2006", 1),
        (None, "20.31.2006", 0),
    ]
    assert infiniband.parse_ibstat(read("authored-ibstat.txt")) == log.ports


def test_ibstatus_uses_the_same_words() -> None:
    first, second = infiniband.parse_ibstatus(read("authored-ibstatus.txt"))
    assert (first.device, first.port, first.state, first.physical_state) == ("mlx5_ib0", 1, "Active", "LinkUp")
    assert (first.rate_gbps, first.rate, first.link_layer, first.sm_lid) == (
        200.0,
        "200 Gb/sec (4X HDR)",
        "InfiniBand",
        1,
    )
    # Kernels without the file know nothing but InfiniBand.
    assert (second.port, second.state, second.physical_state, second.link_layer) == (
        2,
        "Initializing",
        "PhyTest",
        "InfiniBand",
    )


@pytest.mark.parametrize(
    "name, state, physical",
    [
        ("captured-ibstat.txt", "Active", "LinkUp"),
        ("captured-ibstatus.txt", "Active", "LinkUp"),
        ("captured-ibstat-down.txt", "Down", "Disabled"),
        ("captured-ibstatus-down.txt", "Down", "Disabled"),
    ],
)
def test_captured(name: str, state: str, physical: str) -> None:
    log = infiniband.parse(read(name))
    assert log.ok
    assert [(p.device, p.state, p.physical_state, p.rate_gbps, p.link_layer) for p in log.ports] == [
        (device, state, physical, 10.0, "Ethernet") for device in ("rxe0", "rxe1")
    ]


@pytest.mark.parametrize(
    "text, cause",
    [
        ("", None),
        (read("captured-ibstatus-none.txt"), "Fatal error:  No devices"),
        ("ibpanic: [4242] main: stat of IB device 'mlx5_0' failed: No such file or directory\n", "stat of IB device"),
        ("ibpanic: [7] main: can't init UMAD library: (Success)\n", "can't init UMAD library"),
        ("sh: 1: ibstat: not found\n", "ibstat: not found"),
    ],
)
def test_no_device_is_not_ok(text: str, cause: str | None) -> None:
    log = infiniband.parse(text)
    assert (log.ok, log.ports) == (False, [])
    assert (cause is None and log.cause is None) or (
        log.cause is not None and cause is not None and cause in log.cause.text
    )


def test_one_port_without_indentation() -> None:
    text = "CA: 'mlx5_0'\nPort 2:\nState: Armed\nPhysical state: LinkUp\nRate: 100\nLink layer: InfiniBand\n"
    (found,) = infiniband.parse(text).ports
    assert (found.device, found.port, found.state, found.rate_gbps) == ("mlx5_0", 2, "Armed", 100.0)


def test_a_text_that_breaks_off_is_not_complete() -> None:
    log = infiniband.parse(read("authored-ibstat.txt").rsplit("Link layer", 1)[0])
    assert (len(log.ports), log.complete, log.ok) == (4, False, False)


def test_sysfs(tmp_path: Path) -> None:
    files = {
        **port("mlx5_ib10", **{"counters/symbol_error": "3", "counters/port_rcv_data": "18446744073709551615"}),
        **port("mlx5_ib2", state="2: INIT", sm_lid="0x0"),
        **port("mlx5_an0", link_layer="Ethernet", rate="100 Gb/sec (4X EDR)"),
        "mlx5_ib10/fw_ver": "20.31.2006",
        "mlx5_ib10/hca_type": "MT4124",
        "mlx5_ib10/device/numa_node": "1",
        "mlx5_ib10/device/uevent": "DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_SLOT_NAME=0101:00:00.0",
        "mlx5_ib2/device/numa_node": "-1",
    }
    ports = infiniband.read_sysfs(tree(tmp_path, files))
    assert [(p.device, p.state, p.link_layer) for p in ports] == [
        ("mlx5_an0", "Active", "Ethernet"),
        ("mlx5_ib2", "Initializing", "InfiniBand"),
        ("mlx5_ib10", "Active", "InfiniBand"),
    ]
    last = ports[2]
    assert (last.pci, last.numa_node, last.firmware, last.type, last.rate_gbps) == (
        "0101:00:00.0",
        1,
        "20.31.2006",
        "MT4124",
        200.0,
    )
    assert last.counters["symbol_error"] == 3
    assert (ports[1].pci, ports[1].numa_node, ports[1].sm_lid) == (None, None, 0)
    json.dumps([dataclasses.asdict(item) for item in ports], allow_nan=False)


def test_sysfs_links_to_the_pci_device(tmp_path: Path) -> None:
    root = tree(tmp_path, port("mlx5_0"))
    device = tmp_path / "devices/pci0000:00/0000:00:03.0/0000:0b:00.1"
    device.mkdir(parents=True)
    (tmp_path / "class/infiniband/mlx5_0/device").symlink_to(device)
    (found,) = infiniband.read_sysfs(root)
    assert found.pci == "0000:0b:00.1"


def test_sysfs_files_that_cannot_be_read_are_unknown(tmp_path: Path) -> None:
    root = tree(tmp_path, port("mlx5_0"))
    base = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (base / "rate").unlink()
    (base / "counters").mkdir()
    (base / "counters/link_downed").mkdir()  # reading a directory is an error, as is a counter of a port that is down
    (found,) = infiniband.read_sysfs(root)
    assert (found.rate_gbps, found.counters, found.state) == (None, {}, "Active")
    assert infiniband.read_sysfs(str(tmp_path / "nowhere")) == []
