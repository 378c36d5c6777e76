# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter of the role slurm_power; documented in the YAML file beside this one."""

from __future__ import annotations

import base64
import typing as t

from ansible.errors import AnsibleFilterError


def slurm_power_files(
    groups: t.Any, directory: str, user_data: str = "", files: t.Sequence[t.Mapping[str, str]] = ()
) -> dict[str, t.Any]:
    """Return the groups as power.json has them, and the files that the provider reads beside it."""
    if not isinstance(groups, list) or not all(isinstance(group, t.Mapping) and "nodes" in group for group in groups):
        raise AnsibleFilterError("slurm_power_files takes a list of groups, each with its nodes")
    paths = [f"{directory}/user-data-{number}" for number in range(1, len(groups) + 1)]
    return {
        "groups": [
            {"nodes": group["nodes"], "machine": group.get("machine", {}), "user_data": path}
            for group, path in zip(groups, paths)
        ],
        "user_data": [
            {
                "path": path,
                "owner": "slurm",
                "content": group.get("user_data") or user_data,
                "mode": "0440",
                "diff": False,
            }
            for group, path in zip(groups, paths)
        ],
        "secrets": [
            {
                "path": file["path"],
                "secret": base64.b64encode(file["content"].encode()).decode(),
                "owner": "slurm",
                "mode": "0400",
            }
            for file in files
        ],
    }


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"slurm_power_files": slurm_power_files}
