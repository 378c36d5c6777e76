# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site's profile, drafted from the check records of sound nodes. No I/O; private.

What was measured becomes a limit: counts as they are, speeds less a margin. It says what these nodes did on that day,
not what such a machine should do: whoever takes it has looked at it.
"""

from __future__ import annotations

import datetime
import math
import typing as t

import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lines import one_line
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_metrics import CHECKS

# Counts and generations, which are the same in every sound node.
_EXACT = {
    ("gpu_count", "gpus"),
    ("gpu_nvlink", "links_active"),
    ("gpu_pcie", "generation_max"),
    ("gpu_pcie", "width"),
    ("infiniband_ports", "active"),
}
# What a data sheet could say: no margin.
_LEAST = {("gpu_model", "memory"), ("infiniband_ports", "rate")}
# Speeds.
_SPEED = {
    ("gpu_bandwidth", "h2d"),
    ("gpu_bandwidth", "d2h"),
    ("gpu_bandwidth", "d2d"),
    ("gpu_p2p", "read"),
    ("nccl_loopback", "busbw"),
    ("nccl_tests", "busbw"),
    ("hpl", "tflops"),
    ("infiniband_bandwidth", "bandwidth"),
    ("storage_bandwidth", "read"),
    ("storage_bandwidth", "write"),
}
# Disks differ more by what is on them than machines do.
_WARNS = {"storage_bandwidth"}
_BAD = ("fail", "error")
_MAKERS = ("NVIDIA ", "Tesla ")


class DraftError(ValueError):
    """There is nothing that a profile could be drafted from; the text is fit for the user."""


class Measured(t.NamedTuple):
    """Values of one metric, for the same labels and number of nodes."""

    unit: str
    values: list[float]
    nodes: list[str]
    times: list[float]
    tools: list[str]


Key = t.Tuple[str, str, str, int, int]  # check, metric, collective, size, number of nodes
Records = t.Sequence[t.Mapping[str, t.Any]]


def draft(
    records: Records, name: str, hosts: t.Sequence[str] = (), base: t.Sequence[str] = (), margin: float = 5.0
) -> str:
    """Return the text of a profile, for a file that a person reads before it is used."""
    if not 0 <= margin < 100:
        raise DraftError(f"the margin is {margin:g} %; accepted is 0 or more, and less than 100")
    own = _of_sound_nodes(_last_run(records), hosts)
    measured = _measured(own)
    expect = [_expectation(key, entry, margin) for key, entry in measured.items()]
    if not expect:
        raise DraftError(
            "the last run measured no value that a limit could come from; measure.yml says why it skipped each"
        )
    profile: Json = {
        "base": list(base) or _bases(own),
        "description": f"{name}, measured here",
        **_facts(measured, own),
    }
    # Records come from nodes: a name of two lines would be a setting of the file.
    nodes = one_line(sorted({node for entry in measured.values() for node in entry.nodes}), "node")
    head = (
        f"# Drafted from what was measured on {', '.join(nodes)}:\n"
        "# what these nodes did, not what such a machine should do.\n"
        f"# Speeds are the lowest value less {margin:g} %. Look at every number before nodes are judged by it.\n"
    )
    return f"---\n{head}{_text(profile)}{_text({'expect': expect})}"


def _last_run(records: Records) -> list[t.Mapping[str, t.Any]]:
    """A run record keeps several runs: what was mended since counts no longer."""
    newest = max(records, key=lambda record: float(record.get("time") or 0), default={})
    return [record for record in records if record.get("run") == newest.get("run")]


def _of_sound_nodes(records: Records, hosts: t.Sequence[str]) -> list[t.Mapping[str, t.Any]]:
    present = sorted({node for record in records for node in _nodes(record)})
    missing = sorted(set(hosts) - set(present))
    if missing:
        shown = ", ".join(present) or "no node at all"
        raise DraftError(f"there is no record of {', '.join(missing)}; there are records of {shown}")
    own = [record for record in records if _nodes(record) and (not hosts or set(_nodes(record)) <= set(hosts))]
    bad = [
        f"{', '.join(_nodes(record))} {record['check']}: {record['verdict']} ({record.get('reason') or '-'})"
        for record in own
    ]
    bad = [text for text, record in zip(bad, own) if record["verdict"] in _BAD]
    if bad:
        raise DraftError(f"no profile is drafted from nodes at fault: {'; '.join(bad)}")
    return own


def _nodes(record: t.Mapping[str, t.Any]) -> list[str]:
    group = (record.get("scope") or {}).get("group") or []
    return [str(name) for name in group] or ([str(record["node"])] if record.get("node") else [])


def _measured(records: Records) -> dict[Key, Measured]:
    """Gather the values; of a collective, those at the largest size."""
    measured: dict[Key, Measured] = {}
    for record in records:
        nodes = _nodes(record)
        context = record.get("context") or {}
        tool = " ".join(str(context[key]) for key in ("tool", "version") if context.get(key))
        largest = max([item.get("size") or 0 for item in record.get("metrics") or []], default=0)
        for item in record.get("metrics") or []:
            check, metric, size = str(record["check"]), str(item["name"]), item.get("size") or 0
            known = (check, metric) in _EXACT | _LEAST | _SPEED
            if not known or item.get("value") is None or size != largest:
                continue
            key = (check, metric, str(item.get("collective") or ""), int(size), len(nodes))
            entry = measured.setdefault(key, Measured(str(item["unit"]), [], [], [], []))
            entry.values.append(item["value"])
            entry.nodes.extend(nodes)
            entry.times.append(float(record.get("time") or 0))
            entry.tools.append(tool)
    order = list(CHECKS)
    for key in [key for key, entry in measured.items() if _odd(key, entry)]:
        raise DraftError(
            f"{key[0]} {key[1]} is {_values(measured[key])}; sound nodes of one machine type have one value"
        )
    return dict(sorted(measured.items(), key=lambda item: (order.index(item[0][0]), item[0][1:])))


def _odd(key: Key, entry: Measured) -> bool:
    return key[:2] in _EXACT and len(set(entry.values)) > 1


def _values(entry: Measured) -> str:
    return ", ".join(f"{value:g}" for value in sorted(set(entry.values)))


def _expectation(key: Key, entry: Measured, margin: float) -> Json:
    check, metric, collective, size, nodes = key
    speed, lowest = (check, metric) in _SPEED, min(entry.values)
    value = _rounded(lowest * (1 - margin / 100)) if speed else lowest
    labels: Json = {"collective": collective} if collective else {}
    labels.update({"size": size} if size else {})
    labels.update({"nodes": nodes} if check in ("nccl_tests", "nccl_loopback", "hpl") else {})
    labels.update({"verdict": "warn"} if check in _WARNS else {})
    return {
        "check": check,
        "metric": metric,
        **labels,
        "op": "==" if (check, metric) in _EXACT else ">=",
        "value": int(value) if float(value).is_integer() else value,
        "unit": entry.unit,
        "source": _source(entry, lowest, margin if speed else 0),
    }


def _rounded(value: float) -> float:
    """Three digits, downwards: a floor is not to be above what it was made from."""
    if value <= 0:
        return 0.0
    step = 10 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / step) * step:.6g}")


def _source(entry: Measured, lowest: float, margin: float) -> str:
    day = datetime.datetime.fromtimestamp(max(entry.times), tz=datetime.timezone.utc).strftime("%Y-%m-%d")
    nodes, tools = ", ".join(sorted(set(entry.nodes))), ", ".join(sorted(set(filter(None, entry.tools))))
    less = f", less {margin:g} %" if margin else ""
    return f"measured here on {day}, {nodes}{f' ({tools})' if tools else ''}: {lowest:g} {entry.unit}{less}"


def _bases(records: Records) -> list[str]:
    remaps = [item for record in records if record["check"] == "gpu_remap" for item in record.get("metrics") or []]
    remapping = any(item["name"] == "remap_pending" and item.get("value") is not None for item in remaps)
    return ["_nvidia", *(["_row_remapping"] if remapping else [])]


def _facts(measured: t.Mapping[Key, Measured], records: Records) -> Json:
    """What the machine is, as far as the records say."""
    lowest = {key[:2]: min(entry.values) for key, entry in measured.items()}
    models = {
        _model(sample) for record in records if record["check"] == "gpu_model" for sample in record.get("samples") or []
    }
    models -= {""}
    if len(models) > 1:
        raise DraftError(f"the nodes have GPUs of different models: {', '.join(sorted(models))}")
    gpu: Json = {"model": models.pop()} if models else {}
    for name, key in (("count", ("gpu_count", "gpus")), ("memory_mib", ("gpu_model", "memory"))):
        gpu.update({name: int(lowest[key])} if key in lowest else {})
    ports: Json = {}
    for name, key in (("count", ("infiniband_ports", "active")), ("rate_gbps", ("infiniband_ports", "rate"))):
        ports.update({name: int(lowest[key])} if key in lowest else {})
    return {**({"gpu": gpu} if gpu else {}), **({"infiniband": ports} if ports else {})}


def _model(sample: t.Any) -> str:
    name = str(sample.get("name") or "") if isinstance(sample, t.Mapping) else ""
    for maker in _MAKERS:
        name = name[len(maker) :] if name.startswith(maker) else name
    return name


def _text(value: Json) -> str:
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=110, allow_unicode=True)
