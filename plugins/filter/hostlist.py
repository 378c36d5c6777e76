# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters over Slurm hostlist expressions; documented in the YAML files beside this one."""

from __future__ import annotations

import collections.abc as c
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import (
    DEFAULT_LIMIT,
    HostlistError,
    compress,
    expand,
)


def _strings(value: object, name: str) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, c.Iterable) or isinstance(items, (c.Mapping, bytes)):
        raise AnsibleFilterError(f"{name} takes a string or a list of strings, not {type(value).__name__}")
    texts = list(items)
    for text in texts:
        if not isinstance(text, str):
            raise AnsibleFilterError(f"{name} takes strings, not {type(text).__name__} ({text!r})")
    return texts


def hostlist_expand(value: object, unique: bool = False, limit: int = DEFAULT_LIMIT) -> list[str]:
    """Return the names that one or more hostlist expressions stand for."""
    names: list[str] = []
    try:
        for text in _strings(value, "hostlist_expand"):
            names.extend(expand(text, limit - len(names)))
    except HostlistError as exc:
        raise AnsibleFilterError(f"hostlist_expand: {exc} (limit {limit})") from exc
    return list(dict.fromkeys(names)) if unique else names


def hostlist_compress(value: object, sort: bool = False, unique: bool = False) -> str:
    """Return one hostlist expression for a list of names."""
    try:
        return compress(_strings(value, "hostlist_compress"), sort=sort, unique=unique)
    except HostlistError as exc:
        raise AnsibleFilterError(f"hostlist_compress: {exc}") from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"hostlist_compress": hostlist_compress, "hostlist_expand": hostlist_expand}
