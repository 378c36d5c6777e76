# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can every shared directory be mounted, and is what is called shared really shared? No I/O; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import one_of, say, twice

_SOURCES = {
    "nfs": (re.compile(r"[^:/\s]+:/\S*|\[[0-9a-fA-F:]+\]:/\S*"), "server:/export"),
    "cifs": (re.compile(r"//[^/\s]+/\S+"), "//server/share"),
    "bind": (re.compile(r"/\S+"), "a directory of the host"),
}
Inputs = t.Mapping[str, t.Any]


def mounts(inputs: Inputs) -> list[str]:
    """Return what is wrong with paths, sources and credentials of mounts."""
    requested = inputs.get("shared_storage_mounts") or []
    variable = "shared_storage_mounts"
    paths = [str(mount.get("path") or "").rstrip("/") for mount in requested]
    problems = [say(variable, path, "mounted twice", "each path once") for path in twice(paths)]
    for mount, path in zip(requested, paths):
        if not path.startswith("/"):
            problems.append(say(f"{variable}.path", path, "no place for a mount", "an absolute path, not /"))
        pattern, accepted = _SOURCES.get(str(mount.get("type")), (None, ""))
        if pattern and mount.get("state") != "absent" and not pattern.fullmatch(str(mount.get("source") or "")):
            problem = f"cannot be mounted as {mount.get('type')}"
            problems.append(say(f"{variable} ({path}).source", mount.get("source"), problem, accepted))
        missing = sorted({"username", "password"} - set(mount.get("credentials") or {}))
        if mount.get("credentials") is not None and missing:
            problem = f"lacks {' and '.join(missing)}"
            problems.append(
                say(f"{variable} ({path}).credentials", "(hidden)", problem, "username, password and optionally domain")
            )
    return problems


def directories(inputs: Inputs) -> list[str]:
    """Return what is wrong with the shared and the scratch directory, such as a shared one that no host mounts."""
    problems = []
    for name in ("cluster_shared_dir", "cluster_scratch_dir"):
        path = inputs.get(name)
        if path and not str(path).startswith("/"):
            problems.append(say(name, path, "not an absolute path", "a path that begins with /"))
    shared = [str(directory).rstrip("/") for directory in inputs.get("preflight_shared_paths") or []]
    path = str(inputs.get("cluster_shared_dir") or "")
    if (
        inputs.get("hosts")
        and path.startswith("/")
        and not any(f"{path}/".startswith(f"{directory}/") for directory in shared)
    ):
        accepted = f"a path of shared_storage_mounts or below it ({one_of(shared)}); with type: existing if it is there"
        problems.append(say("cluster_shared_dir", path, "no host mounts or exports it", accepted))
    return problems


CHECKS = (mounts, directories)
