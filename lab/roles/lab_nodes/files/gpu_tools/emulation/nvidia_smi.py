# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi of driver release 550: queries, topology, NVLink and the clock settings that need root."""

from __future__ import annotations

import typing as t

from emulation import smi_clocks, smi_csv, smi_print, smi_wiring
from emulation.machine import Gpu, Machine
from emulation.smi_values import State, everything

UNREACHABLE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n"
# What may be wrong with the driver as a whole (fault "failing"): message and exit status.
BROKEN = {
    "driver": (UNREACHABLE, 9),
    "mismatch": (MISMATCH, 18),
    "library": (
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
        "Driver is properly installed and present in your system.\nPlease also try adding directory that contains "
        "libnvidia-ml.so to your system PATH.",
        12,
    ),
    "no_devices": ("No devices were found", 6),
}
LONG = {
    "--list-gpus": "-L",
    "--query": "-q",
    "--xml-format": "-x",
    "--id": "-i",
    "--display": "-d",
    "--persistence-mode": "-pm",
    "--lock-gpu-clocks": "-lgc",
    "--reset-gpu-clocks": "-rgc",
    "--lock-memory-clocks": "-lmc",
    "--reset-memory-clocks": "-rmc",
    "--applications-clocks": "-ac",
    "--reset-applications-clocks": "-rac",
}
FLAGS = {"-L", "-q", "-x", "-rgc", "-rmc", "-rac", "-h", "-s", "-m"}
VALUED = {
    "-i",
    "-d",
    "-pm",
    "-lgc",
    "-lmc",
    "-ac",
    "--query-gpu",
    "--query-compute-apps",
    "--format",
    "--help-query-gpu",
}


class Usage(Exception):
    """The command line makes no sense."""


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    if machine.faults.get("failing") in BROKEN:
        message, status = BROKEN[machine.faults["failing"]]
        print(message)
        return status
    words = list(arguments)
    sub = words.pop(0) if words and words[0] in ("topo", "nvlink") else ""
    try:
        options = _parse(words, bool(sub))
    except Usage as exc:
        print(f"{exc}\nPlease run 'nvidia-smi -h' for help.")
        return 2
    gpus, lost = machine.gpus(), [gpu for gpu in machine.gpus() if machine.listed("lost_gpu", gpu.index)]
    if not gpus:
        print("No devices were found")
        return 6
    chosen = _select(gpus, options.get("-i", ""))
    if chosen is None:
        print(f"No devices were found matching {options['-i']}")
        return 6
    for gpu in lost:
        print(
            f"Unable to determine the device handle for GPU{gpus.index(gpu)}: {gpu.bus_id}: GPU is lost.  "
            "Reboot the system to recover this GPU"
        )
    there = [(number, gpu) for number, gpu in chosen if gpu not in lost]
    status = _run(machine, sub, options, there)
    return 15 if lost else status


def _parse(words: list[str], sub: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    while words:
        word, equals, value = words.pop(0).partition("=")
        key = LONG.get(word, word)
        if key in VALUED:
            if not equals and not words:
                raise Usage(f'Option "{word}" requires an argument.')
            found[key] = value if equals else words.pop(0)
        elif key in FLAGS or (sub and key in ("-p2p", "--status", "--matrix", "-e", "--errorcounters")):
            found[key] = words.pop(0) if key == "-p2p" and words else ""
        else:
            raise Usage(f"Invalid combination of input arguments. Option {word!r} is not recognized.")
    return found


def _select(gpus: list[Gpu], wanted: str) -> list[tuple[int, Gpu]] | None:
    """The GPUs that -i names by index, bus id or UUID, with their index; nothing if one of them does not exist."""
    numbered = list(enumerate(gpus))
    if not wanted:
        return numbered
    found: list[tuple[int, Gpu]] = []
    for word in wanted.split(","):
        hits = [
            (number, gpu)
            for number, gpu in numbered
            if word in (str(number), gpu.uuid) or (gpu.bus_id.upper().endswith(word.upper()) and ":" in word)
        ]
        if not hits:
            return None
        found += hits
    return found


def _run(machine: Machine, sub: str, options: dict[str, str], gpus: list[tuple[int, Gpu]]) -> int:
    if sub:
        counts = sub == "nvlink" and bool({"-e", "--errorcounters"} & set(options))
        shown = smi_wiring.topology(machine, options) if sub == "topo" else smi_wiring.nvlink(machine, gpus, counts)
        print("\n".join(shown))
        return 0
    change = next((key for key in options if key in smi_clocks.CHANGES), None)
    if change:
        return smi_clocks.change(machine, change, options[change], gpus)
    if "-L" in options:
        print("\n".join(f"GPU {number}: {machine['gpu']['name']} (UUID: {gpu.uuid})" for number, gpu in gpus))
        return 0
    if "--query-gpu" in options:
        return smi_csv.gpus(machine, options["--query-gpu"], options.get("--format", ""), gpus)
    if "--query-compute-apps" in options:
        return smi_csv.processes(machine, options["--query-compute-apps"], options.get("--format", ""), gpus)
    state = State()
    trees = [(gpu, everything(machine, gpu, number, state.of(gpu))) for number, gpu in gpus]
    if "-x" in options:
        print("\n".join(smi_print.xml(machine, trees)))
    elif "-q" in options:
        print(
            "\n".join(
                smi_print.text(machine, trees, [word for word in options.get("-d", "").upper().split(",") if word])
            )
        )
    else:
        print("\n".join(smi_print.table(machine, trees)))
    return 0
