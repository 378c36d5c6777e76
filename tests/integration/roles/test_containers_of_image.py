# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that configures itself takes enroot and pyxis as its image has them: nothing is fetched, nothing built."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ansible_playbook import play_here


def install(role: str) -> dict[str, object]:
    return {"ansible.builtin.include_role": {"name": f"hpcai.gpu_cluster.{role}", "tasks_from": "install"}}


def test_an_image_without_enroot_is_refused_with_the_way_to_bake_it(tmp_path: Path) -> None:
    if shutil.which("enroot"):
        pytest.skip("this machine has enroot")
    done = play_here(tmp_path, [install("enroot")], {"enroot_origin": "image"}, fails=True)
    assert "Bake it in (image.yml with cluster_containers: true)" in done.stdout, done.stdout


def test_pyxis_of_the_image_needs_no_filter_of_another_collection_and_installs_nothing(tmp_path: Path) -> None:
    given = {"pyxis_origin": "image", "pyxis_plugin": str(tmp_path / "spank_pyxis.so")}
    # As on a node: a filter that is not there is an error as soon as something reads it.
    done = play_here(tmp_path, [install("pyxis")], given, ANSIBLE_COLLECTIONS_PATH=str(only_ours(tmp_path)))
    assert "changed=0" in done.stdout, done.stdout


def only_ours(directory: Path) -> Path:
    ours = Path(__file__).resolve().parents[3] / ".build/collections/ansible_collections/hpcai"
    (directory / "collections/ansible_collections").mkdir(parents=True)
    (directory / "collections/ansible_collections/hpcai").symlink_to(ours)
    return directory / "collections"
