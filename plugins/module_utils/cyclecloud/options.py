# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say which CycleCloud, and the client made of them. Private to this collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import env_fallback

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import Client, CycleCloudError

SPEC: dict[str, dict[str, t.Any]] = {
    "url": {"type": "str", "fallback": (env_fallback, ["CYCLECLOUD_URL"])},
    "username": {"type": "str", "fallback": (env_fallback, ["CYCLECLOUD_USERNAME"])},
    "password": {"type": "str", "no_log": True, "fallback": (env_fallback, ["CYCLECLOUD_PASSWORD"])},
    "ca_path": {"type": "path", "fallback": (env_fallback, ["CYCLECLOUD_CA_PATH"])},
    "validate_certs": {"type": "bool", "default": True},
    "timeout": {"type": "float", "default": 60},
    "cluster": {"type": "str", "required": True},
}


def client(params: dict[str, t.Any]) -> Client:
    """Make a client of the options."""
    missing = [name for name in ("url", "username", "password") if not params.get(name)]
    if missing:
        variables = " and ".join(f"CYCLECLOUD_{name.upper()}" for name in missing)
        raise CycleCloudError(f"{', '.join(missing)} missing: give them as options or as {variables}")
    certificates = {"ca_path": params.get("ca_path"), "validate_certs": params["validate_certs"]}
    return Client(params["url"], params["username"], params["password"], timeout=params["timeout"], **certificates)
