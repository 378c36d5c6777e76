# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each role by itself, in a playbook of somebody who gives it nothing: it asks for what it needs, or goes to its host.

No host can be reached: a connection that refuses is the end of a role that has its inputs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.parents[1].name for path in (ROOT / "roles").glob("*/meta/main.yml"))
CONNECTION = '''
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: refused
short_description: Reaches no host
description: Reaches no host.
author: nobody
"""


class Connection(ConnectionBase):
    transport = "refused"

    def _connect(self):
        raise AnsibleConnectionFailure("no way to this host")

    def exec_command(self, *args, **kwargs):
        self._connect()

    put_file = fetch_file = exec_command

    def close(self):
        pass
'''
FACTS = {
    "ansible_all_ipv4_addresses": ["192.0.2.7"],
    "ansible_architecture": "x86_64",
    "ansible_distribution": "Debian",
    "ansible_distribution_major_version": "12",
    "ansible_fqdn": "node.example.org",
    "ansible_hostname": "node",
    "ansible_memtotal_mb": 64000,
}
PLAY = [
    {
        "hosts": "all:!localhost",
        "gather_facts": False,
        # Each role goes its own way, however the others end.
        "strategy": "ansible.builtin.free",
        "tasks": [
            {"ansible.builtin.set_fact": {**FACTS, "cacheable": True}, "when": "facts"},
            {"ansible.builtin.include_role": {"name": "hpcai.gpu_cluster.{{ role }}"}},
        ],
    }
]
CALLBACK = '''
import json

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: ends
type: aggregate
short_description: Writes how each host ended
description: Writes how each host ended.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "ends"

    def _end(self, result, kind):
        line = {"host": result._host.get_name(), "kind": kind, "msg": str(result._result.get("msg")),
                "task": result._task.get_name()}
        with open("ends.json", "a") as out:
            out.write(json.dumps(line) + "\\n")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._end(result, "failed")

    def v2_runner_on_unreachable(self, result):
        self._end(result, "unreachable")
'''


def needs_facts(role: str) -> bool:
    """Whether the role, or one that it depends on, has facts gathered."""
    meta = yaml.safe_load((ROOT / "roles" / role / "meta/main.yml").read_text())
    names = [entry["role"] if isinstance(entry, dict) else entry for entry in meta["dependencies"]]
    own = [name.rpartition(".")[2] for name in names]
    return "host_facts" in own or any(needs_facts(name) for name in own)


# Those that stand on facts, and what they have to be given to come so far that they need one.
SLURM = {"slurm_cluster_name": "lab", "slurm_controller_hosts": ["ctl"], "slurm_node_hosts": []}
WITHOUT_FACTS: dict[str, dict[str, t.Any]] = {role: {} for role in ROLES if needs_facts(role)}
WITHOUT_FACTS.update(dict.fromkeys(("slurm_controller", "slurm_database", "slurm_login"), SLURM))


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """How each role ended, called once with facts, and without any where it needs some."""
    place = tmp_path_factory.mktemp("stranger")
    for name, text in {"connection/refused.py": CONNECTION, "callback/ends.py": CALLBACK}.items():
        (place / name).parent.mkdir()
        (place / name).write_text(text)
    hosts = {role: {"role": role, "facts": True} for role in ROLES}
    hosts.update({f"{role}-bare": {"role": role, "facts": False, **given} for role, given in WITHOUT_FACTS.items()})
    inventory = {"all": {"hosts": {**hosts, "localhost": {}}, "vars": {"ansible_connection": "refused"}}}
    (place / "hosts.json").write_text(json.dumps(inventory))
    (place / "play.json").write_text(json.dumps(PLAY))
    settings = {"connection_plugins": place / "connection", "callback_plugins": place / "callback", "forks": 2}
    settings.update({"collections_path": ROOT / ".build/collections", "callbacks_enabled": "ends"})
    lines = [f"{name} = {value}" for name, value in settings.items()]
    (place / "ansible.cfg").write_text("\n".join(["[defaults]", *lines, ""]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCAI_"))}
    environment.update(HOME=str(place), ANSIBLE_CONFIG=str(place / "ansible.cfg"))
    command = [sys.executable, "-m", "ansible.cli.playbook", "--check", "-i", "hosts.json", "play.json"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert (place / "ends.json").exists(), done.stdout + done.stderr
    entries = [json.loads(line) for line in (place / "ends.json").read_text().splitlines()]
    return {entry["host"]: entry for entry in entries}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_was_given_nothing_says_what_it_needs_or_reaches_for_its_host(
    ends: dict[str, dict[str, str]], role: str
) -> None:
    end = ends.get(role)
    if end is None or end["kind"] == "unreachable":
        return  # it needs nothing that has no default
    assert not re.search(r"is undefined|has no (attribute|element)|missing required arguments", end["msg"]), end
    assert re.search(rf"\b({role}|cluster|slurm)_[a-z]", end["msg"]), end
    assert re.search(r"\bRole \w+ needs |\brole \w+ needs |: cluster_\w+ is missing", end["msg"]), end


@pytest.mark.parametrize("role", WITHOUT_FACTS)
def test_a_role_that_stands_on_facts_gathers_those_that_the_play_did_not(
    ends: dict[str, dict[str, str]], role: str
) -> None:
    end = ends[f"{role}-bare"]
    assert (end["kind"], end["task"]) == (
        "unreachable",
        "hpcai.gpu_cluster.host_facts : Gather the facts that the play did not gather",
    )


def test_the_walk_would_see_a_role_that_does_not_say_what_it_needs(ends: dict[str, dict[str, str]]) -> None:
    asked = {host for host, end in ends.items() if end["kind"] == "failed"}
    assert {"munge", "preflight", "pytorch", "slurm_compute", "slurm_controller", "user_account"} <= asked
