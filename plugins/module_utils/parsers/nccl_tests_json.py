# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON that nccl-tests writes with ``-J``, schema 3. It holds the whole environment: nothing of it is returned."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests_frame as frame
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_model import (
    Device,
    Row,
    Run,
    Timing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, number, pieces

_TEXT = 200
# Every iteration of every process may be listed: 64 MiB are enough for thousands.
_MOST_PIECES = 256


def parse_json(source: Source) -> Log[Run]:
    """Return the run of a document; one that breaks off gives the results it holds."""
    document = _json.read("".join(itertools.islice(pieces(source), _MOST_PIECES)))
    data = _dict(document.data)
    if not {"results", "config", "args", "nccl_version"} & set(data):
        return Log([], None)
    run = _run(data, document.whole)
    return Log([run], run.cause)


def _run(data: dict[str, t.Any], whole: bool) -> Run:
    results = [_dict(entry) for entry in _list(data.get("results"))]
    rows = [row for row in (_row(entry) for entry in results) if row]
    config, bounds, average = (_dict(data.get(key)) for key in ("config", "out_of_bounds", "average_bus_bandwidth"))
    devices = [device for device in (_device(_dict(entry)) for entry in _list(config.get("devices"))) if device]
    program = next((arg for arg in _list(data.get("args"))[:1] if isinstance(arg, str)), "").rpartition("/")[2]
    per_process = frame.product(str(config.get("nthreads")), str(config.get("ngpus")))
    # Only the first device of each process is listed.
    ranks = frame.ranks_of_devices(max((device.rank for device in devices), default=None), per_process)
    count = _integer(bounds.get("count"))
    wrongs = [timing.wrong for row in rows for timing in row.timings if timing.wrong is not None]
    name = frame.collective(program)
    bad = bool(count) or any(wrongs)
    finished = whole and "end_time" in data and count is not None and "bandwidth" in average
    return Run(
        collective=name,
        program=program or None,
        version=None,
        nccl_version=frame.library(str(data.get("nccl_version"))),
        layout="json",
        devices=devices,
        ranks=frame.ranks_of_rows(rows, name) if ranks is None else ranks,
        nodes=len({device.host for device in devices}) or None,
        rows=rows,
        out_of_bounds=count,
        correct=False if bad else True if wrongs and count is not None else None,
        average_busbw=_float(average.get("bandwidth")),
        validated=bool(wrongs),
        complete=finished and len(rows) == len(results) and not any(_broken(entry) for entry in results),
        notes=_notes(data, results),
        cause=_cause(bounds, average, rows),
    )


def _notes(data: dict[str, t.Any], results: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """NCCL's last words are there whether or not anything went wrong."""
    cpu_time = any("cpu_time" in _dict(entry.get("in_place")) for entry in results)
    errors = [text[:_TEXT] for text in _list(data.get("errors")) if isinstance(text, str) and text]
    return ["the times are those of the CPU"] * cpu_time + [f"error: {text}" for text in errors[:20]]


def _cause(bounds: dict[str, t.Any], average: dict[str, t.Any], rows: t.Sequence[Row]) -> Cause | None:
    for row in rows:
        for timing in row.timings:
            if timing.wrong:
                return Cause(f"{timing.wrong:g} wrong elements at {row.size} bytes", "hardware")
    if _integer(bounds.get("count")) or bounds.get("okay") == "false":
        return Cause(f"out_of_bounds: {str(bounds.get('count'))[:20]}", "hardware")
    if average.get("okay") == "false":
        return Cause(f"average_bus_bandwidth: {str(average.get('bandwidth'))[:20]} is too low", "hardware")
    return None


def _row(entry: dict[str, t.Any]) -> Row | None:
    size, count, kind = _integer(entry.get("size")), _integer(entry.get("count")), entry.get("type")
    out_of_place, in_place = (_timing(entry.get(key)) for key in ("out_of_place", "in_place"))
    if size is None or count is None or not isinstance(kind, str) or not (out_of_place or in_place):
        return None
    redop, root = entry.get("redop"), number(str(entry.get("root")))
    return Row(
        size=size,
        count=count,
        type=kind[:_TEXT],
        redop=redop[:_TEXT] if isinstance(redop, str) and redop not in ("", "none") else None,
        root=root if isinstance(root, int) and root >= 0 else None,
        out_of_place=out_of_place,
        in_place=in_place,
    )


def _broken(entry: dict[str, t.Any]) -> bool:
    """A null out of place is a choice, in place it is the end of a run."""
    return _timing(entry.get("in_place")) is None


def _timing(value: t.Any) -> Timing | None:
    """With ``-C`` the time is called cpu_time."""
    cells = _dict(value)
    if "bus_bw" not in cells:
        return None
    time = _float(cells.get("time", cells.get("cpu_time")))
    return Timing(time, _float(cells.get("alg_bw")), _float(cells.get("bus_bw")), _float(cells.get("nwrong")), None)


def _device(entry: dict[str, t.Any]) -> Device | None:
    rank, index, host = _integer(entry.get("rank")), _integer(entry.get("device")), entry.get("hostname")
    if rank is None or index is None or not isinstance(host, str):
        return None
    group, pid = _integer(entry.get("group")), _integer(entry.get("pid"))
    bus_id, name = (str(entry.get(key) or "")[:_TEXT] for key in ("device_hex", "device_info"))
    return Device(rank, group, pid, host[:_TEXT], index, bus_id, name)


def _dict(value: t.Any) -> dict[str, t.Any]:
    return value if isinstance(value, dict) else {}


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def _integer(value: t.Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if good else None


def _float(value: t.Any) -> float | None:
    """A value that is no number is a string, such as ``nan``."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
