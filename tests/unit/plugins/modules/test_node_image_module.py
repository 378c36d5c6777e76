# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module node_image as a process, on a directory: check mode, a change, nothing left to do, a refusal."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from module_process import Machine
from stand_in import stand_in

GIVEN = {"collection": "0.1.0", "date": "2026-11-23T08:00:00Z", "packages": ["slurm*"]}


class Module(Machine):
    module = "node_image"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, text in {
        "etc/machine-id": "abc\n",
        "etc/munge/munge.key": "m" * 64,
        "etc/systemd/system/multi-user.target.wants/munge.service": "",
        "lib/systemd/system/munge.service": "",
        "var/lib/dpkg/status": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def module(tmp_path: Path, root: Path) -> Module:
    made = Module(tmp_path / "module")
    made.environment = {"ROOT": str(root)}
    stand_in(made.bin / "dpkg-query", "dpkg_query.sh")
    stand_in(made.bin / "systemctl", "systemctl_root.sh")
    return made


def state(root: Path) -> list[tuple[str, bytes]]:
    return sorted(
        (str(path), path.read_bytes()) for path in root.rglob("*") if path.is_file() and not path.is_symlink()
    )


def test_check_mode_tells_what_the_run_does_and_the_next_run_does_nothing(module: Module, root: Path) -> None:
    before = state(root)
    would = module(check_mode=True, root=str(root), **GIVEN)
    assert state(root) == before
    done = module(root=str(root), **GIVEN)
    for key in ("changed", "image", "removed", "emptied", "disabled", "diff"):
        assert would[key] == done[key], key
    assert (done["removed"], done["emptied"], done["disabled"]) == (
        ["/etc/munge/munge.key"],
        ["/etc/machine-id"],
        ["munge"],
    )
    assert json.loads((root / "etc/hpcai/image.json").read_text()) == done["image"]
    assert done["image"]["packages"] == {"slurmd": "22.05.8-4+deb12u3"} and done["image"]["slurm"] == "22.05.8"
    again = module(root=str(root), **{**GIVEN, "date": "2027-01-01T00:00:00Z"})
    assert again["changed"] is False and again["image"] == done["image"]


def test_nothing_of_this_machine_is_touched_for_the_image_of_another(module: Module, root: Path) -> None:
    """A mounted file system has no services that run, and this machine is not switched off."""
    assert module(root=str(root), power_off=True, **GIVEN)["changed"]
    assert (root / "calls").read_text() == f"--root={root} disable munge\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("root/.netrc", "/root/.netrc holds credentials; remove it there, or name it in remove or keep"),
        ("etc/slurm/slurm.conf", "it is a part of a cluster: /etc/slurm/slurm.conf is the configuration of Slurm"),
        ("etc/hpcai/image.json", "/etc/hpcai/image.json cannot be read"),
    ],
)
def test_a_refusal_names_the_path_and_changes_nothing(module: Module, root: Path, path: str, said: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("machine example login me password geheim\n")
    before = state(root)
    done: dict[str, t.Any] = module(root=str(root), **GIVEN)
    assert done["failed"] and said in done["msg"] and "geheim" not in json.dumps(done)
    assert state(root) == before
