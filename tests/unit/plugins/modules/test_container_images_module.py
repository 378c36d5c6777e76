# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules container_image and container_staging as processes."""

from __future__ import annotations

import hashlib
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_staging, image_store
from ansible_collections.hpcai.gpu_cluster.plugins.modules import container_image, container_staging
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import Machine, documented


class Host(Machine):
    module = "container_image"


class Login(Machine):
    module = "container_staging"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    tmp_path.chmod(0o755)
    return Host(tmp_path)


def given(folder: Path) -> dict[str, t.Any]:
    data = b"hsqs" + bytes(92)
    (folder / "given.sqsh").write_bytes(data)
    return {
        "name": "app",
        "source": str(folder / "given.sqsh"),
        "sha256": hashlib.sha256(data).hexdigest(),
        "directory": str(folder / "images"),
    }


@pytest.mark.parametrize(
    ("module", "spec"), [(container_image, image_store.SPEC), (container_staging, image_staging.SPEC)]
)
def test_options_are_documented_as_they_are(module: t.Any, spec: dict[str, t.Any]) -> None:
    assert documented(module) == spec


def test_check_real_check_real(host: Host) -> None:
    params = given(host.folder)
    planned = host(check_mode=True, **params)
    assert planned["changed"]
    assert not (host.folder / "images").exists()
    first = host(**params)
    assert first["changed"]
    assert first["diff"]["before"] == {}
    assert Path(first["image"]["link"]).read_bytes() == (host.folder / "given.sqsh").read_bytes()
    assert not host(check_mode=True, **params)["changed"]
    assert not host(**params)["changed"]
    gone = {"name": "app", "state": "absent", "directory": params["directory"]}
    assert host(check_mode=True, **gone)["changed"]
    assert host(**gone)["changed"]
    assert not host(**gone)["changed"]


def test_bad_input_is_refused(host: Host) -> None:
    params = given(host.folder)
    assert "needs sha256" in host(**{**params, "sha256": ""})["msg"]
    assert "has sha256" in host(**{**params, "sha256": "a" * 64})["msg"]
    assert "source" in host(name="app", directory="/x")["msg"]
    assert list((host.folder / "images").iterdir()) == [host.folder / "images/.lock"]


def test_a_token_in_a_url_is_not_shown(host: Host) -> None:
    where = "https://127.0.0.1:9/a.sqsh?sig=verysecret"
    found = host(**{**given(host.folder), "source": where})
    assert found["failed"]
    assert "verysecret" not in str(found)


def test_a_token_in_a_url_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    module = object.__new__(container_image.Module)
    module.params = {"name": "app", "source": "https://files.example.com/a.sqsh?sig=verysecret"}
    module.argument_spec, module.aliases, module.no_log_values = image_store.SPEC, {}, set()
    monkeypatch.setattr(container_image.Module, "log", lambda dummy, text, **more: said.append(f"{text} {more}"))
    module._log_invocation()
    assert "files.example.com" in said[0] and "verysecret" not in said[0]


def test_staging_without_slurm_is_refused(tmp_path: Path) -> None:
    found = Login(tmp_path)(source="/shared", directory="/scratch/images")
    assert found["failed"]
    assert "salloc" in found["msg"] or "scontrol" in found["msg"]
