# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of gpu_info, checked. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch, _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import CheckError, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import validate_seconds
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import expected
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.seen import Options


def spec(checks: t.Iterable[str]) -> dict[str, dict[str, t.Any]]:
    """Return the module's argument spec."""
    names = list(checks)
    return {
        "gpus": {"type": "int", "default": 0},
        "model": {"type": "str"},
        "topology": {"type": "list", "elements": "dict", "default": []},
        "checks": {"type": "list", "elements": "str", "default": names, "choices": names},
        "processes": {"type": "dict"},
        "split_cpus": {"type": "bool", "default": False},
        "program": {"type": "path"},
        "timeout": {"type": "float", "default": 60},
        "environment": {"type": "dict", "default": {}},
        **_measure.SPEC,
        **_measure.NODE,
        **_measure.SYSFS,
    }


def options(params: t.Mapping[str, t.Any], host: str) -> Options:
    """Return what is expected of the node; raises ValueError."""
    if params["gpus"] < 0:
        raise CheckError(f"gpus is {params['gpus']}")
    validate_seconds("timeout", params["timeout"])
    for expectation in params["expect"]:
        validate_expectation(expectation)
    return Options(
        params["name"] or host,
        params["gpus"],
        params["model"],
        expected(params["topology"]),
        params["expect"],
        params["run"],
        params["profile"],
    )


def users(processes: t.Mapping[t.Any, t.Any] | None) -> dict[int, list[int]] | None:
    """Return the GPUs of each process id; keys of a dictionary in YAML or JSON may be text."""
    if processes is None:
        return None
    found = {}
    for pid, gpus in processes.items():
        indexes = gpus if isinstance(gpus, (list, tuple)) else [gpus]
        try:
            found[int(pid)] = [int(index) for index in indexes]
        except (TypeError, ValueError) as exc:
            raise CheckError(f"processes holds process ids and GPU indexes, not {pid!r}: {gpus!r}") from exc
    return found


def variables(environment: t.Mapping[str, t.Any]) -> dict[str, str]:
    return _launch.environment(environment)
