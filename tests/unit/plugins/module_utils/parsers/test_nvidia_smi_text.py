# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi, nvidia_smi_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import TopologyDevice
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines

FIXTURES = Path(machines.__file__).parent
R470, R550, R610 = (FIXTURES / f"query-{name}.txt" for name in ("r470", "r550", "r610"))
CUBE = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "NV1", (2, 3): "NV1"}


# -q


@pytest.mark.parametrize(
    "path, driver, gpus, sections",
    [
        (R470, "470.82.01", ["00000001:00:00.0", "0000000B:00:00.0"], "Throttle"),
        (R550, "550.90.07", ["00000001:00:00.0", "00000002:00:00.0"], "Event"),
        (R610, "610.57.04", ["00000001:00:00.0", "00000002:00:00.0"], "Event"),
    ],
)
def test_query_is_keyed_by_path(path: Path, driver: str, gpus: list[str], sections: str) -> None:
    log = nvidia_smi.parse_query(path.read_text())
    run = log.runs[0]
    assert log.ok and (run.driver_version, run.attached_gpus) == (driver, 2)
    assert [gpu.bus_id for gpu in run.gpus] == gpus
    gpu = run.gpus[1]
    assert gpu.measured("MHz", "Clocks/Graphics") == 210
    assert gpu.measured("MHz", "Max Clocks/Graphics") == (1410 if sections == "Throttle" else 1980)
    assert gpu.get(f"Clocks {sections} Reasons/HW Slowdown/HW Thermal Slowdown") == "Not Active"
    assert gpu.get("Clocks Event Reasons/Idle", "Clocks Throttle Reasons/Idle") == "Active"
    assert gpu.measured("x", "PCI/GPU Link Info/Link Width/Current") == 16
    assert gpu.get("Fan Speed") is None
    assert (gpu.get("Remapped Rows/Uncorrectable Error"), gpu.get("ECC Errors/Aggregate/SRAM Correctable")) == (
        "2",
        "1",
    )
    json.dumps(dataclasses.asdict(log))


def test_query_processes_and_deprecated_fields() -> None:
    gpu = nvidia_smi.parse_query(R550.read_text()).runs[0].gpus[0]
    assert gpu.get("Applications Clocks/Graphics") is None
    assert [process["Process ID"] for process in gpu.processes] == ["4711", "4712"]
    assert gpu.processes[0]["Name"] == "python3 : main"
    assert gpu.processes[1]["Used GPU Memory"] == "8 MiB"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: text.rindex("    Max Clocks")],
        lambda text: text[: text.rindex("GPU 0000000B")],
        lambda text: text.replace("Attached GPUs                             : 2", ""),
        lambda text: machines.lost_line(1, "0000000B:00:00.0") + text,
        lambda text: "",
        lambda text: "NCCL INFO a : b\n" * 10,
    ],
)
def test_query_that_is_not_whole(change: t.Callable[[str], str]) -> None:
    assert not nvidia_smi.parse_query(change(R470.read_text())).ok


def test_query_with_a_display_filter_has_no_processes() -> None:
    begin = "\n==============NVSMI LOG==============\n\nAttached GPUs                             : 2\n"
    block = "GPU 0000000{}:00:00.0\n    Clocks\n        Graphics                          : 210 MHz\n"
    assert nvidia_smi.parse_query(begin + block.format(1) + block.format(2)).ok
    assert not nvidia_smi.parse_query(begin + block.format(1) + block.format(2)[:30]).ok


@pytest.mark.parametrize("tag", ["1: ", "[1,1]<stdout>:", "    "])
def test_query_under_rank_tags_keeps_its_tree(tag: str) -> None:
    text = "".join(f"{tag}{line}\r\n" for line in R470.read_text().splitlines())
    log = nvidia_smi.parse_query(text)
    assert log.ok and log.runs[0].gpus[0].get("Max Clocks/Memory") == "1215 MHz"


def test_two_queries_in_one_log() -> None:
    log = nvidia_smi.parse_query(R470.read_text() + R550.read_text())
    assert log.ok and [run.driver_version for run in log.runs] == ["470.82.01", "550.90.07"]


# R610 as public outputs show it: values that go have a remark behind them, and a new name beside the old one.
R610_HEAD = """
==============NVSMI LOG==============

Timestamp                                              : Sun Sep  6 08:21:38 2026
Driver Version                                         : {driver}
CUDA Version                                           : {cuda}
KMD Version                                            : 610.57.04
CUDA UMD Version                                       : 13.3

Attached GPUs                                          : 1
GPU 00000000:01:00.0
    Temperature
        GPU Current Temp                               : 79 C
        Memory Current Temp                            : N/A
"""
DEPRECATED = " [Deprecated; will be removed in CUDA 14.0. Use {} Version instead]"


@pytest.mark.parametrize(
    "driver, cuda",
    [
        ("610.57.04" + DEPRECATED.format("KMD"), "13.3" + DEPRECATED.format("CUDA UMD")),
        ("610.57.04 [Deprecated]", "13.3 [see CUDA UMD Version]"),
        ("N/A", "[Deprecated]"),
        ("610.57.04", "13.3"),
    ],
)
def test_query_values_with_a_remark_behind_them(driver: str, cuda: str) -> None:
    log = nvidia_smi.parse_query(R610_HEAD.format(driver=driver, cuda=cuda))
    assert log.ok
    assert (log.runs[0].driver_version, log.runs[0].cuda_version) == ("610.57.04", "13.3")


def test_query_of_cuda_14_has_the_new_names_only() -> None:
    text = R610_HEAD.format(driver="", cuda="")
    text = "".join(line for line in text.splitlines(True) if not line.startswith(("Driver", "CUDA Version")))
    run = nvidia_smi.parse_query(text).runs[0]
    assert (run.driver_version, run.cuda_version) == ("610.57.04", "13.3")


def test_query_remarks_hide_no_number() -> None:
    text = R470.read_text().replace(": 1410 MHz", ": 1410 MHz [Deprecated; use something else]")
    gpu = nvidia_smi.parse_query(text).runs[0].gpus[1]
    assert gpu.measured("MHz", "Max Clocks/Graphics") == 1410
    assert gpu.get("Max Clocks/Graphics") == "1410 MHz"


@pytest.mark.parametrize(
    "error, why",
    [
        ("GPU is lost", "GPU is lost"),
        ("[GPU requires reset]", "GPU requires reset"),
        ("Unknown Error", "nothing of it can be read: Unknown Error"),
        ("ERR!", "nothing of it can be read: ERR!"),
    ],
)
def test_query_of_a_gpu_that_does_not_answer_is_not_ok(error: str, why: str) -> None:
    head, one, two = R550.read_text().rpartition("GPU 00000002:00:00.0")
    lost = "".join(
        f"{line.partition(' :')[0]} : {error}\n" if " : " in line and "Process" not in line else line
        for line in two.splitlines(True)
    )
    log = nvidia_smi.parse_query(head + one + lost)
    assert [gpu.error for gpu in log.runs[0].gpus] == [None, why]
    assert not log.ok


def test_query_with_one_value_that_cannot_be_read_answers() -> None:
    """R375 in a container showed a GPU whose name alone was Unknown Error."""
    text = R470.read_text().replace(": NVIDIA A100-SXM4-40GB", ": Unknown Error")
    log = nvidia_smi.parse_query(text)
    assert log.ok and log.runs[0].gpus[0].error is None and log.runs[0].gpus[0].get("Product Name") is None


# --query-gpu

CSV = """index, name, pci.bus_id, clocks.max.graphics [MHz], memory.total [MiB], temperature.gpu
0, NVIDIA A100-SXM4-40GB, 00000001:00:00.0, 1410 MHz, 40536 MiB, 31
1, NVIDIA A100-SXM4-40GB, 00000002:00:00.0, 1410 MHz, [N/A], [Unknown Error]
"""


@pytest.mark.parametrize("text", [CSV, CSV.replace("0 MHz,", "0,").replace("40536 MiB", "40536")])
def test_csv_with_and_without_units(text: str) -> None:
    log = nvidia_smi.parse_csv(text)
    run = log.runs[0]
    assert log.ok and run.units == {"clocks.max.graphics": "MHz", "memory.total": "MiB"}
    assert [row.number("clocks.max.graphics") for row in run.rows] == [1410, 1410]
    assert [row.number("memory.total") for row in run.rows] == [40536, None]
    assert run.rows[1].values["pci.bus_id"] == "00000002:00:00.0"
    assert run.rows[1].values["temperature.gpu"] is None


@pytest.mark.parametrize(
    "cell",
    [
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "[Unknown Error]",
        "[GPU requires reset]",
        "ERR!",
        "",
        "[GPU is lost]",
        "[Insufficient Permissions]",
        "[Requested functionality has been deprecated]",
        "[No data]",
        "[Timeout]",
        "[Resource not in correct state to perform requested operation]",
        "[some error that a newer driver has]",
    ],
)
def test_csv_words_for_no_value(cell: str) -> None:
    log = nvidia_smi.parse_csv(f"index, power.draw [W]\n0, {cell}\n")
    assert log.runs[0].rows[0].values == {"index": "0", "power.draw": None}
    assert log.ok != cell.startswith(("[GPU ", "[Insufficient"))


FABRIC = "fabric.state, fabric.status, fabric.cliqueId, fabric.clusterUuid"


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize(
    "head, row",
    [
        (FABRIC, "Completed, Success, 32766, 1b968348-93db-416a-b5e5-3fa2bb9f0c5b"),
        ("hostname, index", "gpu-0001, 0"),
        ("index, pci.baseClass, encoder.stats.sessionCount", "0, 0x03, 0"),
        ("timestamp, hostname, fabric.cliqueId", "2026/11/20 10:00:00.000, gpu-0001, [N/A]"),
        ("hostname", "gpu-0001"),
    ],
)
def test_a_header_is_never_a_gpu(head: str, row: str, asked: bool) -> None:
    fields = head.split(", ")
    log = nvidia_smi.parse_csv(f"{head}\n{row}\n{row}\n", fields if asked else ())
    assert log.ok and log.runs[0].fields == fields
    assert [list(line.values) for line in log.runs[0].rows] == [fields, fields]
    assert log.runs[0].rows[0].values[fields[0]] == row.split(", ")[0]


@pytest.mark.parametrize(
    "asked, head",
    [
        ("gpu_name, gpu_uuid, gpu_bus_id", "name, uuid, pci.bus_id"),
        ("index, clocks.sm, clocks.max.mem", "index, clocks.current.sm [MHz], clocks.max.memory [MHz]"),
        ("index, clocks_throttle_reasons.active", "index, clocks_event_reasons.active"),
        ("index, clocks_event_reasons.active", "index, clocks_throttle_reasons.active"),
        ("Index, Hostname", "Index, Hostname"),
    ],
)
def test_a_header_has_other_names_than_were_asked_for(asked: str, head: str) -> None:
    fields = asked.lower().split(", ") if asked != head else asked.split(", ")
    cells = ", ".join("5" for dummy in fields)
    log = nvidia_smi.parse_csv(f"{head}\n{cells}\n", fields)
    expected = 2 if asked == head else 1  # nvidia-smi knows no field with a capital in front
    assert [len(run.rows) for run in log.runs] == [expected]
    assert log.runs[0].rows[-1].number(fields[0]) == 5


def test_a_header_again_begins_a_table_also_with_fields_that_were_asked_for() -> None:
    text = f"{FABRIC}\nCompleted, Success, 1, a\n{FABRIC}\nCompleted, Success, 1, a\n"
    log = nvidia_smi.parse_csv(text, FABRIC.split(", "))
    assert log.ok and [len(run.rows) for run in log.runs] == [1, 1]


def test_csv_without_header_needs_the_names() -> None:
    text = "0, 00000001:00:00.0\n1, 00000002:00:00.0\n"
    log = nvidia_smi.parse_csv(text, ["index", "pci.bus_id"])
    assert log.ok and [row.number("index") for row in log.runs[0].rows] == [0, 1]
    assert nvidia_smi.parse_csv(f"index, pci.bus_id\n{text}", ["index", "pci.bus_id"]).runs == log.runs
    assert not nvidia_smi.parse_csv(text).ok


@pytest.mark.parametrize("text", ["hello, name\n1, 2\n", "done\n", "Index, name\n0, x\n"])
def test_prose_is_no_csv_header(text: str) -> None:
    assert nvidia_smi.parse_csv(text).runs == []


def test_csv_repeats_its_header_in_a_new_run() -> None:
    log = nvidia_smi.parse_csv(CSV + CSV)
    assert log.ok and [len(run.rows) for run in log.runs] == [2, 2]


def test_csv_with_a_lost_gpu_keeps_the_rest() -> None:
    log = nvidia_smi.parse_csv(machines.lost_line(2, "00000003:00:00.0") + CSV)
    assert (log.ok, len(log.runs[0].rows), log.runs[0].complete) == (False, 2, True)
    assert log.cause is not None and log.cause.kind == "hardware"


def test_csv_lines_that_do_not_fit_are_not_shifted_into_other_fields() -> None:
    log = nvidia_smi.parse_csv("pid, process_name, used_gpu_memory [MiB]\n7, a, b, 5 MiB\n8, c, 6 MiB\n")
    assert (log.ok, log.runs[0].rejected) == (False, ["7, a, b, 5 MiB"])
    assert [row.number("pid") for row in log.runs[0].rows] == [8]


@pytest.mark.parametrize(
    "text, kind",
    [
        ('Field "clocks.foo" is not a valid field to query.\n', "software"),
        ("No devices were found\n", "hardware"),
        ((FIXTURES / "captured-no-driver-query.txt").read_text(), "software"),
    ],
)
def test_csv_that_is_a_complaint(text: str, kind: str) -> None:
    log = nvidia_smi.parse_csv(text)
    assert not log.ok and log.cause is not None and log.cause.kind == kind


# topo -m


def test_matrix_with_tabs_and_ansi_codes() -> None:
    text = machines.matrix({}, [("24-47", "1", "N/A"), ("0-23", "0", "N/A")], ["mlx5_ib0"], lambda gpu, nic: "NODE")
    log = nvidia_smi.parse_topo(text)
    assert log.ok and log.runs[0].nics == ["mlx5_ib0"]
    assert log.runs[0].gpus[1] == TopologyDevice("GPU1", {"GPU0": "NV12", "mlx5_ib0": "NODE"}, "0-23", "0", None)
    assert log.runs[0].devices[2] == TopologyDevice("mlx5_ib0", {"GPU0": "NODE", "GPU1": "NODE"}, None, None, None)
    json.dumps(dataclasses.asdict(log))


def test_adapters_in_a_legend_get_their_names() -> None:
    text = machines.matrix({}, [("0-1", "0", "N/A")] * 2, ["mlx5_ib0", "mlx5_ib1"], renamed=True)
    log = nvidia_smi.parse_topo(text)
    assert log.ok and log.runs[0].nics == ["mlx5_ib0", "mlx5_ib1"]
    assert log.runs[0].gpus[0].links == {"GPU1": "NV12", "mlx5_ib0": "SYS", "mlx5_ib1": "SYS"}


@pytest.mark.parametrize(
    "cells, want",
    [
        (("24-47", "1"), ("24-47", "1", None)),
        (("0-55,112-167", "0", "N/A"), ("0-55,112-167", "0", None)),
        (("0-71", "0,2-17", "2"), ("0-71", "0,2-17", "2")),
        (("0-71", "0,3-9,11-17", "10"), ("0-71", "0,3-9,11-17", "10")),
        (("24-47",), ("24-47", None, None)),
        (("", "", "N/A"), (None, None, None)),
        (("", "", "2"), (None, None, "2")),
        (("", "1", "2"), (None, "1", "2")),
        (("0-7", "N/A", "N/A"), ("0-7", None, None)),
        (("", ""), (None, None, None)),
    ],
)
def test_affinities_of_all_ages(cells: tuple[str, ...], want: tuple[str | None, ...]) -> None:
    log = nvidia_smi.parse_topo(machines.matrix({}, [cells] * 2))
    gpu = log.runs[0].gpus[1]
    assert log.ok and (gpu.cpus, gpu.numa, gpu.gpu_numa_id) == want


def test_affinities_behind_padding_tabs() -> None:
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t\tN/A\t\tN/A\n\nLegend:\n"
    gpu = nvidia_smi.parse_topo(text).runs[0].gpus[0]
    assert (gpu.cpus, gpu.numa, gpu.gpu_numa_id) == ("0-7", None, None)


PASTED = """
        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    PIX     SYS     0-55,112-167    0               N/A
GPU1    NV18     X      NODENODE        0-55,112-167    0               N/A
NIC0    PIX     NODE     X      SYS
NIC1    SYS     NODE    SYS      X

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


@pytest.mark.parametrize("tag", ["", "0: ", "    "])
def test_pasted_matrix_with_blanks(tag: str) -> None:
    log = nvidia_smi.parse_topo("".join(f"{tag}{line}\n" for line in PASTED.splitlines()))
    assert log.ok
    assert log.runs[0].gpus[0].links == {"GPU1": "NV18", "mlx5_0": "PIX", "mlx5_1": "SYS"}
    assert log.runs[0].gpus[1].links == {"GPU0": "NV18", "mlx5_0": "NODE", "mlx5_1": "NODE"}
    assert (log.runs[0].gpus[1].cpus, log.runs[0].gpus[1].numa) == ("0-55,112-167", "0")


@pytest.mark.parametrize("code", ["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV18", "C2C"])
def test_codes(code: str) -> None:
    log = nvidia_smi.parse_topo(machines.matrix({}, [("0-1", "0")] * 2, default=code))
    assert log.ok and log.runs[0].gpus[0].links == {"GPU1": code}


def test_a_cube_of_v100() -> None:
    run = nvidia_smi.parse_topo(machines.matrix(CUBE, [("0-19", "0")] * 4)).runs[0]
    assert list(run.gpus[0].links.values()) == ["NV1", "NV1", "NV2"]


def test_peer_to_peer_has_the_same_shape() -> None:
    text = " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tOK\tGNS\t\n GPU1\tOK\tX\tCNS\t\n GPU2\tTNS\tNS\tX\t\n\nLegend:\n"
    log = nvidia_smi.parse_topo(text)
    assert log.ok and [gpu.links for gpu in log.runs[0].gpus][2] == {"GPU0": "TNS", "GPU1": "NS"}


def test_a_matrix_that_is_cut_off() -> None:
    text = machines.matrix({}, [("0-23", "0", "N/A")] * 4)
    cut = nvidia_smi.parse_topo(text[: text.rindex("GPU3\t") + len("GPU3\tNV12\tNV1")])
    assert not cut.ok and len(cut.runs[0].gpus) == 4
    # NV1 may be the beginning of NV12.
    assert cut.runs[0].gpus[3].links == {"GPU0": "NV12"}
    assert not nvidia_smi.parse_topo(text[: text.index("Legend")]).ok


def test_matrices_of_several_nodes_in_one_log() -> None:
    text = machines.matrix({}, [("0-1", "0")] * 2) + machines.matrix({}, [("0-1", "0")] * 3, default="NV18")
    log = nvidia_smi.parse_topo(text)
    assert log.ok and [len(run.gpus) for run in log.runs] == [2, 3]


# nvlink -s


def test_links_with_speeds() -> None:
    log = nvidia_smi.parse_nvlink(machines.nvlink(machines.H100_R550, 8, 18, "26.562 GB/s"))
    assert log.ok and [gpu.active for gpu in log.runs[0].gpus] == [18] * 8
    assert log.runs[0].gpus[7].links[0].gbps == 26.562
    assert log.runs[0].gpus[7].name == "NVIDIA H100 80GB HBM3"


def test_links_that_are_down_are_facts() -> None:
    text = machines.nvlink(machines.V100_R440, 3, 6, "25.781 GB/s", down=[(1, 3), (1, 5)])
    log = nvidia_smi.parse_nvlink(text)
    assert log.ok and [gpu.active for gpu in log.runs[0].gpus] == [6, 4, 6]
    assert [link.state for link in log.runs[0].gpus[1].links][3] == "inactive"


@pytest.mark.parametrize(
    "sentence",
    [
        "NVML: Unable to retrieve NVLink information as all links are inActive",
        "NVML: Unable to retrieve Nvlink information as all links are InActive",
        "Unable to retrieve NVLink information as all links are inactive",
    ],
)
def test_all_links_down_is_a_sentence(sentence: str) -> None:
    alone = nvidia_smi.parse_nvlink(f"{sentence}\n")
    assert [(gpu.all_inactive, gpu.active) for gpu in alone.runs[0].gpus] == [(True, 0)]
    text = machines.nvlink(machines.H100_R550, 1, 18) + f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-x)\n{sentence}\n"
    log = nvidia_smi.parse_nvlink(text)
    assert log.ok and [(gpu.all_inactive, gpu.active) for gpu in log.runs[0].gpus] == [(False, 18), (True, 0)]


HEAD = "GPU {}: NVIDIA H100 80GB HBM3 (UUID: GPU-{})\n"


@pytest.mark.parametrize(
    "sentence",
    [
        "NVML: Unable to retrieve NVLink speed : Not Supported",
        "NVLink information is not available while MIG is enabled",
        "MIG mode is enabled: links cannot be shown",
    ],
)
def test_a_sentence_in_place_of_links_is_kept(sentence: str) -> None:
    """It tells neither how many links there are nor that they are down."""
    text = machines.nvlink(machines.H100_R550, 1, 18) + HEAD.format(1, 1) + sentence + "\n"
    log = nvidia_smi.parse_nvlink(text)
    run = log.runs[0]
    assert [(gpu.active, gpu.all_inactive, gpu.unread) for gpu in run.gpus] == [
        (18, False, None),
        (0, False, sentence),
    ]
    assert (log.ok, run.complete, run.gpus[1].sentence) == (False, True, sentence)


def test_a_sentence_behind_links_is_another_programs() -> None:
    log = nvidia_smi.parse_nvlink(machines.nvlink(machines.H100_R550, 2, 18) + "n1:7:7 NCCL INFO NVLink SHARP\n")
    assert log.ok and log.runs[0].gpus[1].sentence is None


@pytest.mark.parametrize(
    "sentence, state, unread",
    [
        ("NVML: Unable to retrieve NVLink information for link 17 - inActive", "inactive", None),
        (
            "NVML: Unable to retrieve NVLink speed for link 17: Unknown Error",
            "Unknown Error",
            "link 17: Unknown Error",
        ),
        (
            "NVML: Unable to get the NvLink link capability for link 17: GPU is lost",
            "GPU is lost",
            "link 17: GPU is lost",
        ),
    ],
)
def test_a_sentence_about_one_link(sentence: str, state: str, unread: str | None) -> None:
    lines = machines.nvlink(machines.H100_R550, 1, 18).splitlines()
    log = nvidia_smi.parse_nvlink("\n".join([*lines[:-1], sentence, ""]))
    gpu = log.runs[0].gpus[0]
    assert (len(gpu.links), gpu.active, gpu.links[17].state, gpu.unread) == (18, 17, state, unread)
    assert log.ok == (unread is None)


def test_links_that_are_cut_off_and_links_of_nobody() -> None:
    text = machines.nvlink(machines.H100_R550, 2, 18)
    assert not nvidia_smi.parse_nvlink(text[:-40]).ok
    assert nvidia_smi.parse_nvlink("").runs == []
    assert not nvidia_smi.parse_nvlink("GPU 0: NVIDIA A100\n").ok


# Messages


@pytest.mark.parametrize(
    "text, kind, bus_id, index",
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "software",
            None,
            None,
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "software", None, None),
        ("Failed to initialize NVML: Unknown Error", "software", None, None),
        ("Failed to initialize NVML: Driver Not Loaded", "software", None, None),
        ("Failed to initialize NVML: Insufficient Permissions", "config", None, None),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "config", None, None),
        ("No devices were found", "hardware", None, None),
        ("NVML library not found", "software", None, None),
        ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", "hardware", "0000:0B:00.0", None),
        ("Unable to determine the device handle for GPU0000:0b:00.0: Not Found", "hardware", "0000:0B:00.0", None),
        (
            "Unable to determine the device handle for GPU4: 0000:0B:00.0: GPU is lost.  Reboot the system to recover",
            "hardware",
            "0000:0B:00.0",
            4,
        ),
        ("Unable to determine the device handle for GPU2: Unknown Error", "hardware", None, 2),
        ("Unable to determine the device handle for gpu 00000008:00:00.0: x", "hardware", "00000008:00:00.0", None),
        ("WARNING: infoROM is corrupted at gpu 0008:00:00.0", "hardware", "0008:00:00.0", None),
        ("GPU 0000:01:00.0: external power cables are not properly attached", "hardware", "0000:01:00.0", None),
        ('Field "x" is not a valid field to query.', "software", None, None),
        ("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", "software", None, None),
        ("Error: the Fabric Manager is not running", "software", None, None),
        (
            "nvidia-fabricmanager.service: Failed with result 'exit-code'; failed",
            "software",
            None,
            None,
        ),
        ("CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized", "software", None, None),
        # Who says it does not decide: a handle that is denied is no broken GPU.
        (
            "Unable to determine the device handle for GPU1: 0000:0B:00.0: Insufficient Permissions",
            "config",
            "0000:0B:00.0",
            1,
        ),
        (
            "Unable to determine the device handle for GPU0000:0B:00.0: Driver/library version mismatch",
            "software",
            "0000:0B:00.0",
            None,
        ),
        (
            "Unable to determine the device handle for GPU0000:0B:00.0: A GPU reset must occur before this GPU can be "
            "used again.",
            "hardware",
            "0000:0B:00.0",
            None,
        ),
        (
            "No devices were found. Please make sure /dev/nvidia* files are readable by current user.",
            "config",
            None,
            None,
        ),
        ("No devices found.", "hardware", None, None),
        ("Failed to initialize NVML: No supported GPUs were found", "software", None, None),
        ("Unable to determine the number of available GPUs: Unknown Error", "software", None, None),
        (
            "Unable to determine the product name for gpu 00000000:0B:00.0: GPU is lost",
            "hardware",
            "00000000:0B:00.0",
            None,
        ),
        ("Problem with GPU 00000000:0B:00.0: Interrupt Request Issue", "hardware", "00000000:0B:00.0", None),
        ("Problem with GPU 00000000:0B:00.0: Insufficient Permissions", "config", "00000000:0B:00.0", None),
        ("Unable to communicate with GPU because it is insufficiently powered.", "hardware", None, None),
        ("The NVIDIA kernel module detected an issue with GPU interrupts.Consult the README", "hardware", None, None),
        ("WARNING: infoROM is corrupted", "hardware", None, None),
        ("Failed to initialize NVML: Argument version mismatch", "software", None, None),
    ],
)
def test_messages(text: str, kind: str, bus_id: str | None, index: int | None) -> None:
    found = nvidia_smi.message(f"noise\n\x1b[1m{text}\x1b[0m\r\n")
    assert found is not None and found.text == text
    assert (found.kind, found.bus_id, found.index) == (kind, bus_id, index)


@pytest.mark.parametrize("name, kind", [("captured-no-driver.txt", "software"), ("captured-no-nvml.txt", "software")])
def test_captured_messages(name: str, kind: str) -> None:
    text = (FIXTURES / name).read_text()
    found = nvidia_smi.message(text)
    assert found is not None and found.kind == kind
    assert nvidia_smi.parse_xml(text).cause == found


@pytest.mark.parametrize("text", ["", "GPU 0: NVIDIA A100 (UUID: GPU-1)", "All done.", "Persistence mode is Enabled"])
def test_what_is_no_complaint(text: str) -> None:
    assert nvidia_smi.message(text) is None


@pytest.mark.parametrize(
    "code, kind",
    [
        (2, "software"),
        (3, "config"),
        (4, "config"),
        (6, "hardware"),
        (8, "hardware"),
        (9, "software"),
        (10, "hardware"),
        (12, "software"),
        (13, "software"),
        (14, "hardware"),
        (15, "hardware"),
        (18, "software"),
    ],
)
def test_exit_statuses(code: int, kind: str) -> None:
    found = nvidia_smi.status(code)
    assert found is not None and found.kind == kind and f"exit status {code}" in found.text


@pytest.mark.parametrize("code", [0, None, 1, 255])
def test_statuses_that_say_nothing(code: int | None) -> None:
    assert nvidia_smi.status(code) is None


# Values


@pytest.mark.parametrize(
    "bits, names",
    [
        (0, []),
        (0x1, ["gpu_idle"]),
        (0x48, ["hw_slowdown", "hw_thermal_slowdown"]),
        (0x1FF, list(nvidia_smi.THROTTLE_BITS.values())),
        (0x8000000000000000, ["0x8000000000000000"]),
    ],
)
def test_throttle_bits(bits: int, names: list[str]) -> None:
    assert nvidia_smi.throttle_names(bits) == names
    assert nvidia_smi_values.mask(f"{bits:#018x}") == bits


def test_faults_are_those_that_no_healthy_gpu_shows() -> None:
    assert nvidia_smi.THROTTLE_FAULTS == 0xE8


@pytest.mark.parametrize(
    "function, text, want",
    [
        (nvidia_smi_values.flag, "Enabled", True),
        (nvidia_smi_values.flag, "Not Active", False),
        (nvidia_smi_values.flag, "N/A", None),
        (nvidia_smi_values.flag, "maybe", None),
        (nvidia_smi_values.count, "12", 12),
        (nvidia_smi_values.count, "-1", None),
        (nvidia_smi_values.count, "1.5", None),
        (nvidia_smi_values.count, "9" * 30, None),
        (nvidia_smi_values.count, "\u0661", None),
        (nvidia_smi_values.mask, "0xZZ", None),
        (nvidia_smi_values.mask, "0x" + "f" * 40, None),
        (nvidia_smi_values.value, "[Not Supported]", None),
        (nvidia_smi_values.value, "GPU access blocked by the operating system", None),
        (nvidia_smi_values.value, "a [b]", "a [b]"),
        (nvidia_smi_values.plain, "a [b]", "a"),
        (nvidia_smi_values.plain, "a[b]", "a[b]"),
        (nvidia_smi_values.plain, "N/A [Deprecated]", None),
        (nvidia_smi_values.plain, "[b]", None),
        (nvidia_smi_values.plain, "]", "]"),
        (nvidia_smi_values.count, "8 [Deprecated]", 8),
        (nvidia_smi_values.failed, "[Unknown Error]", "Unknown Error"),
        (nvidia_smi_values.failed, "ERR!", "ERR!"),
        (nvidia_smi_values.failed, "[Not Supported]", None),
        (nvidia_smi_values.failed, "Insufficient Permissions", None),
        (nvidia_smi_values.failed, "31 C", None),
        (nvidia_smi_values.value, "[", "["),
        (nvidia_smi_values.value, None, None),
    ],
)
def test_values(function: t.Callable[[str], t.Any], text: str, want: t.Any) -> None:
    assert function(text) == want


# Any text

LINES = [
    *R470.read_text().splitlines(keepends=True)[:90],
    *machines.matrix(CUBE, [("0-19", "0", "N/A")] * 4, ["mlx5_0"], renamed=True).splitlines(keepends=True),
    *machines.nvlink(machines.V100_R440, 2, 2).splitlines(keepends=True),
    *CSV.splitlines(keepends=True),
    machines.lost_line(1, "0000000B:00:00.0"),
    "\t" * 50 + "\n",
    "GPU0" + " " * 500 + "x\n",
]
PARSERS = (nvidia_smi.parse_query, nvidia_smi.parse_csv, nvidia_smi.parse_topo, nvidia_smi.parse_nvlink)


@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=30)), max_size=60))
def test_any_mixture_of_lines_gives_json(lines: list[str]) -> None:
    for parser in PARSERS:
        json.dumps(dataclasses.asdict(parser("".join(lines))), allow_nan=False)


@pytest.mark.parametrize(
    "damaged", ["index, name, tempera\ufeffture.gpu", "index, name, temper", "inde\x00, gpu_name, temperature"]
)
def test_a_header_that_was_damaged_is_no_gpu(damaged: str) -> None:
    """It was a GPU whose values are the names of its fields, and where nothing followed, a table that was ok."""
    text = f"index, name, temperature.gpu\n{damaged}\n"
    (run,) = nvidia_smi.parse_csv(text).runs
    assert (run.rows, run.rejected, run.ok) == ([], [damaged], False)
    (run,) = nvidia_smi.parse_csv(text + "0, NVIDIA H100, 31\n").runs
    assert (len(run.rows), run.ok) == (1, False)


def test_a_process_may_be_called_like_a_field() -> None:
    (run,) = nvidia_smi.parse_csv("gpu_uuid, pid, process_name\nGPU-aa, 7, process_name\n").runs
    assert (len(run.rows), run.ok) == (1, True)
