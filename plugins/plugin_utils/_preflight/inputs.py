# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs against the roles' argument specifications: wrong types and misspelt names. No I/O; private.

Ansible checks a role's inputs when the role starts. By then the roles before it have changed something.
"""

from __future__ import annotations

import difflib
import re
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lines, _secrets
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import say

_KINDS = {
    "bool": "true or false",
    "dict": "a dictionary",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "text",
}
_SECRET = re.compile(r"(?i)pass|secret|token|key")
_OF_HOSTS = ("slurm_node", "slurm_leaf")  # looked at by the checks of nodes
# Texts of several lines: a script, shell lines of one, a certificate.
_TEXTS = (
    "cyclecloud_cluster_accounting",
    "cyclecloud_cluster_parameters",
    "cyclecloud_cluster_secret_parameters",
    "node_bundle_before",
    "slurm_power_files",
    "slurm_power_groups",
    "slurm_power_user_data",
)
_HIDDEN = "(hidden)"
_ALIKE = 0.9  # slurm_partition is a slip of slurm_partitions, slurm_site_notes is somebody's own variable


def check_shapes(inputs: t.Mapping[str, t.Any], specs: t.Mapping[str, t.Any]) -> tuple[list[str], dict[str, t.Any]]:
    """Return what is wrong, and the inputs that are sound, as the roles will see them."""
    problems: list[str] = []
    sound = {key: value for key, value in inputs.items() if key not in specs}
    for name, spec in specs.items():
        if name not in inputs:
            continue
        value = inputs[name]
        problem, sound_value = _check(name, value, spec)
        if problem:
            problems.append(say(name, _shown(value, spec), problem, _accepted(spec)))
            sound.setdefault("unsound", []).append(name)
        else:
            sound[name] = sound_value
            problems += _broken_lines(name, value)
    return problems + _misspelt(inputs, specs), sound


def _broken_lines(name: str, value: object) -> list[str]:
    """Refuse control characters before anything is changed: most inputs become a part of a line somewhere."""
    paths = [] if name in _TEXTS else _lines.controls(value, name)
    return [
        say(path, _HIDDEN, "a newline or another control character in it", "one line; in YAML >- instead of > or |")
        for path in paths
    ]


def _check(name: str, value: object, spec: t.Mapping[str, t.Any]) -> tuple[str, object]:
    if value is None:
        return "empty", None
    own = {key: item for key, item in spec.items() if key not in ("default", "description", "required")}
    result = ArgumentSpecValidator({name: own}).validate({name: value})
    messages = [str(text) for text in result.error_messages]
    distinct = [text for text in messages if not any(text != other and text in other for other in messages)]
    return "; ".join(distinct), result.validated_parameters[name]


def _misspelt(inputs: t.Mapping[str, t.Any], specs: t.Mapping[str, t.Any]) -> list[str]:
    problems = []
    for name in sorted(set(inputs) - set(specs) - set(_OF_HOSTS)):
        close = difflib.get_close_matches(name, specs, 1, _ALIKE)
        if close and close[0] not in inputs:
            problems.append(say(name, _shown(inputs[name], {}), "read by no role", f"{close[0]}"))
    return problems


def _shown(value: object, spec: t.Mapping[str, t.Any]) -> object:
    return _HIDDEN if spec.get("no_log") else _masked(value)


def _masked(value: object) -> object:
    if isinstance(value, dict):
        return {key: _HIDDEN if _SECRET.search(str(key)) else _masked(item) for key, item in value.items()}
    if isinstance(value, str):
        return _HIDDEN if _secrets.value_kind(value) else value
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _accepted(spec: t.Mapping[str, t.Any]) -> str:
    if spec.get("choices"):
        return f"one of {', '.join(map(str, spec['choices']))}"
    text = _KINDS.get(spec.get("type", "str"), "any value")
    if spec.get("type") == "list":
        text += f", each {_KINDS.get(spec.get('elements', 'str'), 'any value')}"
    fields = [
        f"{key} ({'' if item.get('required') else 'optional '}{item.get('type', 'str')})"
        for key, item in (spec.get("options") or {}).items()
    ]
    return f"{text} with {', '.join(fields)}" if fields else text
