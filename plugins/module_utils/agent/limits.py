# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent's own checks expect where a profile says nothing, and how a check becomes a record. Private.

A profile that has an expectation of the same check and metric replaces what is here.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, explain, judge, overall
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context

_WORST = ("fail", "error", "warn")
_NHC_ECC = "Azure/azurehpc-health-checks customTests/azure_gpu_ecc.nhc and conf/*.conf (0e0a1ac2): check_gpu_ecc"
_AGENT = "Azure/cyclecloud-healthagent healthagent/defaults.yaml (b8c76db)"
_GCM = "facebookresearch/gcm (1b7bde9), health checks of nvidia-smi"
_LINKS = "Azure/ai-infrastructure-on-azure skills/slurm/ib_link_validation/SKILL.md (a01b073), threshold guidance"
_NHC = "mej/nhc nhc.conf (9c4a38c)"


def _limit(check: str, metric: str, op: str, value: float, unit: str, source: str, verdict: str = "fail") -> Json:
    limit = {"check": check, "metric": metric, "op": op, "value": value, "unit": unit, "source": source}
    return {**limit, "verdict": verdict}


BUILT_IN: t.Sequence[Json] = (
    _limit("gpu_memory_errors", "sram_uncorrected_volatile", "==", 0, "errors", _NHC_ECC),
    _limit("gpu_memory_errors", "sram_uncorrected_aggregate", "==", 0, "errors", _NHC_ECC),
    _limit("gpu_memory_errors", "sram_corrected_volatile", "<=", 10000, "errors", f"{_NHC_ECC} 20000000 10000"),
    _limit("gpu_memory_errors", "sram_corrected_aggregate", "<=", 10000, "errors", f"{_NHC_ECC} 20000000 10000"),
    _limit(
        "gpu_memory_errors",
        "dram_uncorrected_volatile",
        "==",
        0,
        "errors",
        f"{_AGENT}: volatile double-bit errors above 0 are an error",
    ),
    _limit("gpu_memory_errors", "dram_corrected_volatile", "<=", 20000000, "errors", f"{_NHC_ECC} 20000000 10000"),
    _limit("gpu_memory_errors", "dram_corrected_aggregate", "<=", 20000000, "errors", f"{_NHC_ECC} 20000000 10000"),
    _limit(
        "gpu_memory_errors",
        "sram_threshold_exceeded",
        "==",
        0,
        "flags",
        "NVIDIA Xid catalogue, Xid 48: a GPU whose threshold of SRAM errors is exceeded is replaced",
    ),
    _limit(
        "gpu_memory_errors",
        "retirement_pending",
        "==",
        0,
        "flags",
        f"{_AGENT}: pages that wait for retirement are a warning",
        "warn",
    ),
    _limit(
        "gpu_persistence",
        "persistence",
        "==",
        1,
        "flags",
        f"{_AGENT}: persistence mode other than 1 is an error",
    ),
    _limit("gpu_idle", "memory_used", "<=", 15, "MiB", f"{_GCM}: at most 15 MiB on a GPU that nobody uses"),
    _limit("gpu_idle", "processes", "==", 0, "processes", "the node runs no job", "warn"),
    _limit(
        "gpu_nvlink_errors",
        "recovery_failed",
        "==",
        0,
        "events",
        "NVIDIA Xid catalogue, Xid 149: a link that does not recover needs a reset of the GPU",
    ),
    _limit("gpu_nvlink_errors", "errors", "==", 0, "errors", f"{_GCM}: error counters of NVLink are 0", "warn"),
    _limit(
        "gpu_nvlink_errors",
        "effective_ber",
        "<=",
        1e-6,
        "errors/bit",
        f"{_AGENT}: an effective bit error rate above 1e-6 is a warning",
        "warn",
    ),
    _limit(
        "infiniband_flaps",
        "link_downs",
        "<=",
        2,
        "events",
        f"{_AGENT}: 3 link-downs within 3 hours are an error that stays until reboot",
    ),
    _limit("infiniband_errors", "symbol_error", "==", 0, "errors", _LINKS, "warn"),
    _limit("infiniband_errors", "link_error_recovery", "==", 0, "errors", _LINKS, "warn"),
    _limit("infiniband_errors", "port_rcv_errors", "<=", 100, "errors", _LINKS, "warn"),
    _limit("infiniband_errors", "port_xmit_discards", "<=", 1000, "errors", _LINKS, "warn"),
    _limit("filesystems", "free", ">=", 3, "%", f"{_NHC}: check_fs_free / 3%"),
    _limit("filesystems", "free_inodes", ">=", 1000, "inodes", f"{_NHC}: check_fs_ifree / 1k"),
    _limit("cpus_online", "offline", "==", 0, "cpus", "the kernel takes a CPU offline after machine checks"),
    _limit(
        "memory_errors",
        "uncorrected",
        "==",
        0,
        "errors",
        "Linux Documentation/admin-guide/RAS: data were lost with each of them",
    ),
    _limit(
        "memory_errors",
        "poisoned",
        "==",
        0,
        "bytes",
        "Linux Documentation/filesystems/proc: HardwareCorrupted is what the kernel took out of use for its errors",
    ),
    _limit(
        "clock_skew",
        "skew",
        "<=",
        150,
        "s",
        "half of the 300 s that munged(8) lets a credential live: a minute more, and jobs are refused",
    ),
    _limit("clock_skew", "skew", "<=", 5, "s", "NTP keeps a node to milliseconds, this measures to 2 s", "warn"),
)
SWAP = _limit(
    "swap",
    "swap",
    "==",
    0,
    "bytes",
    "Azure/azurehpc-health-checks conf/*.conf (0e0a1ac2): check_hw_swap 0kB 0kB 3%",
)


def limits(context: Context, check: str, more: t.Sequence[Json] = ()) -> list[Json]:
    """Return the expectations of a check: those of the profile, else those of this file and of the check itself."""
    given = [expectation for expectation in context.config.expect if expectation.get("check") == check]
    known = {expectation["metric"] for expectation in given}
    own = [
        expectation
        for expectation in (*BUILT_IN, *more)
        if expectation["check"] == check and expectation["metric"] not in known
    ]
    return [*given, *own]


class LimitFinding(t.NamedTuple):
    """Metrics of a check and its own verdict on what they do not show; the worse of both counts.

    ``more`` is expected beside the limits of the profile and of this file, ``expect`` in their place.
    """

    metrics: t.Sequence[Json] = ()
    verdict: str | None = None
    reason: str = ""
    blame: str = "hardware"
    scope: t.Mapping[str, t.Any] = {}
    samples: t.Sequence[Json] = ()
    evidence: str = ""
    action: str = "isolate"
    latched: bool = False
    code: t.Any = None
    more: t.Sequence[Json] = ()
    expect: t.Sequence[Json] | None = None


def report(context: Context, check: str, finding: LimitFinding) -> Json:
    """Judge the metrics and return the record; an action is named only where there is something to do."""
    quiet = finding.verdict in ("skipped", "error")
    expectations = limits(context, check, finding.more) if finding.expect is None else finding.expect
    expect = [] if quiet else expectations
    # What a machine does not have is not measured; that is no hole, but of what its profile expects.
    names, promised = (
        {measured["name"] for measured in finding.metrics},
        context.config.expect if finding.metrics else [],
    )
    metrics = judge(
        check, finding.metrics, [limit for limit in expect if limit["metric"] in names or limit in promised]
    )
    judged = overall(metrics) if metrics and not quiet else finding.verdict
    verdict = next((worst for worst in _WORST if worst in (judged, finding.verdict)), finding.verdict or judged)
    bad = verdict in ("fail", "warn")
    reasons = [finding.reason, explain(metrics)] if not quiet else [finding.reason]
    return context.record(
        check,
        verdict=verdict,
        metrics=metrics,
        blame=finding.blame,
        reason="; ".join(part for part in reasons if part),
        scope=dict(finding.scope),
        samples=list(finding.samples),
        evidence=finding.evidence,
        action=finding.action if verdict == "fail" else "monitor" if verdict == "warn" else "",
        latched=finding.latched and verdict == "fail",
        code=finding.code if bad else None,
    )
