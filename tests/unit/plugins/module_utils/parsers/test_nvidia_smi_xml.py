# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import (
    Gpu,
    GpuClocks,
    GpuProcess,
    parse_xml,
)
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi.machines import (
    A100_R470,
    A100_R535,
    GB200_R580,
    H100_R550,
    V100_R440,
    Card,
)

IDS = machines.bus_ids([1, 0xB])


def one(card: Card, **changes: str) -> Gpu:
    """Return the first GPU of a machine with some texts replaced."""
    log = parse_xml(machines.document(card, IDS, {0: changes}))
    gpu = log.runs[0].gpus[0]
    assert log.runs[0].complete and len(log.runs[0].gpus) == 2 and log.ok == (gpu.error is None)
    return gpu


@pytest.mark.parametrize("card", machines.CARDS, ids=lambda card: f"{card.name}, {card.driver}")
def test_every_version_gives_the_same_facts(card: Card) -> None:
    log = parse_xml(machines.document(card, IDS))
    run = log.runs[0]
    assert (log.ok, run.complete, run.cause, run.attached_gpus) == (True, True, None, 2)
    assert (run.driver_version, run.cuda_version) == (card.driver, card.cuda)
    assert run.dtd == card.template.split("-")[1]
    assert [gpu.bus_id for gpu in run.gpus] == ["00000001:00:00.0", "0000000B:00:00.0"]
    gpu = run.gpus[1]
    assert (gpu.name, gpu.memory_total_mib, gpu.minor) == (card.name, card.memory, 1)
    assert gpu.clocks == GpuClocks(210, 210, card.memory_max)
    assert gpu.max_clocks == GpuClocks(card.graphics_max, card.graphics_max, card.memory_max)
    assert (gpu.pcie.generation, gpu.pcie.generation_max, gpu.pcie.width) == (1, card.generation, 16)
    assert (gpu.throttle_mask, gpu.throttle) == (1, ["gpu_idle"])
    assert (gpu.ecc.enabled, gpu.ecc.volatile_uncorrected, gpu.ecc.aggregate_corrected) == (True, 0, 0)
    assert gpu.temperature_c == 31 and gpu.power_w and gpu.power_limit_w
    assert (gpu.persistence, gpu.mig, gpu.complete, gpu.error) == (True, False, True, None)
    assert json.loads(json.dumps(dataclasses.asdict(log)))["runs"][0]["gpus"][1]["uuid"] == gpu.uuid


@pytest.mark.parametrize(
    "card, changes, path, value",
    [
        (A100_R535, {"sram_uncorrectable": "3", "dram_uncorrectable": "4"}, "ecc.volatile_uncorrected", 7),
        (
            H100_R550,
            {"sram_uncorrectable_parity": "1", "sram_uncorrectable_secded": "2", "dram_uncorrectable": "4"},
            "ecc.volatile_uncorrected",
            7,
        ),
        (H100_R550, {"sram_correctable": "5", "dram_correctable": "N/A"}, "ecc.volatile_corrected", 5),
        (V100_R440, {"total": "9"}, "memory_total_mib", None),
        (V100_R440, {"retired_count": "3"}, "repairs.retired_pages", 3),
        (V100_R440, {"pending_retirement": "Yes"}, "repairs.retirement_pending", True),
        (V100_R440, {}, "repairs.remap_failed", None),
        (A100_R470, {}, "repairs.retired_pages", None),
        (A100_R470, {"remapped_row_unc": "513"}, "repairs.remapped_uncorrectable", 513),
        (A100_R470, {"remapped_row_pending": "Yes"}, "repairs.remap_pending", True),
        (A100_R470, {"remapped_row_failure": "Yes"}, "repairs.remap_failed", True),
        (A100_R470, {"remapped_rows": "N/A"}, "repairs.remap_failed", None),
        (A100_R470, {"current_link_width": "8x"}, "pcie.width", 8),
        (A100_R470, {"persistence_mode": "Disabled"}, "persistence", False),
        (A100_R470, {"gpu_temp": "N/A"}, "temperature_c", None),
        (A100_R470, {"gpu_temp": "Unknown Error"}, "temperature_c", None),
        (A100_R470, {"gpu_temp": "93 F"}, "temperature_c", None),
        (A100_R470, {"power_draw": "[N/A]"}, "power_w", None),
        (A100_R470, {"power_draw": "67.03 W\n\t\t"}, "power_w", 67.03),
        (A100_R470, {"product_name": "ERR!"}, "name", None),
        (A100_R470, {"current_ecc": "Disabled"}, "ecc.enabled", False),
        (A100_R470, {"total": "40536 MiB\n"}, "memory_total_mib", 40536),
        (A100_R470, {"total": "inf MiB"}, "memory_total_mib", None),
        (A100_R535, {"reset_required": "Yes"}, "reset_required", True),
        (GB200_R580, {"gpu_recovery_action": "Reset"}, "recovery_action", "Reset"),
        (GB200_R580, {}, "application_clocks", GpuClocks(None, None, None)),
        (GB200_R580, {"instant_power_draw": "N/A"}, "power_w", 171.55),
        (GB200_R580, {"clusterUuid": "N/A"}, "fabric.cluster_uuid", None),
        (GB200_R580, {"summary": "Unhealthy"}, "fabric.health", "Unhealthy"),
        (H100_R550, {"state": "In Progress"}, "fabric.state", "In Progress"),
        # The status of the registration is an error of NVML by nature, so it is a value here.
        (H100_R550, {"status": "Unknown Error"}, "fabric.status", "Unknown Error"),
        (H100_R550, {"status": "Timeout"}, "fabric.status", "Timeout"),
        (H100_R550, {"status": "[Not Supported]"}, "fabric.status", None),
        (GB200_R580, {}, "fabric.conditions", {}),
        (GB200_R580, {"health": "N/A"}, "fabric.conditions", {}),
        (GB200_R580, {"summary": "Limited Capacity"}, "fabric.health", "Limited Capacity"),
        (GB200_R580, {"bandwidth": "Degraded"}, "fabric.conditions", {"bandwidth": "Degraded"}),
        (GB200_R580, {"route_unhealthy": "True"}, "fabric.conditions", {"route_unhealthy": "True"}),
        (GB200_R580, {"route_unhealthy": "N/A"}, "fabric.conditions", {}),
        (GB200_R580, {"partition_assigned": "True"}, "fabric.conditions", {}),
        (GB200_R580, {"partition_assigned": "False"}, "fabric.conditions", {}),
        (
            GB200_R580,
            {"incorrect_configuration": "Insufficient Nvlinks"},
            "fabric.conditions",
            {"incorrect_configuration": "Insufficient Nvlinks"},
        ),
        (GB200_R580, {"uuid": "GPU-1 [Deprecated; use something else]"}, "uuid", "GPU-1"),
        (A100_R470, {"gpu_temp": "31 C [Deprecated]"}, "temperature_c", 31),
        (A100_R470, {}, "unread", {}),
        (A100_R470, {"fan_speed": "ERR!"}, "unread", {"fan_speed": "ERR!"}),
        (A100_R470, {"power_draw": "[Unknown Error]"}, "unread", {"power_readings/power_draw": "Unknown Error"}),
        (A100_R470, {"power_draw": "Insufficient Permissions"}, "unread", {}),
        (H100_R550, {"status": "Unknown Error"}, "unread", {}),
        (H100_R550, {"sram_threshold_exceeded": "Yes"}, "ecc.sram_threshold_exceeded", True),
        (H100_R550, {"clocks_event_reasons": "N/A"}, "throttle_mask", None),
        (A100_R470, {"product_name": "GPU is lost"}, "error", "GPU is lost"),
        (A100_R470, {"gpu_temp": "GPU requires reset"}, "error", "GPU requires reset"),
        (GB200_R580, {"gpu_temp": "GPU is inaccessible"}, "error", "GPU is inaccessible"),
    ],
)
def test_values(card: Card, changes: dict[str, str], path: str, value: t.Any) -> None:
    found: t.Any = one(card, **changes)
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize("card", [A100_R470, H100_R550, GB200_R580])
@pytest.mark.parametrize("error", ["Unknown Error", "ERR!", "[Timeout]"])
def test_a_gpu_of_which_nothing_can_be_read_does_not_answer(card: Card, error: str) -> None:
    vital = ("performance_state", "gpu_temp", "graphics_clock", "sm_clock", "mem_clock")
    memory = f"<total>{error}</total><used>{error}</used>"
    gpu = one(card, **dict.fromkeys(vital, error), fb_memory_usage=memory)
    assert gpu.error == f"nothing of it can be read: {error.strip('[]')}"
    assert one(card, **dict.fromkeys(vital, error)).error is None  # its memory still can


def test_versions_of_r610_with_a_remark_behind_them() -> None:
    card = GB200_R580._replace(driver="610.57.04 [Deprecated; use KMD Version]", cuda="13.3 [Deprecated]")
    run = parse_xml(machines.document(card, IDS)).runs[0]
    assert (run.driver_version, run.cuda_version) == ("610.57.04", "13.3")


@pytest.mark.parametrize("card, word", [(A100_R470, "throttle"), (H100_R550, "event")])
@pytest.mark.parametrize(
    "name, bit",
    [
        ("gpu_idle", 0x1),
        ("applications_clocks_setting", 0x2),
        ("sw_power_cap", 0x4),
        ("hw_slowdown", 0x8),
        ("sync_boost", 0x10),
        ("sw_thermal_slowdown", 0x20),
        ("hw_thermal_slowdown", 0x40),
        ("hw_power_brake_slowdown", 0x80),
        ("display_clocks_setting", 0x100),
    ],
)
def test_throttle_reasons_under_both_names(card: Card, word: str, name: str, bit: int) -> None:
    prefix = f"clocks_{word}_reason"
    gpu = one(card, **{f"{prefix}_gpu_idle": "Not Active", f"{prefix}_{name}": "Active"})
    assert (gpu.throttle_mask, gpu.throttle) == (bit, [name])


def test_processes() -> None:
    gpu = one(A100_R470, processes=machines.process_xml(11, 12))
    assert gpu.processes == [GpuProcess(pid, "C", "/opt/train,v2/python3", 1024) for pid in (11, 12)]


@pytest.mark.parametrize("name", ["sh -c a && b < c", "a&amp;b", "x\x01\x07y", "café", "<b>"])
def test_a_process_may_be_called_anything(name: str) -> None:
    text = machines.process_xml(11).replace("/opt/train,v2/python3", name)
    log = parse_xml(machines.document(A100_R470, IDS, {0: {"processes": text}}))
    assert log.ok and len(log.runs[0].gpus[0].processes) == 1


def test_mig_devices_do_not_hide_the_gpus_own_values() -> None:
    mig = "<mig_device><index>0</index><fb_memory_usage><total>4864 MiB</total></fb_memory_usage></mig_device>"
    gpu = one(A100_R535, mig_devices=mig, current_mig="Enabled")
    assert (gpu.mig, gpu.memory_total_mib) == (True, 40960)


LOST = machines.lost_line(1, IDS[1])


@pytest.mark.parametrize(
    "before, after, bus_id, index",
    [
        (LOST, "", "000B:00:00.0", 1),
        ("", LOST, "000B:00:00.0", 1),
        ("", "WARNING: infoROM is corrupted at gpu 0001:00:00.0\n", "0001:00:00.0", None),
        ("Unable to determine the device handle for GPU 000B:00:00.0: Unknown Error\n", "", "000B:00:00.0", None),
    ],
)
def test_complaints_around_a_valid_document(before: str, after: str, bus_id: str, index: int | None) -> None:
    log = parse_xml(f"{before}{machines.document(A100_R470, IDS, lost=[1])}{after}")
    run = log.runs[0]
    assert (log.ok, run.ok, run.complete, len(run.gpus), run.attached_gpus) == (False, False, True, 1, 2)
    assert (run.messages[0].bus_id, run.messages[0].index) == (bus_id, index)
    assert log.cause == run.cause and log.cause is not None and log.cause.kind == "hardware"


def test_more_attached_than_listed_is_not_ok() -> None:
    log = parse_xml(machines.document(A100_R470, IDS, attached=3))
    assert (log.ok, log.cause, log.runs[0].complete) == (False, None, True)


def test_noise_around_and_between_several_documents() -> None:
    text = machines.document(A100_R470, IDS)
    log = parse_xml(f"Warning: Permanently added 'n1'\n{text}host:1:2 [0] NCCL INFO x <y>\n{text}\x1b[4mbye\x1b[0m")
    assert log.ok and [len(run.gpus) for run in log.runs] == [2, 2]


@pytest.mark.parametrize("tag", ["0: ", "[1,0]<stdout>:", "[3] ", "   ", "\t\t"])
def test_rank_tags_and_carriage_returns(tag: str) -> None:
    text = "".join(f"{tag}{line}\r\n" for line in machines.document(A100_R470, IDS).splitlines())
    assert parse_xml(text).ok
    assert parse_xml(iter(text.splitlines(keepends=True))).ok


@pytest.mark.parametrize(
    "gone", ['<?xml version="1.0" ?>', "DOCTYPE", "driver_version", "attached_gpus", "cuda_version"]
)
def test_what_may_be_missing(gone: str) -> None:
    text = "\n".join(line for line in machines.document(A100_R470, IDS).splitlines() if gone not in line)
    log = parse_xml(text)
    assert log.ok and len(log.runs[0].gpus) == 2


@pytest.mark.parametrize("cut, gpus, whole", [("</nvidia_smi_log>", 2, 2), ("0000000B:00:00.0</pci_bus_id>", 2, 1)])
def test_a_document_that_is_cut_off(cut: str, gpus: int, whole: int) -> None:
    text = machines.document(A100_R470, IDS)
    log = parse_xml(text[: text.index(cut)])
    assert (log.ok, log.runs[0].complete, len(log.runs[0].gpus)) == (False, False, gpus)
    assert [gpu.complete for gpu in log.runs[0].gpus] == [True] * whole + [False] * (gpus - whole)
    assert log.runs[0].gpus[1].name == A100_R470.name


def test_broken_xml_keeps_what_came_before() -> None:
    text = machines.document(A100_R470, IDS).replace("0000000B:00:00.0</pci_bus_id>", "</oops>")
    run = parse_xml(text).runs[0]
    assert (run.complete, [gpu.complete for gpu in run.gpus]) == (False, [True, False])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "<nvidia_smi_log>",
        "<nvidia_smi_log></nvidia_smi_log>",
        "<nvidia_smi_log><gpu></gpu></nvidia_smi_log>",
        "<nvidia_smi_log><gpu id='x'/></gpu></nvidia_smi_log>",
        "<nvidia_smi_log>" + "<a>" * 100000,
        "</nvidia_smi_log>",
        "<nvidia_smi_logs>",
        "\ud800<nvidia_smi_log>\udfff",
        "<nvidia_smi_log>\n&undefined;\n</nvidia_smi_log>",
    ],
)
def test_nonsense_is_never_ok_and_never_raises(text: str) -> None:
    assert not parse_xml(text).ok


def test_entities_are_neither_expanded_nor_fetched() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa">'
    bomb += "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi"))
    bomb += '<!ENTITY x SYSTEM "file:///etc/passwd">]>\n'
    begin = time.monotonic()
    for name in ("i", "x"):
        log = parse_xml(f"{bomb}<nvidia_smi_log>\n<driver_version>&{name};</driver_version>\n</nvidia_smi_log>")
        assert not log.ok and log.runs[0].driver_version == f"&{name};"
    assert time.monotonic() - begin < patience(20)


PARTS = st.sampled_from([*machines.document(A100_R470, IDS[:1]).splitlines(True), LOST, "&", "<", "\x00", "\r"])


@given(st.lists(st.one_of(PARTS, st.text(max_size=20)), max_size=60))
def test_any_mixture_of_lines_gives_json(lines: list[str]) -> None:
    json.dumps(dataclasses.asdict(parse_xml("".join(["<nvidia_smi_log>\n<gpu id='0'>\n", *lines]))), allow_nan=False)
