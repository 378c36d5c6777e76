# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio: the JSON documents among its messages, and the spellings of its versions; private."""

from __future__ import annotations

import errno
import math
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._json import Read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._json import read as read_json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._json_documents import split
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines

_NOTES = 20
_MARK = '"fio version"'
FAILURES = (
    (r"fio: .*(?:does not support O_DIRECT|does not support direct=1)", "config"),
    (r"fio: (?:engine \S+ not loadable|failed to load engine|io engine \S+ init failed)", "software"),
    (r"fio: .*(?:Input/output error|Remote I/O error|Structure needs cleaning)", "hardware"),
    (r"fio: io_u error|fio: pid=\d+, err=|fio: .*, error=", "?"),
    (r"(?:fio: )?verify: bad|fio: verify type mismatch", "hardware"),
    (r"fio: (?:unrecognized option|Bad |unable to open|failed parsing|\S+ is not a directory|job \S* ?has)", "config"),
    (r"fio: terminating on signal", "infra"),
)
_HARDWARE = {errno.EIO, errno.EREMOTEIO, errno.ENODEV, errno.ENXIO}
_CONFIG = {errno.EINVAL, errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENOMEM}


def read(source: Source, first: FirstCause, notes: list[str]) -> t.Iterator[Read]:
    """Yield each document, as far as it goes; messages go to ``first`` and ``notes``."""
    for line, document in split(lines(source), _MARK):
        if document is not None:
            yield read_json(document)
            continue
        first.see(line)
        if line.startswith(("note: ", "WARNING: ")) and len(notes) < _NOTES and line not in notes:
            notes.append(line[:200])


def jobs(data: t.Any) -> list[dict[str, t.Any]]:
    """Return the jobs; of fio's client and server mode without the entry that sums them up."""
    if not isinstance(data, dict):
        return []
    found = data.get("jobs", data.get("client_stats"))
    if not isinstance(found, list):
        return []
    return [job for job in found if isinstance(job, dict) and job.get("jobname") != "All clients"]


def percentiles(data: t.Mapping[str, t.Any]) -> tuple[dict[str, float], str | None]:
    """Return percentiles in microseconds by their percent ("99.9"), and which latency they are of."""
    for kind in ("clat", "lat"):
        for name, scale in ((f"{kind}_ns", 1000), (kind, 1)):
            table = data.get(name)
            table = table.get("percentile") if isinstance(table, dict) else None
            if isinstance(table, dict) and table:
                return _table(table, scale), kind
    return {}, None


def _table(table: t.Mapping[str, t.Any], scale: int) -> dict[str, float]:
    """2.x fills its list up with 0.00."""
    found = {}
    for key, value in table.items():
        number = finite(value)
        if re.fullmatch(r"\d{1,3}\.\d{1,10}", key) and float(key) > 0 and number is not None:
            found[f"{float(key):g}"] = number / scale
    return found


def latency(data: t.Mapping[str, t.Any]) -> float | None:
    """Return the mean time from submission to completion in microseconds."""
    for name, scale in (("lat_ns", 1000), ("lat", 1)):
        table = data.get(name)
        mean = finite(table.get("mean")) if isinstance(table, dict) else None
        if mean is not None:
            return mean / scale
    return None


def kind(number: int) -> str:
    """Return the class of an errno."""
    return "hardware" if number in _HARDWARE else "config" if number in _CONFIG else "software"


def finite(value: t.Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A number of hundreds of digits is an int that no float can hold.
    if isinstance(value, int) and abs(value) > 1 << 63:
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: t.Any) -> int | None:
    return None if isinstance(value, float) or finite(value) is None else int(value)
