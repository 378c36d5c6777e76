# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a GPU of the texts of a <gpu> element, whatever the driver's version calls them."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values as values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_gpu import (
    Clocks,
    Ecc,
    Fabric,
    Gpu,
    Pcie,
    Process,
    Repairs,
)

Fields = t.Mapping[str, str]
_DEAD = re.compile(r"GPU is lost|GPU requires reset")
_TEXTS = {
    "name": "product_name",
    "architecture": "product_architecture",
    "uuid": "uuid",
    "serial": "serial",
    "vbios": "vbios_version",
    "virtualization": "gpu_virtualization_mode/virtualization_mode",
    "performance_state": "performance_state",
    "recovery_action": "gpu_recovery_action",
}
# The same section under its names in DTD v10/v11 and since v12.
_REASONS = (("clocks_event_reasons", "clocks_event_reason_"), ("clocks_throttle_reasons", "clocks_throttle_reason_"))
_POWER = (
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/average_power_draw",
    "gpu_power_readings/power_draw",
    "power_readings/power_draw",
)
_LIMIT = ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit", "power_readings/power_limit")


def build(fields: Fields, processes: t.Sequence[Fields], complete: bool) -> Gpu:
    """Make a GPU of the texts of a <gpu> element by their path in it."""
    bits = _throttle(fields)
    get = fields.get
    texts = {name: values.value(get(path)) for name, path in _TEXTS.items()}
    return Gpu(
        **texts,
        bus_id=(get("pci/pci_bus_id") or get("@id") or "").strip().upper(),
        minor=values.count(get("minor_number")),
        persistence=values.flag(get("persistence_mode")),
        mig=values.flag(get("mig_mode/current_mig")),
        reset_required=values.flag(get("gpu_reset_status/reset_required")),
        memory_total_mib=values.measured(get("fb_memory_usage/total"), "MiB", "MB"),
        memory_used_mib=values.measured(get("fb_memory_usage/used"), "MiB", "MB"),
        temperature_c=values.measured(get("temperature/gpu_temp"), "C"),
        memory_temperature_c=values.measured(get("temperature/memory_temp"), "C"),
        power_w=_first(fields, _POWER, "W"),
        power_limit_w=_first(fields, _LIMIT, "W"),
        throttle_mask=bits,
        throttle=values.throttle_names(bits or 0),
        clocks=_clocks(fields, "clocks"),
        max_clocks=_clocks(fields, "max_clocks"),
        application_clocks=_clocks(fields, "applications_clocks"),
        pcie=_pcie(fields),
        ecc=_ecc(fields),
        repairs=_repairs(fields),
        fabric=_fabric(fields),
        processes=[process for process in map(_process, processes) if process],
        error=_error(fields),
        complete=complete,
    )


def _error(fields: Fields) -> str | None:
    found = (match.group() for match in map(_DEAD.search, fields.values()) if match)
    return next(found, None)


def _first(fields: Fields, paths: t.Sequence[str], unit: str) -> float | None:
    found = (values.measured(fields.get(path), unit) for path in paths)
    return next((number for number in found if number is not None), None)


def _clocks(fields: Fields, section: str) -> Clocks:
    graphics, sm, memory = (
        values.measured(fields.get(f"{section}/{name}_clock"), "MHz") for name in ("graphics", "sm", "mem")
    )
    return Clocks(graphics, sm, memory)


def _pcie(fields: Fields) -> Pcie:
    link = "pci/pci_gpu_link_info"
    return Pcie(
        generation=values.count(fields.get(f"{link}/pcie_gen/current_link_gen")),
        generation_max=values.count(fields.get(f"{link}/pcie_gen/max_link_gen")),
        width=values.measured(fields.get(f"{link}/link_widths/current_link_width"), "x"),
        width_max=values.measured(fields.get(f"{link}/link_widths/max_link_width"), "x"),
        replays=values.count(fields.get("pci/replay_counter")),
    )


def _ecc(fields: Fields) -> Ecc:
    return Ecc(
        enabled=values.flag(fields.get("ecc_mode/current_ecc")),
        volatile_corrected=_errors(fields, "volatile", "correctable", "single_bit"),
        volatile_uncorrected=_errors(fields, "volatile", "uncorrectable", "double_bit"),
        aggregate_corrected=_errors(fields, "aggregate", "correctable", "single_bit"),
        aggregate_uncorrected=_errors(fields, "aggregate", "uncorrectable", "double_bit"),
        sram_threshold_exceeded=values.flag(fields.get("ecc_errors/aggregate/sram_threshold_exceeded")),
        counts=_counts(fields),
    )


def _counts(fields: Fields) -> dict[str, int]:
    """Return the errors of SRAM and of DRAM; what a GPU does not count is left out."""
    found: dict[str, int] = {}
    for period in ("volatile", "aggregate"):
        for kind, name in (("correctable", "corrected"), ("uncorrectable", "uncorrected")):
            base = f"ecc_errors/{period}"
            sram = [values.count(fields.get(f"{base}/sram_{kind}{part}")) for part in ("", "_parity", "_secded")]
            known = [number for number in sram if number is not None]
            dram = values.count(fields.get(f"{base}/dram_{kind}"))
            found.update({f"{period}_sram_{name}": sum(known)} if known else {})
            found.update({} if dram is None else {f"{period}_dram_{name}": dram})
    return found


def _errors(fields: Fields, period: str, kind: str, old: str) -> int | None:
    """Sum SRAM and DRAM; newer drivers count SRAM's uncorrectable ones by parity and SECDED, V100 has one total."""
    base = f"ecc_errors/{period}"
    sram = [f"{base}/sram_{kind}"]
    if f"{base}/sram_{kind}" not in fields:
        sram = [f"{base}/sram_{kind}_parity", f"{base}/sram_{kind}_secded"]
    counts = [values.count(fields.get(path)) for path in (*sram, f"{base}/dram_{kind}", f"{base}/{old}/total")]
    known = [number for number in counts if number is not None]
    return sum(known) if known else None


def _repairs(fields: Fields) -> Repairs:
    """``remapped_rows`` is the text N/A before A100, and the page counts are N/A since."""
    rows, pages = "remapped_rows/remapped_row", "retired_pages"
    retired = [
        values.count(fields.get(f"{pages}/{kind}/retired_count"))
        for kind in ("multiple_single_bit_retirement", "double_bit_retirement")
    ]
    known = [number for number in retired if number is not None]
    return Repairs(
        remapped_correctable=values.count(fields.get(f"{rows}_corr")),
        remapped_uncorrectable=values.count(fields.get(f"{rows}_unc")),
        remap_pending=values.flag(fields.get(f"{rows}_pending")),
        remap_failed=values.flag(fields.get(f"{rows}_failure")),
        retired_pages=sum(known) if known else None,
        retirement_pending=values.flag(
            fields.get(f"{pages}/pending_retirement") or fields.get(f"{pages}/pending_blacklist")
        ),
    )


def _fabric(fields: Fields) -> Fabric:
    state, status, clique, cluster, health = (
        values.value(fields.get(f"fabric/{name}"))
        for name in ("state", "status", "cliqueId", "clusterUuid", "health/summary")
    )
    return Fabric(state, status, clique, cluster, health)


def _throttle(fields: Fields) -> int | None:
    for section, prefix in _REASONS:
        named = {path.rpartition(prefix)[2]: text for path, text in fields.items() if path.startswith(f"{section}/")}
        flags = {name: values.flag(text) for name, text in named.items()}
        if any(active is not None for active in flags.values()):
            return values.throttle_mask(name for name, active in flags.items() if active)
    return None


def _process(fields: Fields) -> Process | None:
    pid = values.count(fields.get("pid"))
    if pid is None:
        return None
    memory = values.measured(fields.get("used_memory"), "MiB", "MB")
    return Process(pid, values.value(fields.get("type")), values.value(fields.get("process_name")), memory)
