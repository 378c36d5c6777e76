# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links of ours to enroot's optional hooks: made and removed, others left alone. Private."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_conf as conf


class Link(t.NamedTuple):
    """One link that changes; no target means that there is none, or shall be none."""

    path: str
    before: str
    after: str


def plan(wanted: t.Sequence[str], present: bool, root: str = "/") -> list[Link]:
    """Compare. Where enroot is not installed (yet, in check mode) nobody knows its hooks."""
    extra, place = Path(root, conf.EXTRA.lstrip("/")), Path(root, conf.HOOKS.lstrip("/"))
    carried = sorted(path.name for path in extra.glob("*.sh")) if present else []
    goals = conf.hooks(wanted, carried) if present else {}
    now = {f"{conf.HOOKS}/{path.name}": path for path in place.glob("*.sh") if conf.is_ours(path.name)}
    before = {name: os.readlink(path) if path.is_symlink() else "(a file)" for name, path in now.items()}
    names = sorted({*goals, *before})
    changed = [name for name in names if before.get(name, "") != goals.get(name, "")]
    return [Link(name, before.get(name, ""), goals.get(name, "")) for name in changed]


def apply(changes: t.Iterable[Link]) -> None:
    for one in changes:
        Path(one.path).unlink(missing_ok=True)
        if one.after:
            Path(one.path).symlink_to(one.after)


def differences(changes: t.Iterable[Link]) -> list[dict[str, str]]:
    return [
        {
            "before_header": one.path,
            "after_header": one.path,
            "before": f"-> {one.before}\n" if one.before else "",
            "after": f"-> {one.after}\n" if one.after else "",
        }
        for one in changes
    ]


def told(values: t.Mapping[str, str]) -> list[dict[str, str]]:
    """What is set without a file: of the kernel, and of programs."""
    return [{"before_header": key, "after_header": key, "before": "", "after": f"{values[key]}\n"} for key in values]
