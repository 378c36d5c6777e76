# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to hosts that do not exist: the first question of a run is answered with facts, all else is refused."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = r"""
name: known
short_description: Facts from the JSON file that KNOWN_FACTS names
description: For tests.
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
options:
  host:
    description: The host of the inventory.
    default: inventory_hostname
    vars: [{name: inventory_hostname}]
"""
NODE = {"packages": [], "services": {}, "slurm": "", "files": {}, "users": {}, "ids": []}


class Connection(ConnectionBase):
    """Answers module node_info, and nothing but it."""

    transport = "known"
    has_pipelining = True

    def _connect(self) -> Connection:
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        facts = json.loads(Path(os.environ["KNOWN_FACTS"]).read_text()).get(self.get_option("host"))
        if facts is None or b"hpcai.gpu_cluster.plugins.modules.node_info" not in (in_data or b""):
            raise AnsibleConnectionFailure(f"could not connect to host {self.get_option('host')}")
        return 0, json.dumps({"changed": False, "ansible_facts": facts, **NODE}).encode(), b""

    def put_file(self, in_path: str, out_path: str) -> t.NoReturn:
        raise AnsibleConnectionFailure("could not connect to host")

    fetch_file = put_file

    def close(self) -> None:
        pass
