# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot of which machine this is. Private, stdlib only."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Host

# Hyper-V's key-value exchange: Azure's host tells its guests its name there.
POOL = "/var/lib/hyperv/.kvp_pool_3"
NAMES = ("PhysicalHostNameFullyQualified", "PhysicalHostName")
_KEY, _VALUE = 512, 2048


def host(proc: str = "/proc", pool: str = POOL) -> Host:
    """Read both; what cannot be read is empty, since neither is everywhere."""
    try:
        boot = Path(proc, "sys/kernel/random/boot_id").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        boot = ""
    try:
        found = pairs(Path(pool).read_bytes())
    except OSError:
        found = {}
    return Host(boot, next((found[name] for name in NAMES if found.get(name)), ""))


def pairs(data: bytes) -> dict[str, str]:
    """Read the pool: records of a key and a value, each filled up with zeros; half a record is none."""
    size = _KEY + _VALUE
    whole = (data[start : start + size] for start in range(0, len(data) - size + 1, size))
    return {_text(one[:_KEY]): _text(one[_KEY:]) for one in whole}


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace").strip()
