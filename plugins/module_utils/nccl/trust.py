# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_tests: why a run is no proof, although the program may have said OK and ended with 0. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import ROLE
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.network import ROCE, SOCKET, Network
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests import Device, Run

# Of the rounded columns busbw and algbw only large numbers give a ratio that tells ranks apart.
_CLEAR = 1.0
_ALIGNMENT = 16  # bytes: nccl-tests rounds what every rank gets


class Finding(t.NamedTuple):
    """Why there is no pass; ``judged`` findings leave the numbers standing, the others are no measurement."""

    verdict: str
    blame: str
    reason: str
    judged: bool = False


class Measured(t.NamedTuple):
    """One program that ended or was ended: rc is None when it did not start or did not end in time."""

    rc: int | None
    problem: str
    log: Log[Run]
    network: Network


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    parted = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
    return (ranks - 1) / ranks if collective in parted else 1.0


def groups(run: Run) -> int:
    """Return how many communicators there were (NCCL_TESTS_SPLIT); busbw is that of one of them."""
    return len({device.group for device in run.devices if device.group is not None}) or 1


def wrong_rows(run: Run) -> int:
    """Return how many results in the table have wrong values."""
    timings = [timing for row in run.rows for timing in (row.out_of_place, row.in_place) if timing]
    return sum(1 for timing in timings if timing.wrong is not None and timing.wrong > 0)


def culprits(measured: Measured) -> list[tuple[int, Device | None]]:
    """Return the ranks with wrong values, which only debug builds of nccl-tests name, and their GPUs."""
    places = {device.rank: device for run in measured.log.runs for device in run.devices}
    return [(rank, places.get(rank)) for rank, count in sorted(measured.network.wrong.items()) if count]


def distrust(measured: Measured, request: Request, collective: str) -> Finding | None:
    """Return the first reason not to believe a run; wrong values come first, whatever else went wrong."""
    steps = (_values, _busy, _alone, _failure, _table, _ranks, _complete, _status, _validated, _factor, _network)
    return next((found for step in steps for found in [step(measured, request, collective)] if found), None)


def _error(reason: str) -> Finding:
    return Finding("error", "infra", reason)


def _values(measured: Measured, request: Request, collective: str) -> Finding | None:
    runs = measured.log.runs
    count = max((max(run.out_of_bounds or 0, wrong_rows(run)) for run in runs), default=0)
    if not count:
        return None
    return Finding("fail", "hardware", f"{collective}: {count} results with wrong values{_culprits(measured)}", True)


def _culprits(measured: Measured) -> str:
    named = [
        f"rank {rank} on {device.host} device {device.device}" if device else f"rank {rank}"
        for rank, device in culprits(measured)
    ]
    return f": {', '.join(named)}" if named else ""


def _busy(measured: Measured, request: Request, collective: str) -> Finding | None:
    return Finding("skipped", "infra", f"srun: {measured.network.busy}") if measured.network.busy else None


def _alone(measured: Measured, request: Request, collective: str) -> Finding | None:
    """Looked for before failures: that N processes share one GPU is none of the GPU's."""
    runs = measured.log.runs
    if request.launch.ranks == 1 or not runs:
        return None
    # Tables that were written through each other may have lost the lines of their ranks.
    known = [run.ranks for run in runs if run.ranks is not None]
    if not known or max(known) > request.gpus_per_rank:
        return None
    return _error(
        f"{request.gpus} ranks were asked for, each process measured alone: nccl-tests is built without MPI (the role"
        f" {ROLE} builds it with), or its MPI does not know this launcher (launcher_options with another mpi)"
    )


def _failure(measured: Measured, request: Request, collective: str) -> Finding | None:
    """A broken GPU or network is a finding; whatever else stopped the program says nothing about the nodes."""
    cause, rows = measured.log.cause, sum(len(run.rows) for run in measured.log.runs)
    late = measured.problem if measured.rc is None else ""
    if not cause and not late:
        return None
    reason = "; ".join(part for part in (cause and cause.text, late, rows and f"{rows} sizes were measured") if part)
    if cause and cause.kind in ("hardware", "fabric"):
        return Finding("fail", cause.kind, reason)
    return _error(reason)


def _table(measured: Measured, request: Request, collective: str) -> Finding | None:
    if not measured.log.runs or not any(run.rows for run in measured.log.runs):
        return _error(f"no result table was printed, {measured.problem or 'although the exit status is 0'}")
    other = sorted({run.collective for run in measured.log.runs if run.collective} - {collective})
    return _error(f"{collective} was asked for, the program measured {', '.join(other)}") if other else None


def _ranks(measured: Measured, request: Request, collective: str) -> Finding | None:
    runs, wanted = measured.log.runs, request.gpus
    if len(runs) > 1:
        return _error(f"{len(runs)} tables were printed instead of one")
    if runs[0].ranks is None:
        return _error("the log does not list the ranks, so nobody knows how many took part")
    if runs[0].ranks != wanted:
        return _error(f"{wanted} ranks were asked for, {runs[0].ranks} took part")
    if runs[0].nodes is None:
        return _error("the log does not list the devices of the ranks, so nobody knows on which nodes they ran")
    if runs[0].nodes != request.launch.nodes:
        hosts = sorted({device.host for device in runs[0].devices if device.host})
        return _error(f"{request.launch.nodes} nodes were asked for, the ranks ran on {', '.join(hosts)}")
    return None


def _complete(measured: Measured, request: Request, collective: str) -> Finding | None:
    run, sizes = measured.log.runs[0], request.sizes
    seen = max((row.size for row in run.rows), default=0)
    notes = f" ({'; '.join(run.notes)})" if run.notes else ""
    if not run.complete:
        how = f", {measured.problem}" if measured.problem else ""
        return _error(f"the table ends after {len(run.rows)} of {len(sizes)} sizes without its footer{notes}{how}")
    if len(run.rows) < len(sizes) or seen < sizes[-1] - _ALIGNMENT * request.gpus:
        return _error(f"{len(run.rows)} of {len(sizes)} sizes, the largest {seen} bytes instead of {sizes[-1]}{notes}")
    return None


def _status(measured: Measured, request: Request, collective: str) -> Finding | None:
    run = measured.log.runs[0]
    if measured.problem:
        return _error(f"the table is complete, yet the program ended with {measured.problem}")
    return None if run.ok else _error("the table is complete, yet it holds no usable result")


def _validated(measured: Measured, request: Request, collective: str) -> Finding | None:
    if request.check and not measured.log.runs[0].validated:
        return _error("results were to be checked, the table has no count of wrong values")
    return None


def _factor(measured: Measured, request: Request, collective: str) -> Finding | None:
    """The table itself tells how many ranks it is about."""
    run = measured.log.runs[0]
    ranks = request.gpus // groups(run)
    wanted = bus_factor(collective, ranks)
    for row in run.rows:
        timing = row.out_of_place or row.in_place
        if not timing or timing.algbw is None or timing.busbw is None or timing.algbw < _CLEAR:
            continue
        # Both columns are rounded to two decimals, or to fewer when they are long.
        slack = 0.01 * (1 + wanted) / timing.algbw + 0.002
        if abs(timing.busbw / timing.algbw - wanted) > slack:
            found = timing.busbw / timing.algbw
            return _error(f"busbw is {found:.3f} x algbw at {row.size} bytes; {ranks} ranks give {wanted:.3f}")
    return None


def _network(measured: Measured, request: Request, collective: str) -> Finding | None:
    """A fallback to Ethernet works, only some sixty times slower."""
    network = measured.network
    if request.launch.nodes < 2 or not request.infiniband or network.kind == "InfiniBand":
        return None
    if network.kind not in (SOCKET, ROCE):
        said = f"only says {network.kind}" if network.kind else "does not say it (debug must be INFO)"
        return _error(f"nobody knows whether NCCL used InfiniBand: the log {said}")
    hosts = ", ".join(network.hosts(SOCKET)) if network.kind == SOCKET else ""
    where = f" on {hosts}" if hosts else ""
    through = f" through {', '.join(sorted(network.interfaces))}" if network.interfaces else ""
    return Finding("fail", "fabric", f"NCCL used {network.kind}{through}{where} instead of InfiniBand", True)
