# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks on what each GPU says of itself. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.seen import Finding, Options, Seen, listing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_gpu import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_values import THROTTLE_FAULTS

Field = t.Callable[[Gpu], t.Any]


def count(seen: Seen, options: Options) -> Finding:
    """Compare with what is expected, never with what the node had before; name every GPU that is missing."""
    there, missing = len(seen.gpus), seen.inventory.missing
    metrics = [metric("gpus", there, "GPUs")]
    samples = [
        *({"gpu": index, "bus_id": gpu.bus_id, "uuid": gpu.uuid, "answers": True} for index, gpu in seen.gpus.items()),
        *({"gpu": gone.index, "bus_id": gone.bus_id, "answers": False, "why": gone.why} for gone in missing),
    ]
    cause = seen.reading.cause
    if not there and cause:
        return Finding(metrics, "fail", f"no GPU answers: {cause.text}", cause.kind, samples=samples)
    if not there or (missing and seen.problem("query")):
        # Of an output that breaks off nobody can say which GPUs it would have shown.
        return Finding(verdict="error", reason=seen.problem("query"), samples=samples)
    if missing:
        reason = f"{there} of {there + len(missing)} GPUs answer; missing: {'; '.join(map(str, missing))}"
        gone_gpus = [gone.index for gone in missing if gone.index is not None]
        return Finding(metrics, "fail", reason, "hardware", gone_gpus, samples)
    broken = {index: text for index, text in ((i, _asks(gpu)) for i, gpu in seen.gpus.items()) if text}
    if broken:
        reason = "; ".join(f"GPU {index} answers and {text}" for index, text in broken.items())
        return Finding(metrics, "fail", reason, "hardware", list(broken), samples)
    if options.gpus and there > options.gpus:
        return Finding(metrics, "fail", f"{there} GPUs answer, {options.gpus} are expected", "config", samples=samples)
    return Finding(metrics, "pass" if options.gpus else None, samples=samples)


def _asks(gpu: Gpu) -> str:
    """Say what a GPU needs before it works again; the driver knows by itself."""
    if gpu.recovery_action not in (None, "None"):
        return f"asks for recovery: {gpu.recovery_action}"
    return "requires a reset" if gpu.reset_required else ""


def model(seen: Seen, options: Options) -> Finding:
    """Compare names, and pass on what nvidia-smi warns of GPUs that do answer (a corrupted infoROM)."""
    found = _values(seen, [("memory", "MiB", lambda gpu: gpu.memory_total_mib)], name=lambda gpu: gpu.name)
    query = seen.reading.query
    ids = {gpu.bus_id[-12:]: index for index, gpu in seen.gpus.items()}
    warned = {m.text: ids.get((m.bus_id or "")[-12:]) for m in (query.messages if query else []) if "infoROM" in m.text}
    if warned:
        return found._replace(
            verdict="fail", reason="; ".join(warned), gpus=[index for index in warned.values() if index is not None]
        )
    if not options.model or found.verdict:
        return found
    unnamed = [index for index, gpu in seen.gpus.items() if gpu.name is None]
    other = {i: gpu.name for i, gpu in seen.gpus.items() if gpu.name and options.model.lower() not in gpu.name.lower()}
    if other:
        names = ", ".join(sorted({str(name) for name in other.values()}))
        reason = f"{listing(other)}: {names}, expected {options.model}"
        return found._replace(verdict="fail", reason=reason, blame="config", gpus=list(other))
    if unnamed:
        return found._replace(verdict="error", reason=f"nvidia-smi shows no name of {listing(unnamed)}")
    parted = [index for index, gpu in seen.gpus.items() if gpu.mig]
    if parted:
        reason = f"MIG mode is on on {listing(parted)}, and NCCL does not work between its parts (nvidia-smi -mig 0)"
        return found._replace(verdict="warn", reason=reason, blame="config", gpus=parted)
    return found._replace(verdict="pass")


def ecc(seen: Seen, options: Options) -> Finding:
    found = _values(
        seen,
        [
            ("volatile_uncorrected", "errors", lambda gpu: gpu.ecc.volatile_uncorrected),
            ("aggregate_uncorrected", "errors", lambda gpu: gpu.ecc.aggregate_uncorrected),
            ("volatile_corrected", "errors", lambda gpu: gpu.ecc.volatile_corrected),
        ],
        enabled=lambda gpu: gpu.ecc.enabled,
        sram_threshold_exceeded=lambda gpu: gpu.ecc.sram_threshold_exceeded,
    )
    off = [index for index, gpu in seen.gpus.items() if gpu.ecc.enabled is False]
    if not off or found.verdict or not options.expects("gpu_ecc"):
        return found
    reason = f"ECC is off on {listing(off)}, so nothing is counted: nvidia-smi -e 1 and a reset switch it on"
    return found._replace(verdict="fail", reason=reason, blame="config", gpus=off)


def remap(seen: Seen, options: Options) -> Finding:
    """A100 and newer remap rows, older GPUs retire pages: what none of the GPUs has is left out."""
    return _values(
        seen,
        [
            ("remapped_correctable", "rows", lambda gpu: gpu.repairs.remapped_correctable),
            ("remapped_uncorrectable", "rows", lambda gpu: gpu.repairs.remapped_uncorrectable),
            ("remap_pending", "flags", lambda gpu: _flag(gpu.repairs.remap_pending)),
            ("remap_failed", "flags", lambda gpu: _flag(gpu.repairs.remap_failed)),
            ("retired_pages", "pages", lambda gpu: gpu.repairs.retired_pages),
        ],
        optional=True,
        retirement_pending=lambda gpu: gpu.repairs.retirement_pending,
    )


def pcie(seen: Seen, options: Options) -> Finding:
    """The current generation drops at idle, so the highest that GPU and slot agree on is judged."""
    return _values(
        seen,
        [
            ("width", "lanes", lambda gpu: gpu.pcie.width),
            ("generation_max", "generation", lambda gpu: gpu.pcie.generation_max),
        ],
        replays=lambda gpu: gpu.pcie.replays,
    )


def throttle(seen: Seen, options: Options) -> Finding:
    return _values(seen, [("throttle_faults", "bits", _faults)], reasons=lambda gpu: gpu.throttle)


def _faults(gpu: Gpu) -> int | None:
    return None if gpu.throttle_mask is None else gpu.throttle_mask & THROTTLE_FAULTS


def temperature(seen: Seen, options: Options) -> Finding:
    return _values(
        seen,
        [("temperature", "C", lambda gpu: gpu.temperature_c)],
        memory=lambda gpu: gpu.memory_temperature_c,
    )


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _values(
    seen: Seen, fields: t.Sequence[tuple[str, str, Field]], optional: bool = False, **details: Field
) -> Finding:
    """Measure fields of all planned GPUs; one that is missing has metrics without a value."""
    if not seen.gpus:
        return Finding(verdict="error", reason=seen.problem("query"))
    metrics: list[Json] = []
    for name, unit, field in fields:
        values = {index: field(seen.gpus[index]) if index in seen.gpus else None for index in seen.inventory.planned}
        if not optional or any(value is not None for value in values.values()):
            metrics += [metric(name, value, unit, gpu=index) for index, value in values.items()]
    samples = [
        {
            "gpu": index,
            "bus_id": gpu.bus_id,
            "uuid": gpu.uuid,
            "serial": gpu.serial,
            **{name: field(gpu) for name, dummy, field in fields},
            **{name: field(gpu) for name, field in details.items()},
        }
        for index, gpu in seen.gpus.items()
    ]
    few = len(seen.gpus) < len(seen.inventory.planned)
    told = f"{len(seen.gpus)} of {len(seen.inventory.planned)} GPUs answer (see gpu_count)" if few else ""
    return Finding(metrics, reason=told, samples=samples)
