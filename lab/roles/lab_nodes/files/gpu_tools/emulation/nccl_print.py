# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl-tests: header, table, footer, and what NCCL itself says with NCCL_DEBUG."""

from __future__ import annotations

import os
import time
import typing as t

from emulation.machine import Gpu, Machine
from emulation.nccl_model import Row, Timing

if t.TYPE_CHECKING:
    from emulation.nccl import Run

LINE = 2048  # bytes that a process has for its device lines


def usage(name: str) -> str:
    return f"USAGE: {name} \n\t[-t,--nthreads <num threads>] \n\t[-g,--ngpus <gpus per thread>] \n\t[-h,--help]"


def header(machine: Machine, run: Run) -> None:
    o, nccl = run.options, machine["nccl"]
    step = f"{o['f']}(factor)" if int(o["f"]) > 1 else f"{int(o['i']) or 1 << 20}(bytes)"
    print(f"# nccl-tests version {nccl['tests']} nccl-headers={nccl['code']} nccl-library={nccl['code']}")
    print(f"# Collective test starting: {run.program}")
    print(
        f"# nThread {o['t']} nGpus {o['g']} minBytes {run.low} maxBytes {run.high} step: {step} warmup iters: {o['w']} "
        f"iters: {o['n']} agg iters: {o['m']} validation: {o['c']} graph: {o['G']} "
    )
    print("#\n# Using devices")
    for line in devices(machine, run):
        print(line)
    if os.environ.get("NCCL_DEBUG", "").upper() in ("VERSION", "WARN", "INFO", "TRACE"):
        print(f"NCCL version {nccl['version']}+cuda{machine['cuda']}")


def columns(options: t.Mapping[str, str]) -> None:
    """The names above the table."""
    cells = ["cputime" if int(options["C"]) else "time", "algbw", "busbw", "#wrong"]
    units, stamp = ["(us)", "(GB/s)", "(GB/s)", ""], int(options["S"]) > 0
    print("#\n" + _columns([""] * 5) + "           out-of-place                       in-place          ")
    print(
        _columns(["size", "count", "type", "redop", "root"]) + _timings(cells) + f" {'timestamp' if stamp else '':>20}"
    )
    # The format of the time is printed instead of the time.
    print(
        _columns(["(B)", "(elements)", "", "", ""]) + _timings(units) + f" {'%Y-%m-%d %H:%M:%S' if stamp else '':>20}"
    )


def _columns(words: t.Sequence[str]) -> str:
    return "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}".format(*words)


def _timings(words: t.Sequence[str]) -> str:
    return "".join("  {:>7}  {:>6}  {:>6}  {:>6}".format(*words) for dummy in range(2))


def devices(machine: Machine, run: Run) -> t.Iterator[str]:
    """One line per rank. A process has room for about 23 of them."""
    each = int(run.options["t"]) * int(run.options["g"])
    for process in range(run.job.size):
        used = 0
        for rank in run.model.ranks[process * each : (process + 1) * each]:
            pid = os.getpid() + process
            line = (
                f"#  Rank {rank.rank:2} Group  0 Pid {pid:6} on {rank.host:>10} device {rank.device:2} "
                f"[{rank.gpu.short_bus_id}] {machine['gpu']['name']}"
            )
            if used >= LINE:
                break
            used += len(line) + 1
            yield line if used < LINE else line[: LINE - used - 4] + "..."


def debug(machine: Machine, run: Run, gpus: list[Gpu]) -> None:
    """What NCCL says of itself: every rank about its network, among lines full of integers."""
    if os.environ.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        return
    network = run.model.network
    port = f"eth0:10.0.0.{4 + run.job.rank % 200}<0>"
    nics = [nic["name"] for nic in machine["nics"] if nic["link_layer"] == "InfiniBand"]
    for number, gpu in enumerate(gpus):
        rank = run.job.rank * len(gpus) + number
        front = f"{machine.host}:{os.getpid()}:{os.getpid() + 7} [{run.job.local * len(gpus) + number}] NCCL INFO"
        print(f"{front} Bootstrap : Using {port}")
        if network == "IB" and nics:
            used = " ".join(f"[{index}]{name}:1/IB" for index, name in enumerate(nics))
            print(f"{front} NET/IB : Using {used} [RO]; OOB {port}")
        else:
            print(f"{front} NET/IB : No device found.\n{front} NET/Socket : Using [0]{port}")
        print(f"{front} Using network {network}")
        print(
            f"{front} comm 0x55d0c0ffee00 rank {rank} nranks {len(run.model.ranks)} cudaDev {number} nvmlDev "
            f"{gpu.index} busId {gpu.bus_id[4:].lower()} commId 0x6bb0c0ffee - Init START"
        )
        way = f"NET/{network}/0{'/GDRDMA' if network == 'IB' else ''}" if run.job.nodes > 1 else "P2P/CUMEM"
        print(f"{front} Channel 00/0 : {rank}[{number}] -> {rank + 1}[{number}] [send] via {way}")
        print(f"{front} comm 0x55d0c0ffee00 rank {rank} nranks {len(run.model.ranks)} cudaDev {number} - Init COMPLETE")


def preamble(row: Row) -> str:
    return f"{row.size:12}  {row.count:12}  {row.type:>8}  {row.redop:>6}  {row.root:6}"


def row(row_: Row, options: t.Mapping[str, str]) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S").rjust(21) if int(options["S"]) else ""
    return preamble(row_) + _timing(row_.out_of_place) + _timing(row_.in_place) + stamp


def _timing(timing: Timing) -> str:
    # One blank is missing where nothing was compared, in the program's own format.
    wrong = "    N/A" if timing.wrong is None else f"  {_general(timing.wrong):>6}"
    return f"  {fit(timing.time_us, 7)}  {fit(timing.algbw, 6)}  {fit(timing.busbw, 6)}{wrong}"


def _general(value: float) -> str:
    return f"{value:g}"


def fit(value: float, width: int) -> str:
    """As many decimals as there is room for."""
    digits = len(str(int(value))) if value >= 1 else 0
    for decimals, room in ((2, width - 3), (1, width - 2), (0, width)):
        if digits <= room:
            return f"{value:{width}.{decimals}f}"
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def footer(program: str, wrong: int, average: float) -> None:
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {_general(average)} \n#\n# Collective test concluded: {program}\n")
