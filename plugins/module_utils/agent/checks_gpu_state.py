# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks of what GPUs count and how they are set: errors, persistence, clock locks, NVLink."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import node_access, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import read, unstuck
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import LimitFinding, limits, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import (
    ClockedGpu,
    ClockEntry,
    ClockPair,
    ClocksRequest,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_apply import PATH, Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import PLACES, ObservedGpus, listing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import (
    nvidia_smi,
    nvidia_smi_nvlink,
    nvidia_smi_xml,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import pci_gpus

# Checks of the counters and settings of GPUs, from the output of nvidia-smi. Private, stdlib only.


Field = t.Callable[[Gpu], t.Any]
# GH200, GB200, GB300: their memory is a node of the machine's, and Linux caches files in it.
_COHERENT = re.compile(r"G[BH]\d")
_COUNTS = [
    f"{memory}_{kind}_{period}"
    for memory in ("sram", "dram")
    for kind in ("uncorrected", "corrected")
    for period in ("volatile", "aggregate")
]


def memory_errors(context: Context) -> list[Json]:
    """Judge SRAM and DRAM apart: a sum of both hides a fault of the one behind repairs of the other."""
    fields: list[tuple[str, str, Field]] = [(name, "errors", _counter(name)) for name in _COUNTS]
    fields += [
        ("sram_threshold_exceeded", "flags", lambda gpu: _flag(gpu.ecc.sram_threshold_exceeded)),
        ("retirement_pending", "flags", lambda gpu: _flag(gpu.repairs.retirement_pending)),
    ]
    return [_measured(context, "gpu_memory_errors", fields, LimitFinding(action="reset"))]


def _counter(name: str) -> Field:
    memory, kind, period = name.split("_")
    return lambda gpu: gpu.ecc.counts.get(f"{period}_{memory}_{kind}")


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def persistence(context: Context) -> list[Json]:
    """Check persistence mode: without it the driver forgets clocks, and each first job waits for it to start."""
    fields: list[tuple[str, str, Field]] = [("persistence", "flags", lambda gpu: _flag(gpu.persistence))]
    return [_measured(context, "gpu_persistence", fields, LimitFinding(blame="config", action="monitor"))]


def clock_limits(context: Context) -> list[Json]:
    """Compare the highest clocks that a GPU offers with those of its kind; a lock leaves them as they are."""
    expected = (context.config.profile.get("gpu") or {}).get("max_clocks")
    highest = [
        {"check": "gpu_clock_limits", "metric": f"{name}_max", "op": ">=", "value": value, "unit": "MHz"}
        for name, value in (expected.items() if isinstance(expected, dict) else ())
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    more = [{**limit, "source": "max_clocks of the profile", "verdict": "warn"} for limit in highest]
    fields: list[tuple[str, str, Field]] = [
        ("graphics_max", "MHz", lambda gpu: gpu.max_clocks.graphics_mhz),
        ("memory_max", "MHz", lambda gpu: gpu.max_clocks.memory_mhz),
    ]
    return [_measured(context, "gpu_clock_limits", fields, LimitFinding(blame="config", more=more))]


def idle(context: Context) -> list[Json]:
    """Look for memory and processes on GPUs while no job runs; seen once only, they may just be ending."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.users import program

    busy = _busy(context)
    seen = read(context).seen
    busy |= _busy(context)
    if busy:
        return [report(context, "gpu_idle", LimitFinding(verdict="skipped", reason="a job runs here"))]
    limit = limits(context, "gpu_idle")
    sure = context.suite == "boot" or context.kept("gpu_idle") is True
    expect = limit if sure else [{**expectation, "verdict": "warn"} for expectation in limit]
    fields: list[tuple[str, str, Field]] = [("processes", "processes", lambda gpu: len(gpu.processes))]
    if not _COHERENT.match(str((context.config.profile.get("gpu") or {}).get("model"))):
        fields.insert(0, ("memory_used", "MiB", lambda gpu: gpu.memory_used_mib))
    record = _measured(context, "gpu_idle", fields, LimitFinding(blame="software", expect=expect))
    context.keep("gpu_idle", record["verdict"] in ("fail", "warn"))
    names = sorted({f"{p.pid} {program(p.name or '')}".strip() for gpu in seen.gpus.values() for p in gpu.processes})
    return [{**record, "evidence": ", ".join(names)[:1000]}]


def _busy(context: Context) -> bool:
    """Say whether a job runs here; in an epilog the one that has just ended does not count."""
    return bool(node_access.jobs(node_access.processes(context.config.proc)) - node_access.ended(context.suite))


def _measured(
    context: Context,
    check: str,
    fields: t.Sequence[tuple[str, str, Field]],
    finding: LimitFinding,
) -> Json:
    """Measure fields of all GPUs; what none of them has is left out, what one of them lacks is an error."""
    seen = read(context).seen
    if not seen.gpus:
        return report(context, check, no_gpus(context, seen))
    metrics: list[Json] = []
    for name, unit, field in fields:
        values = {index: field(gpu) for index, gpu in seen.gpus.items()}
        if any(value is not None for value in values.values()):
            metrics += [metric(name, value, unit, gpu=index) for index, value in values.items()]
    if not metrics:
        return report(
            context, check, LimitFinding(verdict="skipped", reason="nvidia-smi shows no such value of these GPUs")
        )
    record = report(context, check, finding._replace(metrics=metrics))
    bad = {
        measured["gpu"]
        for measured in record["metrics"]
        if "gpu" in measured and measured["verdict"] in ("fail", "warn", "error")
    }
    return {**record, "scope": {"gpu": sorted(bad)} if bad else {}}


def no_gpus(context: Context, seen: ObservedGpus) -> LimitFinding:
    """Return the finding of a node without GPUs: skipped where none is expected, else an error."""
    gpu = context.config.profile.get("gpu")
    none = isinstance(gpu, dict) and gpu.get("count") == 0
    if none and not seen.topology.gpus:
        return LimitFinding(verdict="skipped", reason="no GPU is expected")
    return LimitFinding(verdict="error", reason=seen.problem("query") or "nvidia-smi shows no GPU")


# Whether GPUs still have the clocks that gpu_clocks gave them. Private, stdlib only.


CLOCK_CHECK = "gpu_clock_lock"
SETTINGS = "/etc/hpcai/gpu_clocks.json"  # the request of the role gpu_clocks
_SITE, _REMEMBERED = "the settings of role gpu_clocks", "what gpu_clocks set since the last boot"


def lock(context: Context) -> list[Json]:
    """Compare the clocks that were requested with those that GPUs show, as far as an idle GPU shows them."""
    given = context.config.options(CLOCK_CHECK)
    try:
        settings = _settings(Path(given.get("settings") or SETTINGS))
    except (OSError, ValueError) as exc:
        return [
            report(context, CLOCK_CHECK, LimitFinding(verdict="error", reason=f"the settings of gpu_clocks: {exc}"))
        ]
    seen: ObservedGpus = read(context).seen
    if not seen.gpus:
        return [report(context, CLOCK_CHECK, no_gpus(context, seen))]
    driver = str(seen.reading.query.driver_version) if seen.reading.query else ""
    entries = Record(given.get("record") or PATH).load(driver)
    metrics: list[Json] = []
    expect: list[Json] = []
    for index, shown in sorted(seen.gpus.items()):
        gpu, entry = _gpu(index, shown, driver), entries.get(shown.uuid or "", ClockEntry())
        site = _site(gpu, settings)
        source = _SITE if site is not None else _REMEMBERED
        for domain, value in (site or _remembered(entry))._asdict().items():
            now = None if value is None else shows(gpu, domain, value, entry)
            if now is not None:
                metrics.append(metric(domain, now, "MHz", gpu=index))
                expect += _limits(domain, value, index, source)
    if not metrics:
        return [report(context, CLOCK_CHECK, LimitFinding(verdict="skipped", reason=_silent(settings, entries)))]
    record = report(context, CLOCK_CHECK, LimitFinding(blame="config", metrics=metrics, expect=expect))
    bad = sorted({measured["gpu"] for measured in record["metrics"] if measured["verdict"] != "pass"})
    return [{**record, "scope": {"gpu": bad} if bad else {}}]


def _settings(path: Path) -> Json | None:
    """Return the settings of the role, None where it was not applied."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(settings, dict):
        raise ValueError(f"{path} holds no mapping")
    return settings


def _site(gpu: ClockedGpu, settings: Json | None) -> ClockPair | None:
    """Return the clocks that the site sets at all times, None where it sets none: clocks may come with jobs."""
    if settings is None or settings.get("when") == "job":
        return None
    state, given = str(settings.get("state")), [settings.get(name) or None for name in ClockPair._fields]
    return clocks.target_clocks(gpu, ClocksRequest(state, *given))


def _remembered(entry: ClockEntry) -> ClockPair:
    return ClockPair(*(setting.value if setting else None for setting in (entry.graphics, entry.memory)))


def _gpu(index: int, shown: nvidia_smi_xml.Gpu, driver: str) -> ClockedGpu:
    def whole(shown_clocks: nvidia_smi_xml.GpuClocks) -> ClockPair:
        return ClockPair(
            *(None if mhz is None else int(mhz) for mhz in (shown_clocks.graphics_mhz, shown_clocks.memory_mhz))
        )

    now = (whole(shown.max_clocks), whole(shown.clocks), whole(shown.application_clocks))
    about = (index, shown.uuid or "", shown.bus_id, shown.name or "", driver, shown.persistence)
    return ClockedGpu(*about, *now, ClockPair(), shown.throttle_mask)


def shows(gpu: ClockedGpu, domain: str, value: int, entry: ClockEntry) -> int | None:
    """Return the clock to compare; None when an idle GPU does not show it, or heat or power hold it down."""
    setting = entry.of(domain)
    if clocks.near(gpu.application.of(domain), value) and not (setting and setting.by == "locked"):
        return gpu.application.of(domain)
    if gpu.limited or (setting and setting.by == "nothing"):
        return None
    if setting and setting.value == value and clocks.holds(gpu, domain, setting):
        return clocks.reached(gpu, domain, setting)
    return gpu.current.of(domain)


def _limits(domain: str, value: t.Any, index: int, source: str) -> list[Json]:
    about = {"check": CLOCK_CHECK, "metric": domain, "gpu": index, "unit": "MHz", "source": source, "verdict": "warn"}
    room = clocks.TOLERANCE
    return [{**about, "op": "<=", "value": value + room}, {**about, "op": ">=", "value": value - room}]


def _silent(settings: Json | None, entries: t.Mapping[str, ClockEntry]) -> str:
    if settings is None and not entries:
        return "gpu_clocks set nothing on this node"
    return "no clock that gpu_clocks set can be told now"


# The check of the counters of NVLink: errors, links that did not recover, bit error rates. Private, stdlib only.


NVLINK_CHECK = "gpu_nvlink_errors"
NVLINK_TIMEOUT = 6.0
_NONE = ("NVLink", "Nvlink", "not supported", "Not Supported")
_HOUR = 3600.0


def errors(context: Context) -> list[Json]:
    """Judge the counters, and how many errors the last hour brought."""
    return [report(context, NVLINK_CHECK, _errors(context))]


def _errors(context: Context) -> LimitFinding:
    """Judge the error counters of NVLink; GPUs that have none skip the check unless the profile expects links."""
    profile, bus = context.config.profile, pci_gpus(context.config.sysfs)
    expected = any(expectation.get("check") == "gpu_nvlink" for expectation in context.config.expect)
    if not bus and (profile.get("gpu") or {}).get("count") == 0:
        return LimitFinding(verdict="skipped", reason="no GPU is expected")
    try:
        path = _launch.find("nvidia-smi", context.config.tools.get("nvidia_smi") or None, PLACES, role=None)
    except _launch.NotFound as exc:
        return LimitFinding(verdict="error", reason=str(exc))
    unstuck(context)
    outcome = run([path, "nvlink", "-e"], NVLINK_TIMEOUT, None, dict(context.config.environment))
    gpus = [gpu for gpu in nvidia_smi_nvlink.parse(outcome.out) if gpu.links]
    if not gpus:
        message = nvidia_smi.message(f"{outcome.out}\n{outcome.err}")
        answered = outcome.rc is not None and message is None
        parted = {index for index, gpu in read(context).seen.gpus.items() if gpu.mig} if answered else set()
        if parted:
            return LimitFinding(verdict="skipped", reason=f"MIG mode is on on {listing(parted)}: {_sentence(outcome)}")
        none = outcome.rc == 0 or any(word in f"{outcome.out}{outcome.err}" for word in _NONE)
        if answered and none and not expected:
            return LimitFinding(verdict="skipped", reason="these GPUs show no counters of NVLink")
        return LimitFinding(verdict="error", reason=f"nvidia-smi nvlink -e: {outcome.problem or _sentence(outcome)}")
    return judged(context, gpus)


def _sentence(outcome: Outcome) -> str:
    """Return what nvidia-smi printed in place of counters."""
    lines = (line.strip() for line in f"{outcome.out}\n{outcome.err}".splitlines())
    return next((line[:400] for line in lines if line and not line.startswith("GPU ")), "it shows no link")


def judged(context: Context, gpus: t.Sequence[nvidia_smi_nvlink.NvlinkErrorsGpu]) -> LimitFinding:
    """Return the finding that follows from the counters."""
    metrics: list[Json] = []
    grown = state.grown(context, NVLINK_CHECK, {str(gpu.index): gpu.total("errors") for gpu in gpus}, _HOUR)
    for name, unit in (("errors", "errors"), ("recovery_failed", "events"), ("effective_ber", "errors/bit")):
        values = {gpu.index: gpu.effective_ber if name == "effective_ber" else gpu.total(name) for gpu in gpus}
        if any(value is not None for value in values.values()):
            metrics += [metric(name, value, unit, gpu=index) for index, value in values.items()]
    metrics += [metric("errors_per_hour", grown.get(str(gpu.index)), "errors/h", gpu=gpu.index) for gpu in gpus]
    samples = [
        {"gpu": gpu.index, "link": link.number, "errors": link.errors, "recovery_failed": link.recovery_failed}
        for gpu in gpus
        for link in gpu.links
        if link.errors or link.recovery_failed
    ]
    bad = [gpu.index for gpu in gpus if any(link.errors or link.recovery_failed for link in gpu.links)]
    return LimitFinding(metrics, scope={"gpu": bad} if bad else {}, samples=samples, action="reset")
