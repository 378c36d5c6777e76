# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lab_purge takes away: the images that the lab built, and nothing that somebody keeps beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "bookworm-0123456789ab"


def purge(directory: Path) -> str:
    variables = {
        "ansible_python_interpreter": sys.executable,
        "lab_machines_state": "absent",
        "lab_machines_purge": True,
        "lab_machines_state_dir": str(directory / "lab"),
        "lab_machines_cache_dir": str(directory / "images"),
    }
    tasks = [{"name": "Purge", "ansible.builtin.include_role": {"name": "hpcai.gpu_cluster.lab_machines"}}]
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}
    (directory / "play.json").write_text(json.dumps([play]))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local", "play.json"],
        cwd=directory,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "HPCAI_REPORT_DIR": str(directory / "report"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
