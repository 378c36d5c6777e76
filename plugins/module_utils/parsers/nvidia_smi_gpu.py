# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One GPU as ``nvidia-smi -q -x`` describes it, under names that do not change with the driver's version."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Clocks:
    graphics_mhz: float | None
    sm_mhz: float | None
    memory_mhz: float | None


@dataclass(frozen=True)
class Pcie:
    """The current generation drops when a GPU idles; the width does not."""

    generation: int | None
    generation_max: int | None
    width: float | None
    width_max: float | None
    replays: int | None


@dataclass(frozen=True)
class Ecc:
    """Errors since the driver was loaded (volatile) and in the GPU's life (aggregate), of SRAM and DRAM together.

    ``counts`` has them apart, such as ``volatile_sram_uncorrected``; V100 and older do not tell them apart.
    """

    enabled: bool | None
    volatile_corrected: int | None
    volatile_uncorrected: int | None
    aggregate_corrected: int | None
    aggregate_uncorrected: int | None
    sram_threshold_exceeded: bool | None
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Repairs:
    """Rows that were remapped (A100 and newer), pages that were retired (V100 and older)."""

    remapped_correctable: int | None
    remapped_uncorrectable: int | None
    remap_pending: bool | None
    remap_failed: bool | None
    retired_pages: int | None
    retirement_pending: bool | None


@dataclass(frozen=True)
class Fabric:
    """What the fabric manager did; without NVSwitch all is None."""

    state: str | None
    status: str | None
    clique_id: str | None
    cluster_uuid: str | None
    health: str | None


@dataclass(frozen=True)
class Process:
    """``kind`` is C (compute), G (graphics) or M+C (through MPS)."""

    pid: int
    kind: str | None
    name: str | None
    memory_mib: float | None


@dataclass(frozen=True)
class Gpu:
    """``complete`` is false where the document ends in the midst of this GPU.

    ``error`` is what stands in place of its values when it does not answer: ``GPU is lost``, ``GPU requires reset``.
    """

    bus_id: str
    name: str | None
    architecture: str | None
    uuid: str | None
    serial: str | None
    minor: int | None
    vbios: str | None
    persistence: bool | None
    mig: bool | None
    virtualization: str | None
    performance_state: str | None
    reset_required: bool | None
    recovery_action: str | None
    memory_total_mib: float | None
    memory_used_mib: float | None
    temperature_c: float | None
    memory_temperature_c: float | None
    power_w: float | None
    power_limit_w: float | None
    throttle_mask: int | None
    throttle: list[str]
    clocks: Clocks
    max_clocks: Clocks
    application_clocks: Clocks
    pcie: Pcie
    ecc: Ecc
    repairs: Repairs
    fabric: Fabric
    processes: list[Process]
    error: str | None
    complete: bool
