# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_tests: run one collective after another; from what they printed to facts, trust and check records. Private."""

from __future__ import annotations

import re
import shutil
import socket
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, judge, metric, overall, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import ROLE, busy, command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.request import (
    CHECK,
    UNITS,
    NcclTestsError,
    NcclTestsRequest,
    is_program,
    read_launch,
    read_request,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_table import (
    NcclTestsDevice,
    NcclTestsRun,
    Timing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

# What a log has beside the table of nccl-tests: the network that NCCL used, ranks with wrong values.


_LONGEST = 4096
_HOST = re.compile(r"([A-Za-z0-9_.-]+):\d+:\d+ \[")
# Up to 2.26 "Using network IB", later "Assigned NET plugin IB to comm"; plugins add names of their own.
_USED = re.compile(r"NCCL INFO (?:Using network (\S+)|Assigned NET plugin (\S+) to comm)")
_CHANNEL = re.compile(r" via NET/([^/\s]+)(\S*)")
_DEVICES = re.compile(r"NET/IB ?: Using (.*)")
_DEVICE = re.compile(r"\[\d+\]([^\s:]+:\d+)/(IB|RoCE)")
_INTERFACES = re.compile(r"NET/Socket ?: Using (.*)")
_INTERFACE = re.compile(r"\[\d+\]([^\s:]+):")
# Debug builds of nccl-tests print which rank got wrong values.
_WRONG = re.compile(r"\brank=(\d+) #wrong=(\d+)")
SOCKET, ROCE = "Socket", "RoCE"


class Network:
    """What the lines of one log say about the network and wrong values."""

    def __init__(self) -> None:
        self.used: dict[str, set[str]] = {}
        self.devices: dict[str, set[str]] = {}
        self.layers: set[str] = set()
        self.interfaces: set[str] = set()
        self.direct = {True: 0, False: 0}
        self.wrong: dict[int, int] = {}
        self.busy = ""

    def read(self, log: t.TextIO) -> Network:
        """Read a whole log; a line that is longer than the buffer is read in pieces."""
        for line in iter(lambda: log.readline(_LONGEST), ""):
            if "NET" in line or "network" in line:
                self._network(line)
            elif "#wrong=" in line:
                self._values(line)
            elif "Unable to allocate" in line:
                self.busy = busy(line) or self.busy
        return self

    def _values(self, line: str) -> None:
        for rank, count in _WRONG.findall(line):
            number = int(rank[:9])
            self.wrong[number] = self.wrong.get(number, 0) + int(count[:18])

    def _network(self, line: str) -> None:
        if "NCCL INFO" not in line:
            return
        match = _HOST.search(line)
        host = match.group(1) if match else ""
        channel = _CHANNEL.search(line)
        if channel:
            self._use(channel.group(1), host)
            self.direct["/GDRDMA" in channel.group(2)] += 1
            return
        network = _USED.search(line)
        if network:
            self._use(network.group(1) or network.group(2), host)
            return
        devices, interfaces = _DEVICES.search(line), _INTERFACES.search(line)
        if devices:
            for name, layer in _DEVICE.findall(devices.group(1)):
                self.devices.setdefault(host, set()).add(name)
                self.layers.add(layer)
        elif interfaces:
            self.interfaces.update(_INTERFACE.findall(interfaces.group(1)))

    def _use(self, name: str, host: str) -> None:
        self.used.setdefault(name, set()).add(host)

    @property
    def kind(self) -> str | None:
        """Return what carried the data: InfiniBand, RoCE, Socket or the name of a plug-in; None when no line says it.

        One host on sockets holds up all, so it decides; with Ethernet devices alone NCCL speaks RoCE.
        """
        if SOCKET in self.used:
            return SOCKET
        names = sorted(self.used)
        if any(name.startswith("IB") for name in names):
            return ROCE if self.layers == {ROCE} else "InfiniBand"
        return ", ".join(names) or None

    def facts(self) -> dict[str, t.Any]:
        """Return the entries for a record's context."""
        counts = {host: len(names) for host, names in sorted(self.devices.items())}
        channels = sum(self.direct.values())
        return {
            "network": self.kind,
            "network_plugins": sorted(self.used),
            "network_interfaces": sorted(self.interfaces),
            "infiniband_devices": counts,
            "gpu_direct": self.direct[True] == channels if channels else None,
        }

    def hosts(self, name: str) -> list[str]:
        """Return the hosts whose log lines name this network."""
        return sorted(host for host in self.used.get(name, ()) if host)


# Why a run is no proof, although the program may have printed OK and ended with 0.


# Of the rounded columns busbw and algbw only large numbers give a ratio that tells ranks apart.
_CLEAR = 1.0
_ALIGNMENT = 16  # bytes: nccl-tests rounds what every rank gets


class TrustFinding(t.NamedTuple):
    """Why there is no pass. With ``judged`` the numbers are kept and compared, else nothing counts as measured."""

    verdict: str
    blame: str
    reason: str
    judged: bool = False


class MeasuredCollective(t.NamedTuple):
    """One program that ended or was ended: rc is None when it did not start or did not end in time."""

    rc: int | None
    problem: str
    log: Log[NcclTestsRun]
    network: Network


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    parted = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
    return (ranks - 1) / ranks if collective in parted else 1.0


def groups(run: NcclTestsRun) -> int:
    """Return how many communicators there were (NCCL_TESTS_SPLIT); busbw is that of one of them."""
    return len({device.group for device in run.devices if device.group is not None}) or 1


def wrong_rows(run: NcclTestsRun) -> int:
    """Return how many results in the table have wrong values."""
    timings = [timing for row in run.rows for timing in (row.out_of_place, row.in_place) if timing]
    return sum(1 for timing in timings if timing.wrong is not None and timing.wrong > 0)


def culprits(measured: MeasuredCollective) -> list[tuple[int, NcclTestsDevice | None]]:
    """Return the ranks with wrong values, which only debug builds of nccl-tests name, and their GPUs."""
    places = {device.rank: device for run in measured.log.runs for device in run.devices}
    return [(rank, places.get(rank)) for rank, count in sorted(measured.network.wrong.items()) if count]


def distrust(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    """Return the first reason not to trust a run; wrong values come before all others."""
    steps = (_values, _busy, _alone, _failure, _table, _ranks, _complete, _status, _validated, _factor, _network)
    return next((finding for step in steps for finding in [step(measured, request, collective)] if finding), None)


def _error(reason: str) -> TrustFinding:
    return TrustFinding("error", "infra", reason)


def _values(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    runs = measured.log.runs
    count = max((max(run.out_of_bounds or 0, wrong_rows(run)) for run in runs), default=0)
    if not count:
        return None
    return TrustFinding(
        "fail", "hardware", f"{collective}: {count} results with wrong values{_culprits(measured)}", True
    )


def _culprits(measured: MeasuredCollective) -> str:
    named = [
        f"rank {rank} on {device.host} device {device.device}" if device else f"rank {rank}"
        for rank, device in culprits(measured)
    ]
    return f": {', '.join(named)}" if named else ""


def _busy(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    return TrustFinding("skipped", "infra", f"srun: {measured.network.busy}") if measured.network.busy else None


def _alone(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    """Find ranks that measured alone. This comes before failures: N processes on one GPU are no fault of the GPU."""
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


def _failure(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    """Blame the GPU or the network where the log names it; any other end of the program says nothing about nodes."""
    cause, rows = measured.log.cause, sum(len(run.rows) for run in measured.log.runs)
    late = measured.problem if measured.rc is None else ""
    if not cause and not late:
        return None
    reason = "; ".join(
        phrase for phrase in (cause and cause.text, late, rows and f"{rows} sizes were measured") if phrase
    )
    if cause and cause.kind in ("hardware", "fabric"):
        return TrustFinding("fail", cause.kind, reason)
    return _error(reason)


def _table(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    if not measured.log.runs or not any(run.rows for run in measured.log.runs):
        return _error(f"no result table was printed, {measured.problem or 'although the exit status is 0'}")
    others = sorted({run.collective for run in measured.log.runs if run.collective} - {collective})
    return _error(f"{collective} was asked for, the program measured {', '.join(others)}") if others else None


def _ranks(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    runs, expected = measured.log.runs, request.gpus
    if len(runs) > 1:
        return _error(f"{len(runs)} tables were printed instead of one")
    if runs[0].ranks is None:
        return _error("the log does not list the ranks, so nobody knows how many took part")
    if runs[0].ranks != expected:
        return _error(f"{expected} ranks were asked for, {runs[0].ranks} took part")
    if runs[0].nodes is None:
        return _error("the log does not list the devices of the ranks, so nobody knows on which nodes they ran")
    if runs[0].nodes != request.launch.nodes:
        hosts = sorted({device.host for device in runs[0].devices if device.host})
        return _error(f"{request.launch.nodes} nodes were asked for, the ranks ran on {', '.join(hosts)}")
    return None


def _complete(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    run, sizes = measured.log.runs[0], request.sizes
    largest = max((row.size for row in run.rows), default=0)
    notes = f" ({'; '.join(run.notes)})" if run.notes else ""
    if not run.complete:
        problem = f", {measured.problem}" if measured.problem else ""
        return _error(f"the table ends after {len(run.rows)} of {len(sizes)} sizes without its footer{notes}{problem}")
    if len(run.rows) < len(sizes) or largest < sizes[-1] - _ALIGNMENT * request.gpus:
        return _error(
            f"{len(run.rows)} of {len(sizes)} sizes, the largest {largest} bytes instead of {sizes[-1]}{notes}"
        )
    return None


def _status(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    run = measured.log.runs[0]
    if measured.problem:
        return _error(f"the table is complete, yet the program ended with {measured.problem}")
    return None if run.ok else _error("the table is complete, yet it holds no usable result")


def _validated(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    if request.check and not measured.log.runs[0].validated:
        return _error("results were to be checked, the table has no count of wrong values")
    return None


def _factor(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    """Compare busbw with algbw: their ratio follows from the number of ranks that took part."""
    run = measured.log.runs[0]
    ranks = request.gpus // groups(run)
    factor = bus_factor(collective, ranks)
    for row in run.rows:
        timing = row.out_of_place or row.in_place
        if not timing or timing.algbw is None or timing.busbw is None or timing.algbw < _CLEAR:
            continue
        # Both columns are rounded to two decimals, or to fewer when they are long.
        slack = 0.01 * (1 + factor) / timing.algbw + 0.002
        if abs(timing.busbw / timing.algbw - factor) > slack:
            ratio = timing.busbw / timing.algbw
            return _error(f"busbw is {ratio:.3f} x algbw at {row.size} bytes; {ranks} ranks give {factor:.3f}")
    return None


def _network(measured: MeasuredCollective, request: NcclTestsRequest, collective: str) -> TrustFinding | None:
    """Find a fallback to Ethernet, which works but is some sixty times slower."""
    network = measured.network
    if request.launch.nodes < 2 or not request.infiniband or network.kind == "InfiniBand":
        return None
    if network.kind not in (SOCKET, ROCE):
        log_says = f"only says {network.kind}" if network.kind else "does not say it (debug must be INFO)"
        return _error(f"nobody knows whether NCCL used InfiniBand: the log {log_says}")
    hosts = ", ".join(network.hosts(SOCKET)) if network.kind == SOCKET else ""
    on_hosts = f" on {hosts}" if hosts else ""
    through = f" through {', '.join(sorted(network.interfaces))}" if network.interfaces else ""
    return TrustFinding("fail", "fabric", f"NCCL used {network.kind}{through}{on_hosts} instead of InfiniBand", True)


# From measurements to facts and check records.


_ROUNDING = 16  # bytes per rank that nccl-tests may take off a size


def table(runs: t.Sequence[NcclTestsRun], collective: str) -> list[Json]:
    """Return the rows as facts, in GB/s and microseconds; tables of ranks that ran alone are none."""
    return [
        {
            "collective": collective,
            **{name: getattr(row, name) for name in ("size", "count", "type", "redop", "root")},
            **_timing(row.out_of_place),
            "in_place": _timing(row.in_place),
        }
        for row in (runs[0].rows if len(runs) == 1 else [])
    ]


def _timing(timing: Timing | None) -> Json:
    return {name: getattr(timing, name, None) for name in ("time_us", "algbw", "busbw", "wrong")}


def summary(measured: MeasuredCollective, collective: str) -> Json:
    """Return one run without its rows and ranks."""
    runs = measured.log.runs
    facts: Json = {"collective": collective, "tables": len(runs), "rc": measured.rc}
    run = runs[0] if runs else None
    names = ("program", "version", "nccl_version", "layout", "ranks", "nodes", "complete", "ok", "correct", "validated")
    more = ("out_of_bounds", "average_busbw", "peak_busbw", "notes")
    facts.update({name: getattr(run, name, None) for name in (*names, *more)})
    cause = measured.log.cause
    return {**facts, "cause": cause and cause.text, **measured.network.facts()}


def metrics(run: NcclTestsRun, request: NcclTestsRequest, collective: str) -> list[Json]:
    """Return the metrics; the mean over all sizes has a name and a unit of its own, so that no limit applies to it."""
    measured = []
    for size in dict.fromkeys(row.size for row in run.rows if row.size):
        nominal = next((s for s in request.sizes if 0 <= s - size < _ROUNDING * request.gpus), size)
        for name, column in (("busbw", "out_of_place"), ("busbw_in_place", "in_place")):
            values = [getattr(row, column) for row in run.rows if row.size == size]
            speeds = [timing.busbw for timing in values if timing and timing.busbw is not None]
            if speeds:
                measured.append(metric(name, min(speeds), UNITS[name], collective=collective, size=nominal))
    wrong = max(run.out_of_bounds or 0, wrong_rows(run)) if run.validated else None
    facts = {"busbw_peak": run.peak_busbw, "sweep_mean": run.average_busbw, "wrong": wrong, "ranks": run.ranks}
    measured += [metric(name, value, UNITS[name], collective=collective) for name, value in facts.items()]
    return measured


def check(
    measured: MeasuredCollective, request: NcclTestsRequest, collective: str, expect: t.Sequence[Json], common: Json
) -> Json:
    """Return the record of one collective."""
    finding = distrust(measured, request, collective)
    runs = measured.log.runs
    more = {**common, "samples": table(runs, collective), "scope": _scope(request, measured)}
    if finding and not finding.judged:
        return record(CHECK, verdict=finding.verdict, blame=finding.blame, reason=finding.reason, **more)
    # A profile's limits are for all ranks together, not for groups of them.
    limits = [*([] if groups(runs[0]) > 1 else expect), *([_exact(collective)] if request.check else [])]
    judged = judge(CHECK, metrics(runs[0], request, collective), limits, nodes=request.launch.nodes)
    if finding:
        return record(CHECK, verdict="fail", blame=finding.blame, reason=finding.reason, metrics=judged, **more)
    verdict, reason = _verdict(judged, request)
    blame = "fabric" if request.launch.nodes > 1 else "hardware"
    return record(CHECK, verdict=verdict, blame=blame, reason=reason, metrics=judged, **more)


def _verdict(judged: t.Sequence[Json], request: NcclTestsRequest) -> tuple[str, str]:
    """Return the verdict; a pass needs values that were checked and at least one bandwidth that was compared."""
    verdict = overall(judged)
    if verdict == "pass" and not request.check:
        return "unjudged", "results were not checked for wrong values"
    if verdict == "pass" and all(m["verdict"] == "unjudged" for m in judged if m["name"].startswith("busbw")):
        return "unjudged", "no bandwidth is expected"
    return verdict, ""


def result(
    measured: t.Mapping[str, MeasuredCollective],
    request: NcclTestsRequest,
    expect: t.Sequence[Json],
    about: t.Mapping[str, Json],
) -> Json:
    """Return the module's result; ``about`` has the time, node and context of each record."""
    runs = {name: measurement.log.runs for name, measurement in measured.items()}
    first = next((run for tables in runs.values() for run in tables), None)
    devices = first.devices if first else []
    return {
        "checks": [check(measurement, request, name, expect, about[name]) for name, measurement in measured.items()],
        "runs": [summary(measurement, name) for name, measurement in measured.items()],
        "rows": [row for name, tables in runs.items() for row in table(tables, name)],
        "peak": {name: _of(tables, "peak_busbw") for name, tables in runs.items()},
        "average": {name: _of(tables, "average_busbw") for name, tables in runs.items()},
        "correct": {name: _of(tables, "correct") for name, tables in runs.items()},
        "ranks": [
            {name: getattr(device, name) for name in ("rank", "host", "device", "bus_id", "name")} for device in devices
        ],
        "nodes": _hosts([first]) if first else [],
    }


def _of(runs: t.Sequence[NcclTestsRun], name: str) -> t.Any:
    """Return a value of the only table; of several tables none is the answer."""
    return getattr(runs[0], name) if len(runs) == 1 else None


def _hosts(runs: t.Sequence[NcclTestsRun]) -> list[str]:
    return sorted({device.host for run in runs for device in run.devices if device.host})


def _scope(request: NcclTestsRequest, measured: MeasuredCollective) -> Json:
    """Return the group of nodes, or the GPUs of the only node that are known to be at fault."""
    if request.launch.nodes > 1:
        return {"group": _hosts(measured.log.runs) or list(request.launch.hosts)}
    order = request.launch.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    numbers = [device.device for dummy, device in culprits(measured) if device]
    # A program counts the devices that it sees, from 0.
    gpus = {int(order[n]) if n < len(order) and order[n].isdigit() else n for n in numbers}
    return {"gpu": sorted(gpus)} if gpus else {}


def _exact(collective: str) -> Json:
    limit = {"op": "==", "value": 0, "unit": "checks", "source": "a collective moves or adds numbers exactly"}
    return {"check": CHECK, "metric": "wrong", "collective": collective, **limit}


# Find the programs, run one collective after another and collect the results.


PLACES = ("/opt/gpu_test_tools/bin", "/opt/nccl-tests*/build", "/usr/local/nccl-tests*/build", "/usr/local/bin")
_TAIL = 2000


def perform(params: t.Mapping[str, t.Any], check_mode: bool, folder: str) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    request = read_request(params)
    try:
        request = request._replace(launch=read_launch(params))
    except _launch.NotFound as exc:
        return _without(request, request.name, "error", str(exc))
    node = _node(request)
    reason = _needless(request, check_mode)
    if reason:
        return _without(request, node, "skipped", reason)
    watch = users.UserWatch(request.launch, request.timeout, request.share_gpus)
    if watch.refusal:
        return _without(request, node, "skipped", watch.refusal)
    measured, about, commands = {}, {}, {}
    for collective, log in _emptied(request.log or folder, request.collectives).items():
        measured[collective], about[collective], commands[collective] = _measure(request, node, collective, log)
    done = result(measured, request, [] if watch.shared() else request.expect, about)
    done["checks"] = [watch.noted(entry) for entry in done["checks"]]
    return {**done, "argv": commands, "environment": dict(request.launch.environment)}


def _node(request: NcclTestsRequest) -> str | None:
    """Return the node's name; several nodes are a group and have none."""
    launch = request.launch
    if launch.nodes > 1:
        return None
    is_local = launch.kind == "local" or (launch.kind == "mpirun" and not launch.hostfile and not launch.in_job)
    hostname = socket.gethostname().partition(".")[0] if is_local else None
    return request.name or (launch.hosts[0] if launch.hosts else hostname)


def _needless(request: NcclTestsRequest, check_mode: bool) -> str:
    """Return why nothing is measured; empty when it is."""
    if check_mode:
        return "check mode"
    if request.launch.nodes < request.min_nodes:
        jobs = f"; busy with jobs: {compress(request.busy)}" if request.busy else ""
        return f"fewer than {request.min_nodes} nodes are fit and idle{jobs}"
    if request.gpus == 1:
        return "one rank has nobody to exchange anything with"
    expected = any(limit["check"] == CHECK for limit in request.expect)
    if request.launch.kind == "local" and not expected and not _has_gpu():
        return "no GPU"
    return ""


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or shutil.which("nvidia-smi") is not None


def _emptied(folder: str, collectives: t.Sequence[str]) -> dict[str, Path]:
    """Return the log of each collective, empty, so that none of an earlier run is read as a result of this one."""
    logs = {collective: Path(folder) / f"{collective}.log" for collective in collectives}
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for log in logs.values():
            log.write_bytes(b"")
    except OSError as exc:
        raise NcclTestsError(f"log {folder} cannot be written: {exc.strerror}") from exc
    return logs


def _measure(
    request: NcclTestsRequest, node: str | None, collective: str, log: Path
) -> tuple[MeasuredCollective, Json, list[str]]:
    """Run one collective; return what came of it, the parts of its record that are known now, and its command line."""
    common, options = _about(request, node, collective), arguments(request)
    try:
        words = [*program(request, collective, _launch.find), *options]
    except _launch.NotFound as exc:
        common["context"].update({"missing": exc.missing} if exc.missing else {})
        return MeasuredCollective(None, str(exc), nccl_tests.parse(""), Network()), common, []
    argv, environment = command(request.launch, words)
    outcome = run_to_file(argv, request.timeout, log, environment)
    with text.opened(log) as lines:
        parsed = nccl_tests.parse(lines)
    with text.opened(log) as lines:
        network = Network().read(lines)
    measured = MeasuredCollective(outcome.rc, outcome.problem, parsed, network)
    run = parsed.runs[0] if parsed.runs else None
    common["context"].update(
        network.facts(), argv=argv, version=run and run.version, log=str(log) if request.log else None
    )
    common["context"]["nccl_version"] = run and run.nccl_version
    common.update(seconds=outcome.seconds, evidence=outcome.out[-_TAIL:])
    common["node"] = node or _only_host(request, run)
    return measured, common, argv


def names(request: NcclTestsRequest, collective: str) -> list[str]:
    """Return the file names that a build may have, best first; the role and NVIDIA's images mark builds with MPI."""
    programs = [f"{collective}_perf", f"{collective}_perf_mpi"]
    return programs if request.launch.kind == "local" else programs[::-1]


# Of a directory that only the node or the container sees, it takes the build with MPI if there is one.
_CHOOSE = 'p=$0; if [ -x "${p}_mpi" ]; then p=${p}_mpi; fi; exec "$p" "$@"'


def program(
    request: NcclTestsRequest,
    collective: str,
    find: t.Callable[..., str],
    executable: t.Callable[[str], bool] = _launch.executable,
) -> list[str]:
    """Return the words that start a test. Of a directory the build with MPI is taken for more than one process."""
    path, launch = request.path, request.launch
    programs = names(request, collective)
    if not launch.container_image and (launch.kind == "local" or not path):
        return [find(programs, path, PLACES)]
    if not path:
        return [programs[0]]
    if is_program(path):
        return [path]
    folder = path.rstrip("/")
    if launch.kind == "local":
        return [f"{folder}/{collective}_perf"]
    here = [] if launch.container_image else [f"{folder}/{name}" for name in programs if executable(f"{folder}/{name}")]
    return here[:1] or ["sh", "-c", _CHOOSE, f"{folder}/{collective}_perf"]


def arguments(request: NcclTestsRequest) -> list[str]:
    """Return the arguments of a test."""
    values = {
        "-b": request.min_size,
        "-e": request.max_size,
        "-f": request.factor,
        "-n": request.iterations,
        "-w": request.warmup,
        "-g": request.gpus_per_rank,
        "-d": request.datatype,
        "-c": int(request.check),
    }
    return [*(part for name, value in values.items() for part in (name, str(value))), *request.arguments]


def _only_host(request: NcclTestsRequest, run: NcclTestsRun | None) -> str | None:
    hosts = {device.host for device in run.devices} if run else set()
    return hosts.pop() if request.launch.nodes == 1 and len(hosts) == 1 else None


def _about(request: NcclTestsRequest, node: str | None, collective: str) -> Json:
    """Return the parts of a record that are known before anything ran."""
    context: Json = {"tool": "nccl-tests", "version": None, "argv": [], "profile": request.profile}
    context.update(collective=collective, launcher=request.launch.kind)
    return {"time": time.time(), "run": request.run, "context": context, "node": node}


def _without(request: NcclTestsRequest, node: str | None, verdict: str, reason: str) -> Json:
    """Return the result where nothing was measured."""
    names = request.collectives
    records = [record(CHECK, verdict=verdict, reason=reason, **_about(request, node, name)) for name in names]
    empty: Json = {"runs": [], "rows": [], "ranks": [], "nodes": [], "argv": {}}
    each = {key: dict.fromkeys(names) for key in ("peak", "average", "correct")}
    return {"checks": records, **empty, **each, "environment": dict(request.launch.environment)}
