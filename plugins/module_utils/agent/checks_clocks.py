# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether GPUs still have the clocks that gpu_clocks gave them. Private, stdlib only.

What is expected is what this site set, a lower lock as well, and never the highest that the machine type can do.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu_state import nothing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import Finding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import Clocks, Entry, Gpu, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_record import PATH, Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.seen import Seen
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_gpu

CHECK = "gpu_clock_lock"
SETTINGS = "/etc/hpcai/gpu_clocks.json"  # what the role gpu_clocks was told
_SITE, _REMEMBERED = "the settings of role gpu_clocks", "what gpu_clocks set since the last boot"


def lock(context: Context) -> list[Json]:
    """Compare the clocks that were asked for with those that GPUs show, as far as an idle GPU tells them."""
    given = context.config.options(CHECK)
    try:
        settings = _settings(Path(given.get("settings") or SETTINGS))
    except (OSError, ValueError) as exc:
        return [report(context, CHECK, Finding(verdict="error", reason=f"the settings of gpu_clocks: {exc}"))]
    seen: Seen = read(context).seen
    if not seen.gpus:
        return [report(context, CHECK, nothing(context, seen))]
    driver = str(seen.reading.query.driver_version) if seen.reading.query else ""
    entries = Record(given.get("record") or PATH).load(driver)
    metrics: list[Json] = []
    expect: list[Json] = []
    for index, shown in sorted(seen.gpus.items()):
        gpu, entry = _gpu(index, shown, driver), entries.get(shown.uuid or "", Entry())
        wanted = _site(gpu, settings)
        source = _SITE if wanted is not None else _REMEMBERED
        for domain, value in (wanted or _remembered(entry))._asdict().items():
            now = None if value is None else shows(gpu, domain, value, entry)
            if now is not None:
                metrics.append(metric(domain, now, "MHz", gpu=index))
                expect += _limits(domain, value, index, source)
    if not metrics:
        return [report(context, CHECK, Finding(verdict="skipped", reason=_silent(settings, entries)))]
    one = report(context, CHECK, Finding(blame="config", metrics=metrics, expect=expect))
    bad = sorted({item["gpu"] for item in one["metrics"] if item["verdict"] != "pass"})
    return [{**one, "scope": {"gpu": bad} if bad else {}}]


def _settings(path: Path) -> Json | None:
    """Return what the role was told, None where it was not applied."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no mapping")
    return found


def _site(gpu: Gpu, settings: Json | None) -> Clocks | None:
    """Return the clocks that the site wants at all times, None where it has no say: clocks may come with jobs."""
    if settings is None or settings.get("when") == "job":
        return None
    state, given = str(settings.get("state")), [settings.get(name) or None for name in Clocks._fields]
    return clocks.wanted(gpu, Request(state, *given))


def _remembered(entry: Entry) -> Clocks:
    return Clocks(*(setting.value if setting else None for setting in (entry.graphics, entry.memory)))


def _gpu(index: int, shown: nvidia_smi_gpu.Gpu, driver: str) -> Gpu:
    def whole(found: nvidia_smi_gpu.Clocks) -> Clocks:
        return Clocks(*(None if mhz is None else int(mhz) for mhz in (found.graphics_mhz, found.memory_mhz)))

    now = (whole(shown.max_clocks), whole(shown.clocks), whole(shown.application_clocks))
    about = (index, shown.uuid or "", shown.bus_id, shown.name or "", driver, shown.persistence)
    return Gpu(*about, *now, Clocks(), shown.throttle_mask)


def shows(gpu: Gpu, domain: str, value: int, entry: Entry) -> int | None:
    """Return the clock that is to be compared; None when nothing can be told, or heat or power hold it down."""
    setting = entry.of(domain)
    if clocks.near(gpu.application.of(domain), value) and not (setting and setting.by == "locked"):
        return gpu.application.of(domain)
    if gpu.limited or (setting and setting.by == "nothing"):
        return None
    if setting and setting.value == value and clocks.holds(gpu, domain, setting):
        return clocks.reached(gpu, domain, setting)
    return gpu.current.of(domain)


def _limits(domain: str, value: t.Any, index: int, source: str) -> list[Json]:
    about = {"check": CHECK, "metric": domain, "gpu": index, "unit": "MHz", "source": source, "verdict": "warn"}
    room = clocks.TOLERANCE
    return [{**about, "op": "<=", "value": value + room}, {**about, "op": ">=", "value": value - room}]


def _silent(settings: Json | None, entries: t.Mapping[str, Entry]) -> str:
    if settings is None and not entries:
        return "gpu_clocks set nothing on this node"
    return "no clock that gpu_clocks set can be told now"
