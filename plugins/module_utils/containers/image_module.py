# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AnsibleModule for the module container_image, whose source may hold a token. Private."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_source import Asked


class Module(AnsibleModule):
    """Keeps the token out of the system's log too, which is written before a module's own code runs."""

    def _log_invocation(self) -> None:
        self.no_log_values |= {Asked("", self.params.get("source") or "").secret} - {""}
        super()._log_invocation()
