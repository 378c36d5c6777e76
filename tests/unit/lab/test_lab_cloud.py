# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's cloud, without containers."""

from __future__ import annotations

import importlib.util
import json
import sys
import typing as t
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[3] / "lab/roles/lab_cloud/files/lab_cloud"
_SPEC = importlib.util.spec_from_file_location("lab_cloud_podman", HERE / "podman.py")
assert _SPEC is not None and _SPEC.loader is not None
cloud = importlib.util.module_from_spec(_SPEC)
sys.modules["lab_cloud_podman"] = cloud
_SPEC.loader.exec_module(cloud)

ITEM: dict[str, t.Any] = {
    "name": "hpcai-lab-e1",
    "hostname": "e1",
    "image": "node:1",
    "command": ["/sbin/init"],
    "state": "started",
    "label": {"hpcai.lab": "lab"},
    "network": ["hpcai-lab"],
    "ip": "10.213.0.221",
    "no_hosts": True,
    "cmd_args": ["--runtime", "runc"],
    "stop_signal": 37,
    "env": {"container": "podman"},
    "tmpfs": {"/run": "rw"},
    "volume": ["/a:/b"],
}


@pytest.fixture
def instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Any:
    (tmp_path / "cloud").mkdir()
    (tmp_path / "elastic.json").write_text(json.dumps({"label": "hpcai.lab=lab", "instances": [ITEM]}))
    there = [{"Names": ["hpcai-lab-e1"], "State": "running", "Labels": {"hpcai.cluster": "other"}}]
    monkeypatch.setattr(cloud, "podman", lambda *argv: json.dumps(there) if argv[0] == "ps" else pytest.fail(argv[0]))
    return cloud.Instances(tmp_path / "cloud")


def test_a_description_becomes_a_command_line() -> None:
    assert cloud.arguments(ITEM, ["/c:/d:ro"], ["x=y"]) == [
        *["--runtime", "runc", "create", "--stop-signal=37", "--no-hosts", "--network=hpcai-lab", "--ip=10.213.0.221"],
        *["--hostname=e1", "--name=hpcai-lab-e1", "--volume=/a:/b", "--volume=/c:/d:ro", "--env=container=podman"],
        *["--label=hpcai.lab=lab", "--tmpfs=/run:rw", "--label=x=y", "node:1", "/sbin/init"],
    ]


def test_what_is_not_understood_is_refused() -> None:
    with pytest.raises(cloud.CloudError, match="gpus of hpcai-lab-e1"):
        cloud.arguments({**ITEM, "gpus": "all"}, [], [])


@pytest.mark.parametrize(
    ("name", "cluster", "script", "status"),
    [
        ("e9", "lab", "#!/bin/sh\n", 404),
        ("e1", "lab", "#!/bin/sh\n", 409),
        ("e1", "LAB", "#!/bin/sh\n", 400),
        ("e1", "lab", "echo", 400),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    instances: t.Any, name: str, cluster: str, script: str, status: int
) -> None:
    with pytest.raises(cloud.CloudError) as caught:
        instances.create(name, cluster, script)
    assert caught.value.status == status


def test_another_cluster_s_instance_is_not_removed(instances: t.Any) -> None:
    with pytest.raises(cloud.CloudError) as caught:
        instances.delete("e1", "lab")
    assert caught.value.status == 409


def test_a_refusal_says_what_it_was_told_to(instances: t.Any) -> None:
    (instances.directory / "faults.json").write_text(json.dumps({"refuse": {"e1": "no room"}}))
    with pytest.raises(cloud.CloudError, match="no room"):
        instances.create("e1", "lab", "#!/bin/sh\n")
