# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the role measure: what it refuses, what it tells the modules, what it keeps of their answers."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _measure


def measure_problems(inputs: object, hosts: int) -> list[str]:
    """Say which inputs are refused."""
    if not isinstance(inputs, t.Mapping):
        raise AnsibleFilterError(f"measure_problems: inputs are a dictionary, not {inputs!r}")
    return _measure.problems(inputs, hosts)


def measure_machine(
    gpus: object,
    sku: str = "",
    count: int = 0,
    overrides: t.Mapping[str, t.Any] | None = None,
    profile_dir: str = "",
) -> dict[str, t.Any]:
    """Say what a machine is."""
    if not isinstance(gpus, t.Sequence) or isinstance(gpus, str):
        raise AnsibleFilterError(f"measure_machine: GPUs are a list, as gpu_info returns it, not {gpus!r}")
    try:
        return _measure.machine(gpus, sku, count, overrides or {}, profile_dir)
    except (KeyError, TypeError, ValueError, OSError) as exc:
        raise AnsibleFilterError(f"measure_machine: {exc}") from exc


def measure_records(
    results: object, tests: t.Sequence[str], nodes: t.Sequence[str], launcher: str = "local", stopped: str = ""
) -> list[dict[str, t.Any]]:
    """Return the check records of a host."""
    if not isinstance(results, t.Sequence) or isinstance(results, str):
        raise AnsibleFilterError(f"measure_records: results are a list, not {results!r}")
    try:
        return _measure.records(results, tests, nodes, launcher, stopped)
    except KeyError as exc:
        raise AnsibleFilterError(f"measure_records: there is no measurement {exc}") from exc


def measure_failures(hosts: t.Iterable[t.Any]) -> list[str]:
    """Say why hosts were not measured."""
    return _measure.failures(list(hosts))


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {
            "measure_failures": measure_failures,
            "measure_machine": measure_machine,
            "measure_problems": measure_problems,
            "measure_records": measure_records,
        }
