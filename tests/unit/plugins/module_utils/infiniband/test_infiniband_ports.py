# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CheckError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import info
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.infiniband import Port
from ansible_collections.hpcai.gpu_cluster.plugins.modules import infiniband_info
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import documented

FIXTURES = Path(__file__).parents[3] / "fixtures" / "infiniband"
RATE = {"check": "infiniband_ports", "metric": "rate", "op": ">=", "value": 200, "unit": "Gb/s", "source": "test"}
EIGHT = {**RATE, "metric": "active", "op": "==", "value": 8, "unit": "ports"}
ABOUT: dict[str, t.Any] = {"node": "n", "time": 1.0, "run": "r"}
POLLING = {"state": "Down", "physical_state": "Polling", "rate_gbps": 10.0, "rate": "10 Gb/sec (4X SDR)"}


def nic(number: int, **changes: t.Any) -> Port:
    told = {"state": "Active", "physical_state": "LinkUp", "rate_gbps": 200.0, "rate": "200 Gb/sec (4X HDR)"}
    return Port(f"mlx5_ib{number}", 1, **{**told, "link_layer": "InfiniBand", **changes})


ETHERNET = Port("mlx5_an0", 1, "Active", "LinkUp", 100.0, "100 Gb/sec (4X EDR)", "Ethernet")


def result(
    listed: t.Sequence[Port], *expect: t.Any, wanted: int = 0, devices: t.Sequence[str] = (), **more: t.Any
) -> t.Any:
    return info.result(info.ObservedPorts(listed, "sysfs", **more), wanted, devices, expect, ABOUT)


def check(listed: t.Sequence[Port], *expect: t.Any, **more: t.Any) -> t.Any:
    return result(listed, *expect, **more)["checks"][0]


def values(record: t.Any) -> dict[str, t.Any]:
    return {f"{m['name']} {m.get('nic', '')}".strip(): m["value"] for m in record["metrics"]}


def test_a_healthy_node() -> None:
    found = result([ETHERNET, *(nic(number) for number in range(8))], RATE, EIGHT, wanted=8)
    (record,) = found["checks"]
    assert (record["verdict"], record["reason"], record["scope"]) == ("pass", "", {})
    assert values(record) == {"active": 8, **{f"rate mlx5_ib{number}": 200.0 for number in range(8)}}
    assert ([p["device"] for p in found["others"]], len(found["ports"]), found["source"]) == (["mlx5_an0"], 8, "sysfs")
    assert record["samples"][0]["nic"] == "mlx5_ib0"
    json.dumps(found)


@pytest.mark.parametrize(
    "state, physical, advice",
    [
        ("Initializing", "LinkUp", "no subnet manager"),
        ("Armed", "LinkUp", "subnet manager has not finished"),
        ("Down", "Polling", "cable"),
        ("Down", "Disabled", "switched off"),
        ("Active", "LinkErrorRecovery", "recovers from errors"),
        ("Strange", "LinkUp", "Strange, LinkUp"),
        (None, None, "state unknown, physical state unknown"),
    ],
)
def test_a_bad_port_is_named_with_what_to_look_at(state: str | None, physical: str | None, advice: str) -> None:
    record = check([nic(0), nic(1, state=state, physical_state=physical)], RATE, wanted=2)
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "fabric", {"nic": ["mlx5_ib1"]})
    assert record["reason"].startswith("mlx5_ib1: ")
    assert advice in record["reason"]
    # It may still show the rate that it had.
    assert values(record) == {"active": 1, "rate mlx5_ib0": 200.0, "rate mlx5_ib1": 0.0}


def test_a_slow_port() -> None:
    slow = nic(3, rate_gbps=100.0, rate="100 Gb/sec (2X HDR)")
    record = check([nic(0), slow], RATE, wanted=2)
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "fabric", {"nic": ["mlx5_ib3"]})
    assert record["reason"] == "mlx5_ib3: the link came up at 100 Gb/sec (2X HDR)"


@pytest.mark.parametrize(
    "more, blame, says",
    [
        ({}, "hardware", "1 InfiniBand port is missing"),
        ({"devices": ["mlx5_ib0", "mlx5_ib7"]}, "hardware", "1 InfiniBand port is missing: mlx5_ib7"),
        ({"adapters": 2}, "software", "no driver has them"),
    ],
)
def test_a_missing_port(more: dict[str, t.Any], blame: str, says: str) -> None:
    record = check([nic(0)], RATE, wanted=2, **more)
    assert (record["verdict"], record["class"]) == ("fail", blame)
    assert says in record["reason"]
    assert record["scope"] == ({"nic": ["mlx5_ib7"]} if "devices" in more else {})


def test_a_named_device_that_is_missing_fails_without_any_limit() -> None:
    record = check([nic(0)], devices=["mlx5_ib0", "mlx5_ib1"])
    assert (record["verdict"], values(record)["rate mlx5_ib1"]) == ("fail", None)


def test_another_port_does_not_make_up_for_a_named_one() -> None:
    record = check([nic(0), nic(9)], wanted=2, devices=["mlx5_ib0", "mlx5_ib1"])
    assert (record["verdict"], record["scope"]) == ("fail", {"nic": ["mlx5_ib1"]})


def test_all_ports_of_a_named_device_must_be_up() -> None:
    both = [Port("mlx4_0", number, "Active", "LinkUp", 40.0, "40 Gb/sec (4X QDR)", "InfiniBand") for number in (1, 2)]
    record = check(both, devices=["mlx4_0"])
    assert (record["verdict"], list(values(record))) == ("pass", ["active", "rate mlx4_0:1", "rate mlx4_0:2"])


def test_more_ports_than_planned() -> None:
    record = check([nic(0), nic(1)], wanted=1)
    assert (record["verdict"], record["reason"]) == ("fail", "active: 2 ports, expected == 1")


def test_without_expectation_nothing_passes() -> None:
    record = check([nic(0), nic(1, **POLLING)])
    assert (record["verdict"], record["scope"]) == ("unjudged", {"nic": ["mlx5_ib1"]})
    assert "mlx5_ib1: Down, Polling" in record["reason"]


def test_ethernet_never_counts() -> None:
    record = check([ETHERNET], wanted=1)
    assert (record["verdict"], values(record)) == ("fail", {"active": 0})
    assert "mlx5_an0 is Ethernet" in record["reason"]


@pytest.mark.parametrize(
    "listed, reason", [([], "no InfiniBand"), ([ETHERNET], "no InfiniBand (mlx5_an0 is Ethernet)")]
)
def test_none_and_none_expected(listed: list[Port], reason: str) -> None:
    record = check(listed)
    assert (record["verdict"], record["reason"]) == ("skipped", reason)


def test_none_but_expected() -> None:
    assert check([], wanted=8)["verdict"] == "fail"
    assert check([], EIGHT)["verdict"] == "fail"


def test_errors_are_facts() -> None:
    record = check([nic(0, counters={"symbol_error": 7, "link_downed": 0, "port_rcv_data": 99})])
    assert record["samples"][0]["errors"] == {"symbol_error": 7}


def sysfs(root: Path, *listed: Port, adapters: int = 0) -> str:
    for port in listed:
        base = root / "class/infiniband" / port.device / "ports" / str(port.port)
        base.mkdir(parents=True)
        told = {"state": f"4: {port.state}".upper(), "phys_state": f"5: {port.physical_state}"}
        for name, text in {**told, "rate": port.rate, "link_layer": port.link_layer}.items():
            (base / name).write_text(f"{text}\n")
    for number in range(adapters):
        device = root / f"bus/pci/devices/0101:00:0{number}.0"
        device.mkdir(parents=True)
        (device / "class").write_text("0x020700\n")
    return str(root)


def params(**changes: t.Any) -> dict[str, t.Any]:
    return {**{name: spec.get("default") for name, spec in info.SPEC.items()}, "name": "gpu-001", **changes}


def no_program(argv: t.Sequence[str], timeout: float) -> Outcome:
    raise AssertionError(argv)


def test_sysfs_comes_first(tmp_path: Path) -> None:
    found = info.perform(params(sysfs=sysfs(tmp_path, nic(0), ETHERNET)), no_program)
    assert (found["source"], found["argv"], len(found["ports"]), len(found["others"])) == ("sysfs", [], 1, 1)
    assert (found["checks"][0]["node"], found["checks"][0]["context"]["tool"]) == ("gpu-001", "sysfs")


def test_adapters_without_driver(tmp_path: Path) -> None:
    root = sysfs(tmp_path, adapters=2)
    assert info.pci_adapters(root) == 2
    record = info.perform(params(sysfs=root, ports=2), no_program)["checks"][0]
    assert (record["verdict"], record["class"]) == ("fail", "software")


def ibstat(tmp_path: Path, outcome: Outcome, **changes: t.Any) -> t.Any:
    program = tmp_path / "ibstat"
    program.write_text("")
    program.chmod(0o755)

    def runner(argv: t.Sequence[str], timeout: float) -> Outcome:
        assert (list(argv), timeout) == ([str(program)], 20)
        return outcome

    return info.perform(params(sysfs=str(tmp_path), ibstat=str(program), **changes), runner)


def test_ibstat_is_asked_where_sysfs_knows_nothing(tmp_path: Path) -> None:
    found = ibstat(tmp_path, Outcome(0, (FIXTURES / "authored-ibstat.txt").read_text(), "", 0.1), ports=3)
    (record,) = found["checks"]
    assert (found["source"], found["argv"], record["verdict"]) == ("ibstat", [str(tmp_path / "ibstat")], "fail")
    assert values(record) == {"active": 1, "rate mlx5_ib0": 200.0, "rate mlx5_ib1:1": 0.0, "rate mlx5_ib1:2": 0.0}
    assert "mlx5_ib1:1: Initializing, LinkUp (no subnet manager" in record["reason"]
    assert record["scope"] == {"nic": ["mlx5_ib1:1", "mlx5_ib1:2"]}


@pytest.mark.parametrize(
    "outcome, verdict, says",
    [
        (Outcome(0, "", "", 0.1), "fail", "1 InfiniBand port is missing"),
        (
            Outcome(255, "", "ibpanic: [1] main: stat of IB device 'mlx5_0' failed: No such file", 0.1),
            "fail",
            "stat of IB device",
        ),
        (Outcome(None, "", "ibstat did not end within 20 s", 20.0), "error", "did not end within 20 s"),
    ],
)
def test_what_ibstat_cannot_tell(tmp_path: Path, outcome: Outcome, verdict: str, says: str) -> None:
    (record,) = ibstat(tmp_path, outcome, ports=1)["checks"]
    assert record["verdict"] == verdict
    assert says in record["reason"]


def test_another_machine_is_never_answered_for_by_this_one(tmp_path: Path) -> None:
    assert info.read(str(tmp_path), None, 1, no_program).source is None


def test_options_that_make_no_sense() -> None:
    with pytest.raises(CheckError, match="ports is -1"):
        info.perform(params(ports=-1), no_program)
    with pytest.raises(CheckError, match="lacks"):
        info.perform(params(expect=[{"check": "infiniband_ports"}]), no_program)


def test_documentation_and_spec_agree() -> None:
    assert documented(infiniband_info) == info.SPEC
    returned = {"checks", "ports", "others", "source", "argv", "environment"}
    assert returned == set(yaml.safe_load(infiniband_info.RETURN)) == set(result([nic(0)]))
