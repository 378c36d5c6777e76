# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl-tests: the JSON file of -J."""

from __future__ import annotations

import json
import os
import time
import typing as t
from pathlib import Path

from emulation.nccl_model import Row, Timing

if t.TYPE_CHECKING:
    from emulation.nccl import Run


class Report:
    """A file that did not exist before: NAME, else NAME.0, NAME.1 and so on."""

    def __init__(self, run: Run, arguments: t.Sequence[str]) -> None:
        self.run = run
        self.arguments = list(arguments)
        self.start = _now()
        name = run.options["J"]
        numbered = (Path(f"{name}.{number}") for number in range(1000))
        self.path = next(path for path in (Path(name), *numbered) if _create(path))

    def write(self, table: t.Sequence[Row], wrong: int, average: float) -> None:
        options, nccl = self.run.options, self.run.model.machine["nccl"]
        document = {
            "version": 3,
            "start_time": self.start,
            "args": self.arguments,
            # The program writes down its whole environment.
            "env": [f"{name}={value}" for name, value in os.environ.items()],
            "nccl_version": nccl["code"],
            "config": {
                "nthreads": int(options["t"]),
                "ngpus": int(options["g"]),
                "minimum_bytes": self.run.low,
                "maximum_bytes": self.run.high,
                "step_factor": int(options["f"]),
                "warmup_iters": int(options["w"]),
                "iterations": int(options["n"]),
                "validation": int(options["c"]),
                "devices": [self._device(rank) for rank in self.run.model.ranks],
            },
            "results": [_row(row) for row in table],
            "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
            "average_bus_bandwidth": {"bandwidth": average, "okay": "unchecked"},
            "errors": [""],
            "end_time": _now(),
        }
        self.path.write_text(json.dumps(document), encoding="utf-8")

    def _device(self, rank: t.Any) -> dict[str, t.Any]:
        return {
            "rank": rank.rank,
            "group": 0,
            "pid": os.getpid() + rank.rank,
            "hostname": rank.host,
            "device": rank.device,
            "device_hex": rank.gpu.short_bus_id,
            "device_info": self.run.model.machine["gpu"]["name"],
        }


def _create(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _row(row: Row) -> dict[str, t.Any]:
    return {
        "size": row.size,
        "count": row.count,
        "type": row.type,
        "redop": row.redop,
        "root": f"{row.root:6}",
        "out_of_place": _timing(row.out_of_place),
        "in_place": _timing(row.in_place),
        "actual_iterations": 20,
        "experiment_name": "NCCL",
    }


def _timing(timing: Timing) -> dict[str, t.Any]:
    return {"time": timing.time_us, "alg_bw": timing.algbw, "bus_bw": timing.busbw, "nwrong": timing.wrong}
