# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of nccl-tests, as 2.17.6 prints and ends them."""

from __future__ import annotations

import getopt
import os
import signal
import sys
import time
import typing as t

from emulation import job, nccl_json, nccl_print
from emulation.job import Job
from emulation.machine import Machine
from emulation.nccl_model import Model, Row, rows

OPTIONS = "t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:hG:C:a:R:x:D:V:J:S:"
LONG = (
    "nthreads= ngpus= minbytes= maxbytes= stepbytes= stepfactor= iters= agg_iters= warmup_iters= run_cycles= "
    "parallel_init= check= op= datatype= root= blocking= stream_null= timeout= cudagraph= report_cputime= "
    "report_timestamps= output_file= average= local_register= cta_policy= device_implementation= device_cta_count= help"
).split()
SHORT = dict(zip((name.rstrip("=") for name in LONG), "tgbeifnmwNpcodrzyTGCSJaRxDVh"))
DEFAULTS = {
    **dict.fromkeys("tgnfNcm", "1"),
    **dict.fromkeys("ipCSGz", "0"),
    "b": "32M",
    "e": "32M",
    "n": "20",
    "w": "1",
    "o": "sum",
    "d": "float",
    "r": "0",
}
# It hangs by itself, after the list of devices: the end of a collective that one of its ranks never joins.
HANGS_ITSELF = True
# Nobody leaves MPI before the first rank has printed its table: a launcher would kill it for the status of another.
LAST = 5.0
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Exit status by what went wrong.
CUDA, NCCL, NOT_IMPLEMENTED, NUM_RESULTS = 2, 3, 5, 6


class Run(t.NamedTuple):
    """What was asked for, who takes part, and how fast that is."""

    program: str
    options: t.Mapping[str, str]
    low: int
    high: int
    job: Job
    model: Model

    def number(self, option: str) -> int:
        return int(self.options[option])


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    try:
        pairs, dummy = getopt.getopt(list(arguments), OPTIONS, LONG)
    except getopt.GetoptError as exc:
        # The program's own: a wrong option is no failure.
        print(f"{name}: invalid option -- '{exc.opt}'", file=sys.stderr)
        print(f"invalid option '?'\n{nccl_print.usage(name)}")
        return 0
    options = {**DEFAULTS, **{SHORT.get(key.lstrip("-"), key.lstrip("-")): value for key, value in pairs}}
    if "h" in options:
        print(nccl_print.usage(name))
        return 0
    low, high = _size(options["b"]), _size(options["e"])
    if low < 0 or high < 0 or low > high:
        print(f"invalid sizes for 'minbytes' and 'maxbytes': {low} > {high}", file=sys.stderr)
        return 255
    here = job.find(machine)
    return _run(machine, name, options, (low, high), here)


def _size(text: str) -> int:
    """A number of bytes, with K, M, G or T; -1 when it is none."""
    unit = UNITS.get(text[-1:].upper(), 1)
    try:
        return int(float(text.rstrip("kKmMgGtT")) * unit)
    except ValueError:
        return -1


def _run(machine: Machine, name: str, options: t.Mapping[str, str], sizes: tuple[int, int], here: Job) -> int:
    each = int(options["t"]) * int(options["g"])
    gpus = machine.cuda_gpus()
    if here.local * each + each > len(gpus):
        print(
            f"Invalid number of GPUs: {here.local * each + each} requested but only {len(gpus)} were found.\n"
            "Please check the number of processes and GPUs per process.",
            file=sys.stderr,
        )
        return _ended(machine, NOT_IMPLEMENTED)
    model = Model(machine, here, each, name.rsplit("_perf", 1)[0])
    run = Run(name, options, *sizes, here, model)
    report = nccl_json.Report(run, sys.argv[1:]) if "J" in options and here.rank == 0 else None
    if here.rank == 0:
        if report:
            print(f"# Writing JSON output to {report.path}")
        nccl_print.header(machine, run)
    nccl_print.debug(machine, run, gpus[here.local * each : (here.local + 1) * each])
    # MPI lets nobody go before everybody has come this far.
    sys.stdout.flush()
    time.sleep(machine["seconds"])
    if machine.hangs(name) or len(model.ranks) < here.size * each:
        signal.pause()
    if here.rank == 0:
        nccl_print.columns(options)
    if machine.faults.get("nccl_error"):
        return _nccl_failed(machine, run)
    if any(machine.listed("lost_gpu", gpu.index) for gpu in gpus):
        print(f"{machine.host}: Test CUDA failure common.cu:1010 'unknown error'")
        return _ended(machine, CUDA)
    status = _table(machine, run, report)
    return _ended(machine, status) if status else 0


def _table(machine: Machine, run: Run, report: nccl_json.Report | None) -> int:
    """Print the table and what follows it; every rank knows the result, only the first one tells."""
    table: list[Row] = []
    for dummy in range(max(run.number("N"), 1)):
        table += rows(run.model, run.low, run.high, run.options)
    wrong = sum(1 for row in table for timing in (row.out_of_place, row.in_place) if timing.wrong)
    if run.job.rank == 0:
        for row in table:
            print(nccl_print.row(row, run.options))
        busbw = [timing.busbw for row in table for timing in (row.out_of_place, row.in_place)]
        average = sum(busbw) / len(busbw) if busbw else 0.0
        nccl_print.footer(run.program, wrong, average)
        if report:
            report.write(table, wrong, average)
    elif wrong:
        time.sleep(LAST)
    return NUM_RESULTS if wrong else 0


def _nccl_failed(machine: Machine, run: Run) -> int:
    """The first five columns are written before the collective starts, so the message ends the line."""
    if run.job.rank == 0:
        first = rows(run.model, run.low, run.low, run.options)[0]
        print(nccl_print.preamble(first), end="")
    text = str(machine.faults["nccl_error"])
    hint = (
        ""
        if text == "remote process exited or there was a network error"
        else " (run with NCCL_DEBUG=INFO for details)"
    )
    print(f"{machine.host}: Test NCCL failure common.cu:428 '{text}{hint} / '")
    return _ended(machine, NCCL)


def _ended(machine: Machine, status: int) -> int:
    print(f" .. {machine.host} pid {os.getpid()}: Test failure common.cu:1138")
    return status
