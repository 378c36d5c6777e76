# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm.conf says of nodes' health, for each release of Slurm. No I/O; private to this collection.

Slurm ignores a state that it does not know and then checks nodes in any state, with no more than a line in its log.
Which release knows what: slurm.conf(5) of 22.05 to 26.05.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.parse import release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

_SINCE = {"NONDRAINED_IDLE": (23, 2), "START_ONLY": (25, 11), "REBOOT_ONLY": (26, 5)}
_STATES = ("ALLOC", "ANY", "CYCLE", "IDLE", "MIXED", *_SINCE)
_ALONE = ("START_ONLY", "REBOOT_ONLY")
_SUSPEND_EXC_STATES = (23, 2)
_SUSPEND_STATES = (
    "CLOUD DOWN DRAIN DYNAMIC_FUTURE DYNAMIC_NORM FAIL INVALID_REG MAINTENANCE NOT_RESPONDING PERFCTRS PLANNED RESERVED"
).split()


def settings(
    program: str,
    interval: int,
    states: t.Sequence[str],
    suspend_exc_states: t.Sequence[str],
    version: str = "",
    extra: t.Mapping[str, t.Any] | None = None,
) -> dict[str, str]:
    """Return the settings; without a version only what every release understands is let through."""
    known = release(version) if version else (0, 0)
    found = _checks(program, interval, [state.upper() for state in states], version, known) if program else {}
    asked = [state.upper() for state in suspend_exc_states]
    strange = [state for state in asked if state not in _SUSPEND_STATES]
    if strange:
        raise SlurmError(f"suspend_exc_states {', '.join(strange)}: Slurm knows {', '.join(_SUSPEND_STATES)}")
    if asked and known >= _SUSPEND_EXC_STATES and saves_power(extra or {}):
        found["SuspendExcStates"] = ",".join(asked)
    return found


def _checks(
    program: str, interval: int, states: t.Sequence[str], version: str, known: tuple[int, int]
) -> dict[str, str]:
    if not program.startswith("/") or any(char.isspace() for char in program):
        raise SlurmError(f"health check program {program!r}: an absolute path without blanks is needed")
    if not 1 <= interval <= 65535:
        raise SlurmError(f"health check interval {interval}: seconds from 1 to 65535 are needed")
    strange = [state for state in states if state not in _STATES]
    if strange or not states:
        raise SlurmError(f"health check states {', '.join(strange) or 'are empty'}: Slurm knows {', '.join(_STATES)}")
    alone = [state for state in states if state in _ALONE]
    if alone and len(states) > 1:
        raise SlurmError(f"health check state {alone[0]} stands alone, not with {', '.join(states)}")
    for state in states:
        year, month = _SINCE.get(state, (0, 0))
        if (year, month) > known:
            raise SlurmError(
                f"health check state {state} needs Slurm {year}.{month:02}, this is {version or 'unknown'}"
            )
    return {
        "HealthCheckProgram": program,
        "HealthCheckInterval": str(interval),
        "HealthCheckNodeState": ",".join(states),
    }


def saves_power(extra: t.Mapping[str, t.Any]) -> bool:
    """Return whether a site's settings let Slurm switch nodes off."""
    return any(key.lower() == "suspendprogram" and value for key, value in extra.items())
