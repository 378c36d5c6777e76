# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter for values in files that are made of lines; documented in the YAML file beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lines


def one_line(value: t.Any, name: str = "value") -> t.Any:
    """Return a value as it is, or refuse it with the path of the text that holds a control character."""
    try:
        return _lines.one_line(value, name)
    except _lines.LineError as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"one_line": one_line}
