# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""xhpl, as NVIDIA's build prints it; the parameters come from HPL.dat in the working directory."""

from __future__ import annotations

import sys
import time
import typing as t
from pathlib import Path

from emulation import job
from emulation.machine import Machine

RULE = "=" * 80
LINE = "-" * 80
# Lines of HPL.dat, counted from 0.
SIZES, BLOCKS, ROWS, COLUMNS = 5, 7, 10, 11
EPS = "2.220446e-16"


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    words = list(arguments)
    given = words[words.index("--dat") + 1] if "--dat" in words[:-1] else "HPL.dat"
    try:
        lines = Path(given).read_text(encoding="utf-8").splitlines()
        sizes, blocks, rows, columns = (_numbers(lines, at) for at in (SIZES, BLOCKS, ROWS, COLUMNS))
    except (OSError, IndexError, ValueError):
        print(
            "HPL ERROR from process # 0, on line 300 of function HPL_pdinfo:\n>>> cannot open file HPL.dat <<<",
            file=sys.stderr,
        )
        return 1
    here = job.find(machine)
    time.sleep(machine["seconds"])
    if here.rank > 0:
        return 0
    if here.size < rows[0] * columns[0]:
        print(
            "HPL ERROR from process # 0, on line 419 of function HPL_pdinfo:\n"
            f">>> Need at least {rows[0] * columns[0]} processes for these tests <<<",
            file=sys.stderr,
        )
        return 1
    gpus = [gpu for host in dict.fromkeys(here.hosts) for gpu in _speeds(machine.other(host))]
    # Every GPU waits for the slowest in each step.
    speed = machine["speed"]["tflops"] * 1000 * min(gpus, default=1.0)
    _print(machine, [(n, nb) for n in sizes for nb in blocks], rows[0], columns[0], speed)
    return 0


def _numbers(lines: list[str], at: int) -> list[int]:
    """The values of a line; the line before says how many there are."""
    count = int(lines[at - 1].split()[0]) if at != COLUMNS else int(lines[ROWS - 1].split()[0])
    return [int(word) for word in lines[at].split()[:count]]


def _speeds(machine: Machine) -> list[float]:
    return [machine.speed(gpu) for gpu in machine.gpus()]


def _print(machine: Machine, tests: list[tuple[int, int]], p: int, q: int, speed: float) -> None:
    _head(tests, p, q)
    failed = len(tests) if machine.faults.get("hpl_failed") else 0
    for n, nb in tests:
        gflops = speed * p * q * machine.jitter("hpl", n, nb) * n / (n + 6000)
        seconds = (2 / 3 * n**3 + 1.5 * n**2) / gflops / 1e9
        rate = f"{gflops:.4g}" if gflops < 1e3 else f"{gflops:.3e}"
        print(RULE)
        print("T/V                N    NB     P     Q         Time          Gflops (   per GPU)")
        print(LINE)
        print(f"WC0       {n:>10} {nb:>5} {p:>5} {q:>5} {seconds:>12.2f} {rate:>15} ({gflops / p / q:>10.3e})")
        residual, verdict = ("1.4142135e+03", "FAILED") if failed else ("2.5124e-03", "PASSED")
        print(f"||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= {residual:>16} ...... {verdict}")
        if failed:
            print("||Ax-b||_oo  . . . . . . . . . . . . . . . . . =           0.000151")
            print("||A||_oo . . . . . . . . . . . . . . . . . . . =       66248.123456")
            print("||x||_oo . . . . . . . . . . . . . . . . . . . =          13.337001")
    print(f"{RULE}\n\nFinished {len(tests):>6} tests with the following results:")
    print(f"         {len(tests) - failed:>6} tests completed and passed residual checks,")
    print(f"         {failed:>6} tests completed and failed residual checks,")
    print(f"         {0:>6} tests skipped because of illegal input values.")
    print(f"{LINE}\n\nEnd of Tests.\n{RULE}")


def _head(tests: list[tuple[int, int]], p: int, q: int) -> None:
    print(f"\n{RULE}\nHPL-NVIDIA 24.03.0-emulated  -- NVIDIA accelerated HPL benchmark -- NVIDIA\n{RULE}")
    print("HPLinpack 2.1  --  High-Performance Linpack benchmark  --   October 26, 2012")
    print(f"{RULE}\n\nThe following parameter values will be used:\n")
    for label, values in (
        ("N", sorted({n for n, dummy in tests})),
        ("NB", sorted({nb for dummy, nb in tests})),
        ("P", [p]),
        ("Q", [q]),
    ):
        print(f"{label:<7}: " + " ".join(f"{value:>7}" for value in values))
    print(f"\n{LINE}\n")
    print("- The relative machine precision (eps) is taken to be", f"{EPS:>24}")
    print("- Computational tests pass if scaled residuals are less than                16.0\n")
    for done in (1.2, 24.6, 61.3, 99.1):
        print(f" Prog= {done:.2f}%  N_left= {int(tests[0][0] * (1 - done / 100))}  Time= {done / 10:.2f}")
