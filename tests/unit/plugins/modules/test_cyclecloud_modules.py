# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from types import ModuleType

import pytest
from ansible.module_utils import basic

from ansible_collections.hpcai.gpu_cluster.plugins.modules import (
    cyclecloud_cluster_info,
    cyclecloud_nodes,
    cyclecloud_nodes_info,
)
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import documented

MODULES = [cyclecloud_cluster_info, cyclecloud_nodes, cyclecloud_nodes_info]
Json = t.Dict[str, t.Any]


@pytest.mark.parametrize("module", MODULES)
def test_what_is_documented_is_what_is_taken(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: Json = {}

    def remember(dummy: t.Any, argument_spec: Json, **more: t.Any) -> None:
        taken.update(argument_spec)
        raise SystemExit

    monkeypatch.setattr(basic.AnsibleModule, "__init__", remember)
    with pytest.raises(SystemExit):
        module.main()
    keys = ("type", "default", "choices", "elements", "required")
    assert {name: {k: one[k] for k in keys if k in one} for name, one in taken.items()} == {
        name: {k: one[k] for k in keys if k in one} for name, one in documented(module).items()
    }


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> t.Callable[..., Json]:
    def run(module: ModuleType, **params: t.Any) -> Json:
        for name in ("URL", "USERNAME", "PASSWORD", "CA_PATH"):
            monkeypatch.delenv(f"CYCLECLOUD_{name}", raising=False)
        arguments = {"ANSIBLE_MODULE_ARGS": {"cluster": "c1", **params}}
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(arguments).encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)  # since ansible-core 2.19
        with pytest.raises(SystemExit):
            module.main()
        return t.cast(Json, json.loads(capsys.readouterr().out))

    return run


@pytest.mark.parametrize("module", MODULES)
def test_missing_credentials_are_named(module: ModuleType, call: t.Callable[..., Json]) -> None:
    found = call(module, **({"names": ["a-1"], "state": "absent"} if module is cyclecloud_nodes else {}))
    assert found["failed"] and "CYCLECLOUD_URL and CYCLECLOUD_USERNAME and CYCLECLOUD_PASSWORD" in found["msg"]


@pytest.mark.parametrize(
    "given, part",
    [
        ({"nodearray": "gpu"}, "names, count"),
        ({"names": ["a-1"]}, "nodearray"),
        ({"state": "absent"}, "names, nodearray"),
    ],
)
def test_what_a_state_needs(given: Json, part: str, call: t.Callable[..., Json]) -> None:
    found = call(cyclecloud_nodes, **given)
    assert found["failed"] and part in found["msg"]
