# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter that drafts a site's profile from check records; documented in the YAML file beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_draft import draft


def profile_draft(
    records: object, name: str, hosts: t.Sequence[str] = (), base: t.Sequence[str] = (), margin: float = 5.0
) -> str:
    """Return the text of a profile."""
    if not isinstance(records, t.Sequence) or isinstance(records, str):
        raise AnsibleFilterError(f"profile_draft: check records are a list, not {type(records).__name__}")
    try:
        return draft(records, str(name), list(hosts), list(base), float(margin))
    except (KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"profile_draft: {exc}") from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"profile_draft": profile_draft}
