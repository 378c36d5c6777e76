# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts answered is what benchmarks/control_host.py has them answer again."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleConnectionFailure
from callback import answers

SENT = b"...\nif __name__ == '__main__':\n    _ansiballz_main(zip_data='UEsD',\n        ansible_module='%s',\n"
NODE_INFO = SENT % b"ansible_collections.hpcai.gpu_cluster.plugins.modules.node_info"


class Connection:
    """One of Ansible's to a host."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get_option(self, name: str) -> str:
        assert name == "host"
        return self.address


def known(folder: Path, hosts: dict[str, tuple[str, str]]) -> answers.Answers:
    (folder / "hosts.json").write_text(json.dumps(hosts))
    return answers.Answers(folder)


def test_a_module_is_known_by_what_is_sent() -> None:
    assert answers.module_of(NODE_INFO) == "node_info"
    assert answers.module_of(SENT % b"async_status") == "async_status"
    assert answers.module_of(None) == answers.module_of(b"") == "command"


def test_further_hosts_answer_as_the_last_one_by_their_own_names(tmp_path: Path) -> None:
    told = iter([(0, b'{"node": "c2 at 10.0.0.2", "digest": "ac2"}', b""), (1, b"", b"no")])
    kept = answers.keeping(known(tmp_path, {"10.0.0.2": ("c2", "c2")}), lambda *dummy: next(told))
    asked: tuple[t.Any, ...] = (Connection("10.0.0.2"), "python3", NODE_INFO)
    assert kept(*asked)[0] == 0 and kept(*asked) == (1, b"", b"no")
    assert (tmp_path / "c2.jsonl").stat().st_mode & 0o777 == 0o600
    both = known(tmp_path, {"10.0.0.2": ("c2", "c2"), "10.0.0.9": ("c9", "c2")})
    given = answers.giving(both)
    asked = (Connection("10.0.0.9"), "python3", NODE_INFO)
    assert given(*asked) == (0, b'{"node": "c9 at 10.0.0.9", "digest": "ac2"}', b"")
    assert given(*asked) == (1, b"", b"no")
    with pytest.raises(AnsibleConnectionFailure, match=r"node_info is run on c9 for the 3\. time, and c2"):
        given(*asked)
    assert given(Connection("10.0.0.2"), "python3", NODE_INFO)[0] == 0
    assert both.unasked() == ["c2 node_info 1 times in place of 2"]
