# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Packer template is whole, and Packer itself accepts it where there is one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
TEMPLATE = PLAYBOOKS / "image.pkr.json"
# The oldest that Packer reads with HCL2's meaning, and the last without plugins to be fetched.
BUNDLED = (1, 7)
PACKER = shutil.which("packer")


def once(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    """JSON keeps the last of two keys, Packer refuses them."""
    assert len({name for name, dummy in pairs}) == len(pairs), [name for name, dummy in pairs]
    return dict(pairs)


@pytest.fixture(scope="module")
def template() -> dict[str, t.Any]:
    found: dict[str, t.Any] = json.loads(TEMPLATE.read_text(encoding="utf-8"), object_pairs_hook=once)
    return found


def test_every_variable_is_used_described_and_typed(template: dict[str, t.Any]) -> None:
    rest = json.dumps({name: value for name, value in template.items() if name != "variable"})
    assert set(re.findall(r"\bvar\.(\w+)", rest)) == set(template["variable"])
    for name, variable in template["variable"].items():
        assert variable["type"] in ("string", "number", "list(string)") and variable["description"].endswith("."), name


def test_only_what_every_build_needs_has_no_default(template: dict[str, t.Any]) -> None:
    assert [name for name, variable in template["variable"].items() if "default" not in variable] == ["inventory"]


def test_every_machine_is_built_and_has_its_plugin(template: dict[str, t.Any]) -> None:
    sources = {f"source.{kind}.{name}" for kind, named in template["source"].items() for name in named}
    assert set(template["build"]["sources"]) == sources
    used = {source.split(".")[1].partition("-")[0] for source in sources} | {"ansible"}
    assert set(template["packer"]["required_plugins"]) == used
    limited = [
        name for entry in template["build"]["provisioner"] for one in entry.values() for name in one.get("only", [])
    ]
    assert {f"source.{name}" for name in limited} <= sources


def test_the_playbook_bakes_the_machine_that_packer_made_and_leaves_it_running(template: dict[str, t.Any]) -> None:
    ansible = template["build"]["provisioner"][0]["ansible"]
    playbook = Path(ansible["playbook_file"].replace("${path.root}", str(PLAYBOOKS)))
    plays = yaml.safe_load(playbook.read_text(encoding="utf-8"))
    assert ansible["groups"] == ["image"] and "image" in [play.get("hosts", "").partition(":")[0] for play in plays]
    # A machine that switches itself off ends Packer's connection, and the build with it.
    assert ansible["extra_arguments"] == ["-e", "image_power_off=false"]


@pytest.mark.skipif(PACKER is None, reason="there is no packer")
def test_packer_accepts_it(template: dict[str, t.Any], tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CHECKPOINT_DISABLE": "1",
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    shown = subprocess.run([PACKER, "version"], capture_output=True, text=True, check=True, env=environment).stdout
    version = tuple(map(int, re.findall(r"\d+", shown)[:2]))
    text = {name: value for name, value in template.items() if name != "packer" or version >= BUNDLED}
    (tmp_path / TEMPLATE.name).write_text(json.dumps(text))
    for name in ("image.yml", "user-data", "meta-data", "disk.qcow2"):
        (tmp_path / name).touch()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    given = {
        "inventory": str(tmp_path),
        "qemu_source": str(tmp_path / "disk.qcow2"),
        "qemu_seed": json.dumps([str(tmp_path / "user-data"), str(tmp_path / "meta-data")]),
        "qemu_key": str(tmp_path / "key"),
    }
    variables = [word for name, value in given.items() for word in ("-var", f"{name}={value}")]
    # Plugins are fetched from the Internet; with those that Packer brings, their options are checked as well.
    how = ["-only=qemu.node"] if version < BUNDLED else ["-syntax-only"]
    done = subprocess.run(
        [PACKER, "validate", *how, *variables, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
