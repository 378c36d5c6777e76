# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the proof of a build of Apex says: no I/O, no AnsibleModule, private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_proof import CHECKS, MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_release import ApexError, Extension

Json = t.Dict[str, t.Any]


def judge(output: str, problem: str, extensions: t.Sequence[Extension]) -> Json:
    """Return ``state`` (computed, imported), ``said``, ``gpu``, ``modules`` and ``left_out``; raises on a bad build."""
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        raise ApexError(f"the wheel was built, but not proved: {problem or 'the proof said nothing'}")
    found = json.loads(lines[-1])
    wrong = [*_broken(found), *_nothing(found, extensions), *_off(found["computed"])]
    if wrong:
        raise ApexError(f"the wheel was built, but is not kept, because its proof failed: {'; '.join(wrong)}")
    ran = [name for name in found["computed"] if CHECKS[name][1]]
    cuda = any(one.cuda for one in extensions)
    return {
        "state": "computed" if ran or not cuda else "imported",
        "said": _said(found, cuda and not ran),
        "gpu": found["gpu"],
        "modules": _modules(found),
        "left_out": found["absent"],
    }


def _modules(found: Json) -> list[str]:
    return [name for name in found["imported"] if name != "apex"]


def _broken(found: Json) -> list[str]:
    return [f"{name} cannot be imported: {why}" for name, why in found["failed"].items()]


def _nothing(found: Json, extensions: t.Sequence[Extension]) -> list[str]:
    """Name extensions that the release passed over with a warning only."""
    passed = {*found["imported"], *found["failed"]}
    return [
        f"{one.name} was asked for, but setup.py left {', '.join(one.maybe)} out, whose requirements are not met"
        for one in extensions
        if not passed & {*one.modules, *one.maybe}
    ]


def _off(computed: t.Mapping[str, t.Any]) -> list[str]:
    found = []
    for name, value in computed.items():
        if isinstance(value, str):
            found.append(f"{name} cannot be run: {value}")
        elif not value <= 1:
            found.append(f"{name} differs from PyTorch {value:.3g} times as much as is allowed")
    return found


def _said(found: Json, idle: bool) -> str:
    results = [f"{name} off by {value:.2g} of what is allowed" for name, value in found["computed"].items()]
    place = f"on {found['gpu']}" if found["gpu"] else "no GPU"
    why = "" if not idle else "none of them has a check" if found["gpu"] else "no GPU"
    told = [f"{', '.join(_modules(found))} imported", *([f"not run: {why}"] if idle else []), *results]
    return f"{', '.join(told)}{'' if idle else f' ({place})'}"
