# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role makes of a list of mounts."""

from __future__ import annotations

from pathlib import Path

from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
MOUNTS = [
    {"path": "/old", "type": "nfs", "state": "absent"},
    {"path": "/amlfs", "type": "existing", "state": "absent"},
    {"path": "/sched", "type": "existing"},
    {"path": "/data/a_b", "type": "cifs", "source": "//files/a"},
    {"path": "/data-a-b", "type": "cifs", "source": "//files/b"},
]


def test_mounts_of_others_are_not_taken_away_and_no_two_share_credentials(tmp_path: Path) -> None:
    names = {"loop": "{{ __shared_storage_paths }}", "loop_control": {"loop_var": "__shared_storage_path"}}
    file = "{{ __shared_storage_credentials_file }}"
    told = [
        {"ansible.builtin.include_vars": str(ROOT / "roles/shared_storage/vars/main.yml")},
        {"ansible.builtin.copy": {"content": "{{ __shared_storage_path }}\n", "dest": file, "mode": "0600"}, **names},
    ]
    given = {
        "shared_storage_mounts": MOUNTS,
        "shared_storage_credentials_dir": str(tmp_path / "files"),
    }
    (tmp_path / "files").mkdir()
    play_here(tmp_path, told, given)
    made = {path.name: path.read_text().strip() for path in (tmp_path / "files").iterdir()}
    assert made == {
        "-old": "/old",
        "-sched": "/sched",
        "-data-a__b": "/data/a_b",
        "-data_-a_-b": "/data-a-b",
    }
