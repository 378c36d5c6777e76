# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories on scratch, made anew whenever scratch is. Pure, private."""

from __future__ import annotations

import posixpath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    Action,
    Directory,
    Finding,
    Request,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.place import at


def wanted_paths(request: Request) -> tuple[str, ...]:
    """Return every place of which the planner wants to know how it is."""
    bases = [base for base in (request.fallback, *request.adopt) if base]
    below = [posixpath.join(base, request.name) for base in bases]
    inside = [posixpath.join(request.mount, item.path) for item in _with_parents(request)]
    return tuple(dict.fromkeys([request.mount, *bases, *below, *inside]))


def plan_directories(
    machine: Machine, request: Request, there: bool, whole: bool
) -> tuple[list[Action], list[Finding]]:
    """Return the directories to have; before the mount nobody knows which there are. ``whole``: the root of the mount
    is ours too, not only what is below it."""
    actions, findings = [], []
    for item in _all(request, whole):
        path = posixpath.normpath(posixpath.join(request.mount, item.path))
        unknown = {item.owner, item.group} & set(machine.unknown_names)
        now = at(machine, path)
        if unknown:
            text = f"{path} is not made: this machine knows no user or group {' or '.join(sorted(unknown))}."
            findings.append(Finding("warn", "config", "unknown_owner", text, "Make the account, then run again."))
        elif there and now.kind == "other":
            text = f"{path} is a file or a symbolic link, where a directory is wanted."
            # Who owns a directory in scratch can put a link in its place, and must not take the node away with it.
            level = "fail" if item.owner == "root" else "warn"
            findings.append(Finding(level, "config", "no_directory", text, f"Move it away (ls -ld {path})."))
        elif not there or now.kind == "absent" or (_listed(item, request) and _differs(machine, path, item)):
            actions.append(steps.directory(path, item.owner, item.group, item.mode))
    return actions, findings


def describe(machine: Machine, request: Request, whole: bool) -> dict[str, str]:
    """Say how the directories are now."""
    found = {}
    for item in _all(request, whole):
        path = posixpath.normpath(posixpath.join(request.mount, item.path))
        now = at(machine, path)
        if now.kind == "directory":
            found[path] = f"{now.owner}:{now.group} {now.mode}"
    return found


def _all(request: Request, whole: bool) -> list[Directory]:
    return [*([Directory(".", "root", "root", request.mode)] if whole else []), *_with_parents(request)]


def _with_parents(request: Request) -> list[Directory]:
    """Parents that nobody described belong to root, and are left as they are where there are any."""
    items = {item.path: item for item in request.directories}
    for path in list(items):
        parent = posixpath.dirname(path)
        while parent:
            items.setdefault(parent, Directory(parent, "root", "root", "0755"))
            parent = posixpath.dirname(parent)
    return [items[path] for path in sorted(items)]


def _listed(item: Directory, request: Request) -> bool:
    return item.path == "." or item in request.directories


def _differs(machine: Machine, path: str, item: Directory) -> bool:
    now = at(machine, path)
    return (now.owner, now.group, now.mode) != (item.owner, item.group, item.mode)
