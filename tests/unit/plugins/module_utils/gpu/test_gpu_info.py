# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from stand_in import answer

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import info
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import (
    GpuCheckOptions,
    SmiReading,
    expected,
    listing,
    read,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi.machines import A100_R470, Card

IDS = machines.bus_ids(machines.NDV4_DOMAINS)
PLACES = expected(machines.NDV4_PROFILE)
NICS = [f"mlx5_ib{index}" for index in range(8)]
FULL = GpuCheckOptions("n1", 8, "A100-SXM4-40GB", PLACES)
NOTHING = GpuCheckOptions("n1")
DRIVER_GONE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


class Smi:
    """Answers as nvidia-smi does; None hangs."""

    def __init__(self, query: str | None, topo: str | None = None, nvlink: str | None = None, rc: int = 0) -> None:
        self.answers = {"-q": query, "topo": topo, "nvlink": nvlink}
        self.asked: list[list[str]] = []
        self.rc = rc

    def __call__(self, argv: t.Sequence[str], timeout: float, data: t.Any, environment: t.Any) -> Outcome:
        self.asked.append(list(argv))
        out = self.answers[argv[1]]
        if out is None:
            return Outcome(None, "", f"{argv[0]} did not end within {timeout:g} s", timeout)
        return Outcome(self.rc, out, "", 0.1)

    def read(self) -> SmiReading:
        return read(None, 5, None, self, lambda *words, **options: "/usr/bin/nvidia-smi")


def ndv4(card: Card = A100_R470, **changes: t.Any) -> Smi:
    """Return the nvidia-smi of a sound ND96asr_v4, with what is broken about it."""
    affinity = [(f"{24 * node}-{24 * node + 23}", str(node), "N/A") for node in machines.NDV4_NUMA]
    return Smi(
        changes.get("before", "")
        + machines.document(card, IDS, changes.get("values"), changes.get("attached"), changes.get("lost", ())),
        machines.matrix(changes.get("links", {}), affinity, NICS, renamed=True),
        machines.nvlink(card, 8, 12, down=changes.get("down", ())),
    )


@pytest.fixture
def sysfs(tmp_path: Path) -> str:
    return machines.ndv4_sysfs(tmp_path / "sys")


def judged(
    smi: Smi | SmiReading,
    root: str,
    options: GpuCheckOptions = FULL,
    users: t.Any = None,
    proc: str = "/nowhere",
    split: bool = False,
) -> dict[str, t.Any]:
    reading = smi if isinstance(smi, SmiReading) else smi.read()
    seen = info.see(reading, options, root, users, proc)
    found = info.result(seen, options, list(info.CHECKS), 1.0, 2.0, split)
    json.dumps(found, allow_nan=False)
    return {**found, "checks": {check["check"]: check for check in found["checks"]}}


def limit(check: str, metric: str, op: str, value: float, unit: str) -> dict[str, t.Any]:
    return {"check": check, "metric": metric, "op": op, "value": value, "unit": unit, "source": "test"}


# A sound machine


def test_a_sound_machine(sysfs: str) -> None:
    smi = ndv4()
    found = judged(smi, sysfs)
    verdicts = {name: check["verdict"] for name, check in found["checks"].items()}
    asked = {"gpu_count": "pass", "gpu_model": "pass", "gpu_topology": "pass", "gpu_pinning": "skipped"}
    assert verdicts == {**dict.fromkeys(info.CHECKS, "unjudged"), **asked}
    assert (
        [argv[1:] for argv in smi.asked]
        == [["-q", "-x"], ["topo", "-m"], ["nvlink", "-s"]]
        == [argv[1:] for argv in found["argv"]]
    )
    assert (found["driver"], found["cuda"], found["missing"]) == ("470.82.01", "11.4", [])
    assert found["checks"]["gpu_temperature"]["reason"] == "nothing is expected of it"
    assert [gpu["index"] for gpu in found["gpus"]] == list(range(8))
    assert found["gpus"][4]["bus_id"] == "0000000B:00:00.0"
    assert found["cpu_masks"][:3] == ["ffffff000000", "ffffff000000", "ffffff"]
    assert found["binding"]["visible_devices"] == [2, 3, 0, 1, 6, 7, 4, 5]
    assert found["binding"]["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    record = found["checks"]["gpu_topology"]
    assert (record["node"], record["time"], record["seconds"]) == ("n1", 1.0, 2.0)
    assert record["context"]["argv"] == found["argv"] and record["context"]["driver"] == "470.82.01"
    row = record["samples"][4]
    assert {key: row[key] for key in ("gpu", "numa_node", "cpus", "nics")} == {
        "gpu": 4,
        "numa_node": 3,
        "cpus": "72-95",
        "nics": ["mlx5_ib4"],
    }
    assert row["links"]["GPU0"] == "NV12" and row["links"]["mlx5_ib0"] == "SYS"


def test_every_planned_gpu_has_its_metrics(sysfs: str) -> None:
    found = judged(ndv4(), sysfs)
    labels = {
        name: sorted({metric["gpu"] for metric in check["metrics"] if "gpu" in metric})
        for name, check in found["checks"].items()
    }
    one = ("gpu_count", "gpu_topology", "gpu_pinning")
    assert labels == {name: [] if name in one else list(range(8)) for name in info.CHECKS}


def test_split_masks(sysfs: str) -> None:
    assert judged(ndv4(), sysfs, split=True)["cpu_masks"][:2] == ["fff000000", "fff000000000"]


# What one GPU says of itself


@pytest.mark.parametrize(
    "check, values, expectation, verdict, reason",
    [
        ("gpu_ecc", {"sram_uncorrectable": "1"}, ("volatile_uncorrected", "==", 0, "errors"), "fail", "1 errors"),
        (
            "gpu_remap",
            {"remapped_row_failure": "Yes"},
            ("remap_failed", "==", 0, "flags"),
            "fail",
            "remap_failed (gpu=3): 1",
        ),
        (
            "gpu_remap",
            {"remapped_row_pending": "Yes"},
            ("remap_pending", "==", 0, "flags"),
            "fail",
            "remap_pending (gpu=3)",
        ),
        ("gpu_remap", {"remapped_row_unc": "600"}, ("remapped_uncorrectable", "<=", 512, "rows"), "fail", "600 rows"),
        ("gpu_remap", {"remapped_rows": "N/A"}, ("remap_failed", "==", 0, "flags"), "error", "(gpu=3): not measured"),
        ("gpu_pcie", {"current_link_width": "8x"}, ("width", "==", 16, "lanes"), "fail", "width (gpu=3): 8 lanes"),
        ("gpu_pcie", {"max_link_gen": "3"}, ("generation_max", "==", 4, "generation"), "fail", "3 generation"),
        ("gpu_pcie", {"current_link_gen": "1"}, ("generation_max", "==", 4, "generation"), "pass", ""),
        ("gpu_temperature", {"gpu_temp": "95 C"}, ("temperature", "<=", 93, "C"), "fail", "95 C"),
        ("gpu_temperature", {"gpu_temp": "N/A"}, ("temperature", "<=", 93, "C"), "error", "not measured"),
        (
            "gpu_throttle",
            {"clocks_throttle_reason_hw_thermal_slowdown": "Active"},
            ("throttle_faults", "==", 0, "bits"),
            "fail",
            "64 bits",
        ),
        (
            "gpu_throttle",
            {"clocks_throttle_reason_sw_power_cap": "Active"},
            ("throttle_faults", "==", 0, "bits"),
            "pass",
            "",
        ),
        ("gpu_model", {"total": "32510 MiB"}, ("memory", ">=", 40536, "MiB"), "fail", "32510 MiB"),
    ],
)
def test_one_gpu_misses_what_is_expected(
    sysfs: str, check: str, values: dict[str, str], expectation: t.Any, verdict: str, reason: str
) -> None:
    options = FULL._replace(expect=[limit(check, *expectation)])
    found = judged(ndv4(values={3: values}), sysfs, options)["checks"][check]
    assert (found["verdict"], reason in found["reason"]) == (verdict, True), found["reason"]
    assert found["scope"] == ({} if verdict == "pass" else {"gpu": [3]})
    assert found["class"] == {"pass": None, "error": "infra", "fail": "hardware"}[verdict]


def test_a_field_that_no_gpu_of_the_kind_has_is_not_missed(sysfs: str) -> None:
    def names(found: t.Any) -> set[str]:
        return {metric["name"] for metric in found["checks"]["gpu_remap"]["metrics"]}

    assert names(judged(ndv4(), sysfs)) >= {"remap_failed"} and "retired_pages" not in names(judged(ndv4(), sysfs))
    old = judged(ndv4(machines.V100_R440), sysfs)
    assert names(old) == {"retired_pages"}


@pytest.mark.parametrize(
    "values, verdict, kind, reason, gpus",
    [
        (
            {2: {"product_name": "NVIDIA A100-PCIE-40GB"}},
            "fail",
            "config",
            "GPU 2: NVIDIA A100-PCIE-40GB, expected",
            [2],
        ),
        ({2: {"product_name": "ERR!"}}, "error", "infra", "no name of GPU 2", []),
        ({}, "pass", None, "", []),
    ],
)
def test_models(sysfs: str, values: t.Any, verdict: str, kind: str | None, reason: str, gpus: list[int]) -> None:
    found = judged(ndv4(values=values), sysfs)["checks"]["gpu_model"]
    assert (found["verdict"], found["class"], found["scope"].get("gpu", [])) == (verdict, kind, gpus)
    assert reason in found["reason"]


def test_a_corrupt_inforom_is_a_finding_about_a_gpu_that_answers(sysfs: str) -> None:
    found = judged(ndv4(before="WARNING: infoROM is corrupted at gpu 000B:00:00.0\n"), sysfs)
    assert (found["missing"], found["checks"]["gpu_count"]["verdict"]) == ([], "pass")
    check = found["checks"]["gpu_model"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", "hardware", {"gpu": [4]})
    assert "infoROM" in check["reason"] and "infoROM" in check["evidence"]


# GPUs that are missing


def test_a_lost_gpu_keeps_its_index(sysfs: str) -> None:
    found = judged(ndv4(before=machines.lost_line(4, IDS[4]), lost=[4]), sysfs)
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1, 2, 3, 5, 6, 7]
    assert found["gpus"][4]["bus_id"] == "0000000C:00:00.0"
    assert [(gone["index"], gone["bus_id"], gone["numa_node"]) for gone in found["missing"]] == [
        (4, "0000000B:00:00.0", 3)
    ]
    check = found["checks"]["gpu_count"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", "hardware", {"gpu": [4]})
    assert "7 of 8 GPUs answer" in check["reason"] and "GPU is lost" in check["reason"]
    assert found["checks"]["gpu_temperature"]["reason"] == "7 of 8 GPUs answer (see gpu_count)"
    values = {metric["gpu"]: metric["value"] for metric in found["checks"]["gpu_temperature"]["metrics"]}
    assert values == {**dict.fromkeys(range(8), 31), 4: None}
    assert found["topology"]["gpus"][4]["index"] == 5
    assert found["binding"]["map_by"] is None and "unevenly" in found["binding"]["reason"]


@pytest.mark.parametrize(
    "bus, why",
    [(True, "on the PCI bus, but the driver does not show it"), (False, "there is no GPU in PCI domain 000b")],
)
def test_a_gpu_that_the_driver_does_not_know_is_named_by_bus_and_profile(tmp_path: Path, bus: bool, why: str) -> None:
    root = machines.ndv4_sysfs(tmp_path, missing=[] if bus else [4])
    found = judged(ndv4(lost=[4], attached=7), root)
    # Then nvidia-smi and CUDA count without it.
    assert [gpu["index"] for gpu in found["gpus"]] == list(range(7))
    assert [(gone["index"], gone["bus_id"], gone["numa_node"]) for gone in found["missing"]] == [
        (4, "0000000B:00:00.0", 3)
    ]
    assert why in found["checks"]["gpu_count"]["reason"]
    assert found["checks"]["gpu_count"]["scope"] == {"gpu": [4]}


def test_a_gpu_that_the_driver_counts_without_a_word_keeps_its_index(sysfs: str) -> None:
    found = judged(ndv4(lost=[4], attached=8), sysfs, NOTHING)
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1, 2, 3, 5, 6, 7]
    assert found["checks"]["gpu_count"]["verdict"] == "fail"


def test_a_gpu_without_values_does_not_answer(sysfs: str) -> None:
    found = judged(ndv4(values={6: {"product_name": "GPU is lost", "gpu_temp": "GPU is lost"}}), sysfs)
    assert [gone["index"] for gone in found["missing"]] == [6]
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize("error", ["Unknown Error", "ERR!"])
def test_a_gpu_of_which_nothing_can_be_read_is_missing(sysfs: str, error: str) -> None:
    """It is listed, with the driver's error in place of each value."""
    vital = dict.fromkeys(("performance_state", "gpu_temp", "graphics_clock", "sm_clock", "mem_clock"), error)
    values = {6: {**vital, "fb_memory_usage": f"<total>{error}</total>"}}
    found = judged(ndv4(values=values), sysfs, NOTHING)
    assert [gone["index"] for gone in found["missing"]] == [6]
    check = found["checks"]["gpu_count"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", "hardware", {"gpu": [6]})
    assert f"nothing of it can be read: {error}" in check["reason"]


def test_a_gpu_that_answers_for_some_values_only_is_a_warning(sysfs: str) -> None:
    found = judged(ndv4(values={6: {"fan_speed": "ERR!", "power_draw": "[Unknown Error]"}}), sysfs)
    check = found["checks"]["gpu_count"]
    assert (check["verdict"], check["class"], check["scope"]) == ("warn", "hardware", {"gpu": [6]})
    assert check["reason"] == ("GPU 6 answers, but not for fan_speed (ERR!), power_readings/power_draw (Unknown Error)")


@pytest.mark.parametrize("text", ["Insufficient Permissions", "Not Supported", "N/A"])
def test_a_value_that_is_not_shown_to_this_user_is_no_warning(sysfs: str, text: str) -> None:
    check = judged(ndv4(values={6: {"fan_speed": text}}), sysfs)["checks"]["gpu_count"]
    assert check["verdict"] == "pass"


HANDLE = "Unable to determine the device handle for GPU{}: {}: {}\n"


@pytest.mark.parametrize(
    "error, kind",
    [
        ("GPU is lost.  Reboot the system to recover this GPU", "hardware"),
        ("Unknown Error", "hardware"),
        ("Not Found", "hardware"),
        ("Insufficient Permissions", "config"),
    ],
)
def test_one_gpu_that_is_gone_without_an_xid(sysfs: str, error: str, kind: str) -> None:
    """With all others listed, and where nvidia-smi stops at it; the PCI bus still shows it."""
    said = HANDLE.format(4, "000B:00:00.0", error)
    for smi in (ndv4(before=said, lost=[4]), Smi(said, rc=15)):
        check = judged(smi, sysfs, GpuCheckOptions("n1", 8))["checks"]["gpu_count"]
        assert (check["verdict"], check["class"], check["scope"]) == ("fail", kind, {"gpu": [4]})
        assert error in check["reason"] and "no GPU answers" not in check["reason"]


def test_fewer_gpus_than_the_bus_shows(sysfs: str) -> None:
    """No message at all: the driver took one GPU less than are on the bus."""
    check = judged(ndv4(lost=[4], attached=7), sysfs, GpuCheckOptions("n1", 8))["checks"]["gpu_count"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", "hardware", {"gpu": [4]})
    assert "it is on the PCI bus, but the driver does not show it" in check["reason"]


def test_a_complaint_that_gives_only_an_index(sysfs: str) -> None:
    text = "Unable to determine the device handle for GPU2: Unknown Error\n"
    found = judged(ndv4(before=text, lost=[2]), sysfs, NOTHING)
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1, 3, 4, 5, 6, 7]
    assert found["checks"]["gpu_count"]["scope"] == {"gpu": [2]}


def test_what_is_missing_may_be_unknown(tmp_path: Path) -> None:
    found = judged(ndv4(lost=[4, 5], attached=6), str(tmp_path), GpuCheckOptions("n1", 8))
    assert [gone["index"] for gone in found["missing"]] == [None, None]
    check = found["checks"]["gpu_count"]
    assert (check["verdict"], check["scope"]) == ("fail", {})
    assert check["reason"].count("which one it is cannot be told") == 2


def test_a_part_of_the_hosts_gpus_in_a_container_is_all_there_is(sysfs: str) -> None:
    smi = ndv4(lost=[2, 3, 4, 5, 6, 7], attached=2)
    for options in (GpuCheckOptions("n1", 2), NOTHING):
        found = judged(smi, sysfs, options)
        assert found["missing"] == []
        assert found["checks"]["gpu_count"]["verdict"] == ("pass" if options.gpus else "unjudged")


def test_another_machine_type_is_not_eight_missing_gpus(sysfs: str) -> None:
    other = [{"pci_domain": f"00{number}0", "numa_node": 0} for number in range(1, 9)]
    found = judged(ndv4(), sysfs, FULL._replace(places=expected(other)))
    assert (found["missing"], found["checks"]["gpu_count"]["verdict"]) == ([], "pass")
    check = found["checks"]["gpu_topology"]
    assert (check["verdict"], check["class"], check["metrics"][0]["value"]) == ("fail", "config", 8)


def test_more_gpus_than_expected(sysfs: str) -> None:
    check = judged(ndv4(), sysfs, GpuCheckOptions("n1", 4))["checks"]["gpu_count"]
    assert (check["verdict"], check["class"]) == ("fail", "config")


@pytest.mark.parametrize("count, verdict", [(8, "pass"), (16, "fail")])
def test_the_profile_counts_too(sysfs: str, count: int, verdict: str) -> None:
    options = NOTHING._replace(expect=[limit("gpu_count", "gpus", "==", count, "GPUs")])
    assert judged(ndv4(), sysfs, options)["checks"]["gpu_count"]["verdict"] == verdict


# No GPU, and no nvidia-smi


@pytest.mark.parametrize(
    "said, on_bus, kind, reason",
    [
        ("No devices were found\n", 8, "software", "the PCI bus shows 8, so ask the kernel log"),
        ("No devices were found\n", 1, "hardware", "the PCI bus shows 1"),
        ("No devices were found\n", 0, "hardware", "no GPU answers: No devices were found"),
        (
            "No devices were found. Please make sure /dev/nvidia* files are readable by current user.\n",
            8,
            "config",
            "the PCI bus shows 8",
        ),
        (DRIVER_GONE, 8, "software", "the PCI bus shows 8"),
    ],
)
def test_no_gpu_and_what_the_bus_says_to_that(tmp_path: Path, said: str, on_bus: int, kind: str, reason: str) -> None:
    root = machines.ndv4_sysfs(tmp_path, missing=range(on_bus, 8))
    check = judged(Smi(said, rc=6), root)["checks"]["gpu_count"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", kind, {})
    assert reason in check["reason"]


def verdicts(found: dict[str, t.Any]) -> set[tuple[str, str | None]]:
    return {(check["verdict"], check["class"]) for check in found["checks"].values()}


@pytest.mark.parametrize("said", ["No devices were found\n", DRIVER_GONE])
def test_no_gpu_where_none_is_expected_is_skipped(tmp_path: Path, said: str) -> None:
    found = judged(Smi(said, rc=9), str(tmp_path), NOTHING)
    assert verdicts(found) == {("skipped", None)}
    assert {check["reason"] for check in found["checks"].values()} == {"neither nvidia-smi nor the PCI bus shows a GPU"}


@pytest.mark.parametrize(
    "options", [FULL, GpuCheckOptions("n1", 8), NOTHING._replace(expect=[limit("gpu_count", "gpus", "==", 8, "GPUs")])]
)
@pytest.mark.parametrize("said, kind", [("No devices were found\n", "hardware"), (DRIVER_GONE, "software")])
def test_no_gpu_where_some_are_expected_is_a_fail(
    tmp_path: Path, options: GpuCheckOptions, said: str, kind: str
) -> None:
    found = judged(Smi(said, rc=9), str(tmp_path), options)
    count = found["checks"].pop("gpu_count")
    assert (count["verdict"], count["class"]) == ("fail", kind)
    assert verdicts(found) == {("error", "infra")}


def test_gpus_on_the_bus_without_a_driver_are_not_skipped(sysfs: str) -> None:
    found = judged(Smi(DRIVER_GONE, rc=9), sysfs, NOTHING)
    assert found["checks"]["gpu_count"]["class"] == "software"
    # Where they are is known all the same.
    assert found["cpu_masks"][:3] == ["ffffff000000", "ffffff000000", "ffffff"]


def nowhere(*words: t.Any, **options: t.Any) -> str:
    raise _launch.NotFound("nvidia-smi was not found in PATH (/usr/bin)")


def test_without_nvidia_smi(tmp_path: Path, sysfs: str) -> None:
    reading = read(None, 5, None, ndv4(), nowhere)
    assert verdicts(judged(reading, str(tmp_path / "empty"), NOTHING)) == {("skipped", None)}
    for root, options in ((str(tmp_path / "empty"), GpuCheckOptions("n1", 8)), (sysfs, NOTHING)):
        found = judged(reading, root, options)
        assert found["argv"] == [] and found["missing"] == []
        assert found["checks"]["gpu_ecc"]["verdict"] == "error"
        assert "was not found in PATH" in found["checks"]["gpu_count"]["reason"]


def test_a_first_call_that_hangs_is_the_last_one(sysfs: str) -> None:
    smi = ndv4()
    smi.answers["-q"] = None
    found = judged(smi, sysfs)
    assert len(smi.asked) == 1
    # Places are in sysfs; everything else needs an answer.
    assert found["checks"].pop("gpu_topology")["verdict"] == "pass"
    assert verdicts(found) == {("error", "infra")} and found["missing"] == []
    assert all("did not end within 5 s" in check["reason"] for check in found["checks"].values())


def test_a_hang_is_an_error_even_where_nothing_is_expected(tmp_path: Path) -> None:
    assert verdicts(judged(Smi(None), str(tmp_path), NOTHING)) == {("error", "infra")}


def test_a_later_call_that_hangs_costs_only_what_it_would_say(sysfs: str) -> None:
    smi = ndv4()
    smi.answers["topo"] = None
    found = judged(smi, sysfs)
    assert len(smi.asked) == 2
    assert found["checks"]["gpu_count"]["verdict"] == "pass"
    assert found["checks"]["gpu_nvlink"]["verdict"] == "error"
    assert "not asked" in found["checks"]["gpu_nvlink"]["reason"]


@pytest.mark.parametrize("text", ["", "garbage\n", "<nvidia_smi_log>\n</nvidia_smi_log>\n"])
def test_nonsense_is_an_error_and_never_no_gpu(tmp_path: Path, text: str) -> None:
    assert verdicts(judged(Smi(text), str(tmp_path), NOTHING)) == {("error", "infra")}


def test_a_real_program_that_hangs(tmp_path: Path) -> None:
    program = answer(tmp_path / "nvidia-smi", hangs="yes")
    reading = read(str(program), 0.3)
    assert len(reading.commands) == 1 and "did not end within 0.3 s" in reading.problems["query"]


# Links


@pytest.mark.parametrize(
    "changes, verdict, kind, reason, gpus",
    [
        ({}, "pass", None, "", []),
        ({"down": [(6, 2), (6, 3)]}, "fail", "hardware", "links_active (gpu=6): 10 links", [6]),
        ({"links": {(2, other): "NODE" for other in range(3, 8)} | {(0, 2): "SYS", (1, 2): "SYS"}}, "fail", "hardware",
         "GPU 2: 7 pairs of GPUs connected by NODE, SYS, all others by NV12", [2]),
        ({"links": {(0, 5): "NV11"}}, "fail", "hardware", "GPUs 0 and 5: 1 pair of GPUs connected by NV11", [0, 5]),
        ({"links": {(1, other): "PHB" for other in range(2, 8)}}, "fail", "hardware", "GPU 1: 6 pairs", [1]),
    ],
)  # fmt: skip
def test_nvlink(
    sysfs: str, changes: dict[str, t.Any], verdict: str, kind: str | None, reason: str, gpus: list[int]
) -> None:
    options = FULL._replace(expect=[limit("gpu_nvlink", "links_active", "==", 12, "links")])
    check = judged(ndv4(**changes), sysfs, options)["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["class"], check["scope"].get("gpu", [])) == (verdict, kind, gpus)
    assert reason in check["reason"]


QUAD = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "NV1", (2, 3): "NV1"}
CUBE = {
    **QUAD,
    **{(one + 4, other + 4): code for (one, other), code in QUAD.items()},
    **{(one, other): "NV2" if other == one + 4 else "SYS" for one in range(4) for other in range(4, 8)},
}
BRIDGED = {(one, other): "SYS" for one in range(8) for other in range(one + 1, 8) if one // 2 != other // 2}


@pytest.mark.parametrize("links", [CUBE, BRIDGED], ids=["the cube of V100", "bridged pairs"])
def test_boards_without_switches_need_not_be_even(sysfs: str, links: dict[tuple[int, int], str]) -> None:
    assert judged(ndv4(links=links), sysfs)["checks"]["gpu_nvlink"]["verdict"] == "unjudged"


@pytest.mark.parametrize(
    "expect, verdict", [((), "skipped"), ((limit("gpu_nvlink", "links_active", "==", 12, "links"),), "error")]
)
def test_cards_without_nvlink(sysfs: str, expect: t.Any, verdict: str) -> None:
    smi = ndv4(links={(one, other): "SYS" for one in range(8) for other in range(one + 1, 8)})
    smi.answers["nvlink"] = ""
    assert judged(smi, sysfs, FULL._replace(expect=expect))["checks"]["gpu_nvlink"]["verdict"] == verdict


def test_all_links_down_is_a_count_of_none(sysfs: str) -> None:
    smi = ndv4()
    smi.answers["nvlink"] = (
        machines.nvlink(A100_R470, 7, 12) + "GPU 7: NVIDIA A100 (UUID: GPU-x)\nall links are inActive\n"
    )
    options = FULL._replace(expect=[limit("gpu_nvlink", "links_active", "==", 12, "links")])
    check = judged(smi, sysfs, options)["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["scope"]) == ("fail", {"gpu": [7]})
    assert "links_active (gpu=7): 0 links" in check["reason"]


LINKS = limit("gpu_nvlink", "links_active", "==", 12, "links")
MIG_SENTENCE = "NVML: Unable to retrieve NVLink information as all links are inActive"


@pytest.mark.parametrize(
    "said",
    [
        "".join(f"GPU {i}: NVIDIA A100-SXM4-40GB (UUID: GPU-{i})\n{MIG_SENTENCE}\n" for i in range(8)),
        f"{MIG_SENTENCE}\n",
        "NVLink cannot be asked in MIG mode\n",
        "".join(f"GPU {i}: NVIDIA A100-SXM4-40GB (UUID: GPU-{i})\nNVLink: no MIG\n" for i in range(8)),
    ],
)
@pytest.mark.parametrize("expect", [(), (LINKS,)])
def test_nvlink_in_mig_mode_is_skipped_with_the_sentence(sysfs: str, said: str, expect: t.Any) -> None:
    """NVML shows these links as down, and peer-to-peer is off: neither says anything about the hardware."""
    parted = {index: {"current_mig": "Enabled"} for index in range(8)}
    smi = ndv4(values=parted, links={(one, other): "SYS" for one in range(8) for other in range(one + 1, 8)})
    smi.answers["nvlink"] = said
    check = judged(smi, sysfs, FULL._replace(expect=expect))["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["class"]) == ("skipped", None)
    assert said.strip().splitlines()[-1] in check["reason"]


def test_one_gpu_in_mig_mode_is_not_asked_for_its_links(sysfs: str) -> None:
    smi = ndv4(
        values={3: {"current_mig": "Enabled"}}, links={(min(3, i), max(3, i)): "SYS" for i in range(8) if i != 3}
    )
    lines = machines.nvlink(A100_R470, 8, 12, down=[(3, link) for link in range(12)])
    smi.answers["nvlink"] = lines
    check = judged(smi, sysfs, FULL._replace(expect=[LINKS]))["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["scope"]) == ("pass", {})
    assert sorted(metric["gpu"] for metric in check["metrics"]) == [0, 1, 2, 4, 5, 6, 7]


def test_links_whose_state_could_not_be_read_are_not_down(sysfs: str) -> None:
    smi = ndv4()
    lines = machines.nvlink(A100_R470, 8, 12).splitlines()
    lines[-1] = "NVML: Unable to retrieve NVLink speed for link 11: Unknown Error"
    smi.answers["nvlink"] = "\n".join([*lines, ""])
    check = judged(smi, sysfs, FULL._replace(expect=[LINKS]))["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert "GPU 7: link 11: Unknown Error" in check["reason"]


def test_nvlink_that_says_something_else_is_an_error_with_its_words(sysfs: str) -> None:
    smi = ndv4()
    smi.answers["nvlink"] = "NVML: Unable to get architecture: Timeout\n"
    check = judged(smi, sysfs, FULL._replace(expect=[LINKS]))["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert check["reason"] == "/usr/bin/nvidia-smi nvlink -s: NVML: Unable to get architecture: Timeout"


NO_SUMMARY = {"summary": "N/A"}


@pytest.mark.parametrize(
    "change, verdict, kind, reason",
    [
        ({}, "unjudged", None, ""),
        ({"health": "N/A"}, "unjudged", None, ""),
        ({"partition_assigned": "True"}, "unjudged", None, ""),
        ({"partition_assigned": "False"}, "unjudged", None, ""),
        ({"summary": "Limited Capacity"}, "warn", "fabric", "the NVLink fabric of GPU 1 is Limited Capacity"),
        (
            {"summary": "Limited Capacity", "bandwidth": "Degraded"},
            "warn",
            "fabric",
            "is Limited Capacity (bandwidth Degraded)",
        ),
        ({"bandwidth": "Degraded"}, "warn", "fabric", "is Healthy (bandwidth Degraded)"),
        ({**NO_SUMMARY, "bandwidth": "Degraded"}, "warn", "fabric", "is limited (bandwidth Degraded)"),
        ({**NO_SUMMARY, "access_timeout_recovery": "True"}, "warn", "fabric", "(access_timeout_recovery True)"),
        ({**NO_SUMMARY, "route_unhealthy": "True"}, "fail", "hardware", "is unhealthy (route_unhealthy True)"),
        (
            {**NO_SUMMARY, "incorrect_configuration": "Incorrect SystemGuid"},
            "fail",
            "config",
            "is unhealthy (incorrect_configuration Incorrect SystemGuid)",
        ),
        (
            {"summary": "Unhealthy", "incorrect_configuration": "Insufficient Nvlinks"},
            "fail",
            "hardware",
            "incorrect_configuration Insufficient Nvlinks",
        ),
        (
            {"summary": "Unhealthy", "incorrect_configuration": "No Partition"},
            "fail",
            "config",
            "incorrect_configuration No Partition",
        ),
        ({"summary": "Something New"}, "warn", "fabric", "is Something New"),
        ({"status": "Unknown Error"}, "fail", "software", "state Completed, status Unknown Error"),
    ],
)
def test_the_fabrics_health(sysfs: str, change: dict[str, str], verdict: str, kind: str | None, reason: str) -> None:
    check = judged(ndv4(machines.GB200_R580, values={1: change}), sysfs, NOTHING)["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["class"]) == (verdict, kind)
    assert reason in check["reason"] and check["scope"] == ({} if kind is None else {"gpu": [1]})


@pytest.mark.parametrize(
    "card, change, kind, reason",
    [
        (machines.H100_R550, {"state": "In Progress"}, "software", "nvidia-fabricmanager"),
        (machines.H100_R550, {"status": "Insufficient Resources"}, "software", "status Insufficient Resources"),
        (machines.GB200_R580, {"summary": "Unhealthy"}, "hardware", "unhealthy"),
    ],
)
def test_the_fabric_manager(sysfs: str, card: Card, change: dict[str, str], kind: str, reason: str) -> None:
    smi = ndv4(card, values={1: change})
    check = judged(smi, sysfs, NOTHING)["checks"]["gpu_nvlink"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", kind, {"gpu": [1]})
    assert reason in check["reason"]


# Places


def test_a_gpu_on_another_numa_node_than_the_profile_says(tmp_path: Path) -> None:
    root = machines.ndv4_sysfs(tmp_path)
    (tmp_path / "bus/pci/devices/000b:00:00.0/numa_node").write_text("2\n")
    check = judged(ndv4(), root)["checks"]["gpu_topology"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", "config", {"gpu": [4]})
    assert check["reason"] == "GPU 4 (0000000B:00:00.0) is on NUMA node 2, expected 3"
    assert check["metrics"][0]["value"] == 1


def test_without_the_profiles_topology_places_are_not_judged(sysfs: str) -> None:
    options = GpuCheckOptions("n1", 8, expect=[limit("gpu_topology", "misplaced", "==", 0, "GPUs")])
    assert judged(ndv4(), sysfs, GpuCheckOptions("n1", 8))["checks"]["gpu_topology"]["verdict"] == "unjudged"
    check = judged(ndv4(), sysfs, options)["checks"]["gpu_topology"]
    assert (check["verdict"], check["reason"]) == ("error", "the profile's topology was not given")


def test_places_that_nobody_knows(tmp_path: Path) -> None:
    smi = ndv4()
    smi.answers["topo"] = ""
    found = judged(smi, machines.ndv4_sysfs(tmp_path, numa=False))
    check = found["checks"]["gpu_topology"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert (found["cpu_masks"], found["binding"]["map_by"]) == ([], None)


# Processes


def process(proc: Path, pid: int, cpus: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "status").write_text(f"Name:\tpython3\nCpus_allowed:\tffffff\nCpus_allowed_list:\t{cpus}\n")


PINNED = NOTHING._replace(expect=[limit("gpu_pinning", "misplaced", "==", 0, "processes")])


@pytest.mark.parametrize(
    "cpus, users, verdict, reason",
    [
        ("24-47", {7: [0]}, "pass", ""),
        ("30", {7: [0]}, "pass", ""),
        ("0-95", {7: [0]}, "fail", "pid 7 may run on 0-95, GPU 0 on 24-47"),
        ("0-23", {7: [0]}, "fail", "pid 7 may run on 0-23"),
        ("24-48", {7: [0]}, "fail", "pid 7"),
        ("0-47", {7: [0, 2]}, "pass", ""),
        ("0-95", {7: [0, 2, 4, 6]}, "pass", ""),
        ("0-23", {7: [9]}, "error", "the CPUs of GPU 9 are unknown"),
        ("0-23", {8: [0]}, "skipped", "none of the 1 processes"),
        ("0-23", {}, "skipped", "no process uses a GPU"),
    ],
)
def test_pinning(sysfs: str, tmp_path: Path, cpus: str, users: dict[int, list[int]], verdict: str, reason: str) -> None:
    process(tmp_path / "proc", 7, cpus)
    check = judged(ndv4(), sysfs, PINNED, users, str(tmp_path / "proc"))["checks"]["gpu_pinning"]
    assert (check["verdict"], reason in check["reason"]) == (verdict, True), check["reason"]
    assert check["class"] == {"fail": "config", "error": "infra"}.get(verdict)


def test_pinning_of_the_processes_that_nvidia_smi_lists(sysfs: str, tmp_path: Path) -> None:
    process(tmp_path / "proc", 11, "24-47")
    process(tmp_path / "proc", 12, "0-95")
    graphics = machines.process_xml(13).replace("<type>C<", "<type>G<")
    values = {
        0: {"processes": machines.process_xml(11)},
        5: {"processes": machines.process_xml(12, 99) + graphics},
    }
    found = judged(ndv4(values=values), sysfs, PINNED, None, str(tmp_path / "proc"))["checks"]["gpu_pinning"]
    assert (found["verdict"], found["scope"]) == ("fail", {"gpu": [5]})
    assert [(row["pid"], row["gpus"], row["inside"]) for row in found["samples"]] == [(11, [0], True), (12, [5], False)]


def test_pinning_of_a_real_process(tmp_path: Path) -> None:
    cpus = os.sched_getaffinity(0)
    root = machines.sysfs(tmp_path, [f"0-{max(cpus)}"], [("0001:00:00.0", 0)])
    found = judged(Smi(None), root, PINNED, {os.getpid(): [0]}, "/proc")["checks"]["gpu_pinning"]
    assert found["verdict"] == "pass"


# Options


def params(**changes: t.Any) -> dict[str, t.Any]:
    defaults = {name: option.get("default") for name, option in info.SPEC.items()}
    return {**defaults, **changes}


def test_options() -> None:
    found = info.options(params(gpus=8, topology=machines.NDV4_PROFILE, name="c1", profile="p"), "host")
    assert (found.node, found.gpus, found.profile) == ("c1", 8, "p")
    assert [place.pci_domain for place in found.places] == list(machines.NDV4_DOMAINS)
    assert info.options(params(), "host").node == "host"


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": -1},
        {"timeout": 0.0},
        {"timeout": float("nan")},
        {"topology": [{"pci_domain": 11, "numa_node": 3}]},
        {"topology": [{"pci_domain": "000b"}]},
        {"topology": [{"pci_domain": "xyz", "numa_node": 1}]},
        {"topology": [{"pci_domain": "000b", "numa_node": "3"}]},
        {"expect": [{"check": "gpu_count"}]},
    ],
)
def test_options_that_make_no_sense(change: dict[str, t.Any]) -> None:
    with pytest.raises(ValueError):
        info.options(params(**change), "host")


@pytest.mark.parametrize(
    "given, want", [(None, None), ({}, {}), ({"7": 0, 8: [1, 2]}, {7: [0], 8: [1, 2]}), ({"7": "3"}, {7: [3]})]
)
def test_given_processes(given: t.Any, want: t.Any) -> None:
    assert info.users(given) == want


@pytest.mark.parametrize("given", [{"a": 0}, {7: "x"}, {7: None}, {7: [[1]]}])
def test_given_processes_that_make_no_sense(given: t.Any) -> None:
    with pytest.raises(ValueError):
        info.users(given)


@pytest.mark.parametrize("numbers, text", [([3], "GPU 3"), ([5, 3], "GPUs 3 and 5"), ([1, 5, 3, 3], "GPUs 1, 3 and 5")])
def test_listing(numbers: list[int], text: str) -> None:
    assert listing(numbers) == text


# One H200 in a virtual machine, as nvidia-smi 580.159.04 printed it; it says nothing of NVLink there, and ends with 0


def h200(query: str) -> Smi:
    text = {name: (machines.HERE / f"captured-h200-{name}").read_text() for name in (query, "topo.txt")}
    return Smi(text[query], text["topo.txt"], "")


def test_a_sound_gpu_is_sound(tmp_path: Path) -> None:
    found = judged(h200("idle.xml"), str(tmp_path), GpuCheckOptions("n1", 1, "H200", expect=load("hgx_h200")["expect"]))
    verdicts = {name: check["verdict"] for name, check in found["checks"].items()}
    good = ("gpu_model", "gpu_ecc", "gpu_remap", "gpu_throttle", "gpu_temperature")
    assert {name: verdicts[name] for name in good} == dict.fromkeys(good, "pass")
    (gpu,) = found["gpus"]
    assert (gpu["name"], gpu["memory_total_mib"], gpu["max_clocks"]["memory_mhz"]) == ("NVIDIA H200", 143771, 3201)
    assert (gpu["virtualization"], gpu["mig"], gpu["persistence"], gpu["recovery_action"]) == (
        "Pass-Through",
        False,
        True,
        "None",
    )


def test_one_gpu_of_a_board_of_eight_is_no_such_board(tmp_path: Path) -> None:
    """NVLink that is not there passes for nothing: 18 links are expected, and nvidia-smi has no word about any."""
    found = judged(h200("idle.xml"), str(tmp_path), GpuCheckOptions("n1", 8, "H200", expect=load("hgx_h200")["expect"]))
    assert len(found["missing"]) == 7 and "1 of 8 GPUs answer" in found["checks"]["gpu_count"]["reason"]
    # Nobody knows which they are: this profile does not say where the GPUs of its board have to be.
    assert (found["checks"]["gpu_count"]["verdict"], found["checks"]["gpu_count"]["scope"]) == ("fail", {})
    assert found["checks"]["gpu_nvlink"]["verdict"] in ("fail", "error"), found["checks"]["gpu_nvlink"]


def test_power_capping_of_a_gpu_that_works_is_no_fault(tmp_path: Path) -> None:
    found = judged(h200("busy.xml"), str(tmp_path), GpuCheckOptions("n1", 1, "H200", expect=load("hgx_h200")["expect"]))
    assert found["gpus"][0]["throttle"] == ["sw_power_cap"]
    assert found["checks"]["gpu_throttle"]["verdict"] == "pass"
    assert [process["pid"] for process in found["gpus"][0]["processes"]] == [852]
