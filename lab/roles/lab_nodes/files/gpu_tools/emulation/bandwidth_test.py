# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bandwidthTest of the CUDA samples, as it was in 12.8."""

from __future__ import annotations

import sys
import typing as t

from emulation.machine import Gpu, Machine
from emulation.nvbandwidth_tests import copy

QUICK = 32000000
NOTE = (
    "\nNOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled."
)
KINDS = {
    "htod": ("Host to Device", "h2d", "H2D"),
    "dtoh": ("Device to Host", "d2h", "D2H"),
    "dtod": ("Device to Device", "d2d", "D2D"),
}
# Up to a size, in steps of.
SHMOO = (
    (20000, 1000),
    (50000, 2000),
    (100000, 10000),
    (1000000, 100000),
    (16000000, 1000000),
    (32000000, 2000000),
    (68000000, 4000000),
)
OVERHEAD_US = 0.3


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    print("[CUDA Bandwidth Test] - Starting...")
    words = (word.lstrip("-").partition("=") for word in arguments)
    status = _run(machine, {key: value for key, dummy, value in words})
    if status is not None:
        print(f"Result = {'PASS' if status == 0 else 'FAIL'}")
        print(NOTE)
    return 1 if status is None else status


def _run(machine: Machine, options: dict[str, str]) -> int | None:
    """Measure and print; nothing when the program ends at once, without a result line."""
    gpus = machine.cuda_gpus()
    if not gpus:
        print("cudaGetDeviceCount returned 100\n-> no CUDA-capable device is detected")
        return None
    chosen = gpus[:1]
    if options.get("device") == "all":
        print("\n!!!!!Cumulative Bandwidth to be computed from all the devices !!!!!!\n")
        chosen = gpus
    elif "device" in options:
        wanted = int(options["device"]) if options["device"].lstrip("-").isdigit() else 0
        if not 0 <= wanted < len(gpus):
            print(f"\n!!!!!Invalid GPU number {wanted} given hence default gpu 0 will be used !!!!!\n")
            wanted = 0
        chosen = [gpus[wanted]]
    print("Running on...\n")
    for gpu in chosen:
        if machine.fault("ecc", gpu.index):
            _ecc()
            return None
        print(f" Device {gpus.index(gpu)}: {machine['gpu']['name']}")
    mode = options.get("mode", "quick")
    if mode not in ("quick", "range", "shmoo"):
        print("Invalid mode - valid modes are quick, range, or shmoo\nSee --help for more information")
        return 1
    print(f" {mode.capitalize()} Mode\n")
    for kind in [one for one in KINDS if one in options] or KINDS:
        _measure(machine, chosen, kind, _sizes(mode, options), options)
    return 0


def _ecc() -> None:
    print(
        'CUDA error at bandwidthTest.cu:690 code=214(cudaErrorECCUncorrectable) "cudaEventCreate(&start)" ',
        file=sys.stderr,
    )


def _sizes(mode: str, options: dict[str, str]) -> list[int]:
    if mode == "quick":
        return [QUICK]
    if mode == "range":
        start, end, step = (int(options.get(key) or QUICK) for key in ("start", "end", "increment"))
        return list(range(start, end + 1, step))
    sizes = [0]
    for limit, step in SHMOO:
        while sizes[-1] < limit:
            sizes.append(sizes[-1] + step)
    return sizes[1:]


def _measure(machine: Machine, gpus: list[Gpu], kind: str, sizes: list[int], options: dict[str, str]) -> None:
    title, figure, short = KINDS[kind]
    pageable = options.get("memory") == "pageable"
    share = 0.6 if pageable and figure != "d2d" else 1.0
    counted = 2 if figure == "d2d" else 1  # inside a GPU the tool counts a byte as read and as written
    rows = []
    for size in sizes:
        speeds = [counted * share * copy(machine, figure, gpu, f"{kind}/{size}", True) for gpu in gpus]
        rows.append((size, sum(size / (size / speed + 1000 * OVERHEAD_US) for speed in speeds)))
    if options.get("mode") == "shmoo":
        print("." * len(sizes))
    if "csv" in options:
        memory = (
            ""
            if figure == "d2d"
            else "-Paged"
            if pageable
            else "-Pinned" + ("-WriteCombined" if "wc" in options else "")
        )
        for size, speed in rows:
            print(
                f"bandwidthTest-{short}{memory}, Bandwidth = {speed:.1f} GB/s, Time = {size / speed / 1e9:.5f} s, "
                f"Size = {size} bytes, NumDevsUsed = {len(gpus)}"
            )
        return
    print(f" {title} Bandwidth, {len(gpus)} Device(s)\n {'PAGEABLE' if pageable else 'PINNED'} Memory Transfers")
    # The tool has forgotten the end of this line, too.
    print(" Write-Combined Memory Writes are Enabled" if "wc" in options else "", end="")
    print("   Transfer Size (Bytes)\tBandwidth(GB/s)")
    for size, speed in rows:
        tabs = "\t\t\t\t" if size < 10000 else "\t\t\t"
        print(f"   {size}{tabs}{speed:.1f}")
    print()
