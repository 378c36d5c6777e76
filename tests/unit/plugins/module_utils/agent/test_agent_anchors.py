# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the health checks that others ship are known to miss: each of these nodes is called healthy by one of them."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import suite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import inventory
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import World, smi

Json = t.Dict[str, t.Any]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    machines.ndv4_sysfs(tmp_path / "sys")
    return made


def gpus(world: World) -> dict[str, Json]:
    """Return what the inventory of the GPUs says, by check."""
    context: Context = world.context()
    return {one["check"]: one for one in inventory(context)}


@pytest.mark.parametrize(
    ("field", "text", "verdict"),
    [
        ("remapped_row_unc", "600", "fail"),
        ("remapped_row_unc", "512", "pass"),
        ("remapped_row_pending", "Yes", "fail"),
        ("remapped_row_failure", "Yes", "fail"),
    ],
)
def test_1c_a_remapped_rows_are_read_by_name(world: World, field: str, text: str, verdict: str) -> None:
    """AzureNHC asks for three fields and compares the fourth, so 600 uncorrectable rows pass."""
    smi(world, changes={6: {field: text}})
    found = gpus(world)["gpu_remap"]
    assert found["verdict"] == verdict
    assert found["scope"] == ({"gpu": [6]} if verdict == "fail" else {})


def infiniband(folder: Path, rates: t.Sequence[int]) -> None:
    for number, rate in enumerate(rates):
        place = folder / f"sys/class/infiniband/mlx5_ib{number}/ports/1"
        place.mkdir(parents=True, exist_ok=True)
        told = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": f"{rate} Gb/sec", "link_layer": "InfiniBand"}
        for name, text in told.items():
            (place / name).write_text(f"{text}\n")


@pytest.mark.parametrize(("rates", "status"), [([400] * 8, 0), ([400] * 7 + [100], 1), ([400] * 7, 1)])
def test_1c_b_a_slow_adapter_ends_the_suite_with_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rates: t.Sequence[int], status: int
) -> None:
    """AzureNHC logs an adapter at 100 of 400 Gb/s as an error and ends with 0: its shell is in the background."""
    infiniband(tmp_path, rates)
    profile = load("Standard_ND96isr_H100_v5")
    told = {"schema": 1, "node": "n1", "profile": profile, "sysfs": str(tmp_path / "sys"), "proc": str(tmp_path)}
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**told, "spool": str(tmp_path / "spool")}))
    asked = ["boot", "--config", str(path), "--check", "infiniband_ports", "--json"]
    assert suite.main(asked) == status
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found["verdict"] == "fail") is bool(status)
    assert found["class"] == (("hardware" if len(rates) < 8 else "fabric") if status else None)


def test_1c_c_an_xid_that_was_seen_before_is_no_success(world: World) -> None:
    """AzureNHC fails the first run and passes the second: already reported counts as success."""
    line = "4,9,9000000,c;NVRM: Xid (PCI:0003:00:00): 79, pid=4321, GPU has fallen off the bus.\n"
    world.settings["kernel_log"] = str(world.file("kern.log", line))
    assert [world.one("gpu_xid")["verdict"] for dummy in range(3)] == ["fail"] * 3


def test_1c_contained_and_uncontained_memory_errors_are_known(world: World) -> None:
    """AzureNHC has fault codes for Xid 94 and 95, and does not look for them."""
    lines = [f"4,9,9000000,c;NVRM: Xid (PCI:0001:00:00): {code}, pid=7, name=python3, Contained\n" for code in (94, 95)]
    world.settings["kernel_log"] = str(world.file("kern.log", "".join(lines)))
    found = {one["context"]["code"]: one["verdict"] for one in world.run("gpu_xid")}
    assert found == {94: "warn", 95: "fail"}


def test_an_unknown_machine_type_never_passes(tmp_path: Path) -> None:
    """AzureNHC ends with 0 where it has no file for the SKU, LBNL NHC where it has no configuration."""
    world = World(tmp_path, "Standard_ND999_v9")
    machines.ndv4_sysfs(tmp_path / "sys")
    smi(world)
    assert (world.one("profile")["verdict"], world.one("profile")["class"]) == ("error", "infra")
    assert gpus(world)["gpu_count"]["verdict"] == "unjudged"


def test_seven_gpus_are_not_what_the_node_says_it_has(world: World) -> None:
    """Where the expectation comes from the node's own facts, a node that boots with 7 GPUs is healthy for ever."""
    domains = [*machines.NDV4_DOMAINS[:2], *machines.NDV4_DOMAINS[3:]]
    smi(world, domains=domains)
    found = gpus(world)["gpu_count"]
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert "7 of 8 GPUs answer" in found["reason"]


def test_numbers_are_compared_as_numbers(world: World) -> None:
    """A string comparison passes 9.8 where 22 is needed: here 9 rows and 10,001 errors are what they are."""
    smi(world, machines.A100_R535, {0: {"remapped_row_unc": "9", "sram_correctable": "10001"}})
    assert gpus(world)["gpu_remap"]["verdict"] == "pass"
    assert world.one("gpu_memory_errors")["verdict"] == "fail"


@pytest.mark.parametrize("check", ["gpu_memory_errors", "gpu_persistence", "gpu_idle"])
def test_a_checker_without_its_tool_is_no_healthy_node(world: World, check: str) -> None:
    """soperator's runner ends with 0 where its checker could not run."""
    smi(world, answer="")
    assert (world.one(check)["verdict"], world.one(check)["class"]) == ("error", "infra")


def test_a_gpu_that_fell_off_the_bus_keeps_jobs_away_until_the_node_has_booted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ring buffer forgets; the prologs after it do not, and a new boot does."""
    machines.ndv4_sysfs(tmp_path / "sys")
    world = {
        "proc/stat": "btime 1795290000\n",
        "proc/mounts": "/dev/sda1 / ext4 rw 0 0\n",
        "kern.log": "5,0,0,-;Linux\n",
    }
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("first\n")
    for name, text in world.items():
        (tmp_path / name).write_text(text)
    places = {name: str(tmp_path / place) for name, place in (("sysfs", "sys"), ("proc", "proc"), ("spool", "spool"))}
    told = {"schema": 1, "node": "n1", "profile": load("Standard_ND96asr_v4"), "kernel_log": str(tmp_path / "kern.log")}
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**told, **places}))

    def run(name: str) -> int:
        asked = [name, "--config", str(path), "--check", "gpu_xid", "--check", "latches", "--json"]
        return suite.main(asked)

    assert run("prolog") == 0
    (tmp_path / "kern.log").write_text(
        "4,9,9000000,c;NVRM: Xid (PCI:0003:00:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    assert [run("periodic"), run("prolog")] == [0, 1]
    (tmp_path / "kern.log").write_text("6,10,9999000000,-;everything else\n")
    capsys.readouterr()
    assert run("prolog") == 1
    (told_again,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told_again["context"]["code"], told_again["scope"]) == (79, {"gpu": [2]})
    boot.write_text("second\n")
    assert run("prolog") == 0
