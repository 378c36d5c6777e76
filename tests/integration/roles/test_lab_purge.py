# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lab_purge takes away: the images that the lab built, and nothing that somebody keeps beside them."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "bookworm-0123456789ab"


def purge(directory: Path) -> str:
    variables = {
        "lab_machines_state": "absent",
        "lab_machines_purge": True,
        "lab_machines_state_dir": str(directory / "lab"),
        "lab_machines_cache_dir": str(directory / "images"),
    }
    tasks = [{"name": "Purge", "ansible.builtin.include_role": {"name": "lab_machines"}}]
    return play_here(directory, tasks, variables, ANSIBLE_ROLES_PATH=str(ROOT / "lab/roles")).stdout


def images(directory: Path) -> Path:
    place = directory / "images"
    (place / IMAGE).mkdir(parents=True)
    (place / IMAGE / "root.img").write_text("an image")
    (place / "accelerator.json").write_text("{}")
    return place


def test_hidden_files_of_somebody_are_kept(tmp_path: Path) -> None:
    """A directory of images may be a home: its .ssh was deleted with it, as nothing that is seen was left in it."""
    place = images(tmp_path)
    (place / ".ssh").mkdir()
    (place / ".ssh" / "id_ed25519").write_text("a key")
    purge(tmp_path)
    assert [path.name for path in place.iterdir()] == [".ssh"]
    assert (place / ".ssh" / "id_ed25519").read_text() == "a key"


def test_a_directory_of_nothing_but_images_goes(tmp_path: Path) -> None:
    place = images(tmp_path)
    purge(tmp_path)
    assert not place.exists()
    assert "changed=0" in purge(tmp_path)


@pytest.mark.skipif(not shutil.which("podman"), reason="podman is not installed")
def test_an_image_that_somebody_built_from_a_node_s_is_kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It inherits the label of the image that it was built from."""
    tmp_path = tmp_path_factory.mktemp("p")  # podman wants a run directory of at most 50 characters

    def podman(*words: str) -> str:
        storage = [f"--root={tmp_path}/root", f"--runroot={tmp_path}/run", "--storage-driver=vfs"]
        done = subprocess.run(["podman", *storage, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with tarfile.open(tmp_path / "root.tar", "w") as archive:
        archive.add(__file__, "file")
    (tmp_path / "Containerfile").write_text(f"FROM localhost/hpcai-lab-node:{IMAGE}\nLABEL owner=anna\n")
    label = "--change=LABEL hpcai.lab.image=x"
    ours = podman("import", "-q", label, str(tmp_path / "root.tar"), f"localhost/hpcai-lab-node:{IMAGE}")
    podman("build", "-q", "-t", "localhost/annas:1", "-f", str(tmp_path / "Containerfile"), str(tmp_path))
    tasks = yaml.safe_load((ROOT / "lab/roles/lab_nodes/tasks/absent.yml").read_text())
    purging = next(task for task in tasks if task["name"].endswith("images of the nodes"))["block"]
    dummy, *words = purging[0]["ansible.builtin.command"]["argv"]
    values = {
        "{{ __lab_nodes_image_label }}": "hpcai.lab.image",
        "{{ __lab_nodes_image | regex_replace(':[^:]*$', '') }}": "localhost/hpcai-lab-node",
    }
    for template, value in values.items():
        words = [word.replace(template, value) for word in words]
    assert podman(*words).split() == [ours if ours.startswith("sha256:") else f"sha256:{ours}"]
