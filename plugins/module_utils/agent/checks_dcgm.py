# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks by NVIDIA DCGM, where it is installed: what its health watches found, and its diagnostic.

The health watches are asked by themselves. The diagnostic is run by choice and at no time beside a job: in the suite
full, and at the level that the configuration gives.
"""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context

_HEALTH, _DIAG = "dcgm_health", "dcgm_diag"
# Of the time that the agent gives the check: dcgmi that hangs has to be ended by then.
_PATIENCE = 6.0
# Seconds for the levels that fit a suite. dcgmi has to end by then: only it can have the host engine stop the tests.
TIMEOUTS = {1: 120.0, 2: 900.0, 3: 1700.0}
# A suite that runs beside jobs, and has to end in seconds, can list the check as well: at level 1, without computing.
_SHORT, _SOON = 1, 15.0


def health(context: Context) -> list[Json]:
    """Ask the host engine what its watches found; only where it runs, for the agent starts none."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import NotFound, find
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_measure import params
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import dcgm

    path = context.config.tools.get("dcgmi") or None
    if not path:
        try:
            path = find("dcgmi", None, dcgm.PLACES, role=None)
        except NotFound:
            return [context.record(_HEALTH, verdict="skipped", reason="DCGM is not installed: there is no dcgmi")]
    enable = bool(context.config.options(_HEALTH).get("enable_watches"))
    options = params(context, dcgm.HEALTH_SPEC, path=path, enable_watches=enable, timeout=_PATIENCE)
    return context.adopt(dcgm.health(options, False)["checks"])


def diag(context: Context) -> list[Json]:
    """Run the diagnostic at the level that the configuration gives; without one it is not run."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_measure import params
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import dcgm

    chosen = context.config.options(_DIAG)
    level = chosen.get("level") or 0
    if not level:
        return [context.record(_DIAG, verdict="skipped", reason="not chosen: checks.dcgm_diag.level is not set")]
    if level not in TIMEOUTS:
        reason = f"checks.dcgm_diag.level is {level!r}; accepted are {', '.join(map(str, TIMEOUTS))}"
        return [context.record(_DIAG, verdict="error", reason=reason)]
    alone = context.suite == "full"
    if level > _SHORT and not alone:
        reason = f"level {level} computes on GPUs, and suite {context.suite} runs beside jobs: level 1, or suite full"
        return [context.record(_DIAG, verdict="error", reason=reason)]
    known: Json = {name: chosen[name] for name in ("parameters", "embedded") if name in chosen}
    known.update(path=context.config.tools.get("dcgmi") or None, gpus=context.config.gpus or None)
    known.update(level=level, timeout=TIMEOUTS[level] if alone else _SOON)
    options = params(context, dcgm.DIAG_SPEC, **known)
    return context.adopt(dcgm.diag(options, False)["checks"])
