# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles on a shared directory where everybody may write, and a user who was there before them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
MALLORY = 65534
OWNER = "daemon"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users need root")

# The directory of each role below the shared one, whose it is to be, the tasks that make it, and what they need.
ROLES: dict[str, tuple[str, str, str, dict[str, t.Any]]] = {
    "certification": ("certification", OWNER, "directory", {"certification_user": OWNER}),
    "training_job": (
        "job",
        OWNER,
        "directory",
        {"training_job_user": OWNER, "training_job_dir": "{{ cluster_shared_dir }}/job"},
    ),
    "checkpoint_upload": ("checkpoint_upload", OWNER, "directory", {"checkpoint_upload_owner": OWNER}),
    "nccl_examples": ("examples", "root", "main", {"nccl_examples_gpus_per_node": 8}),
    "slurm_power": (
        "bundles",
        "root",
        "share",
        {
            "slurm_power_bundle": str(ROOT / "galaxy.yml"),
            "slurm_power_bundle_dir": "{{ cluster_shared_dir }}/bundles",
            "slurm_power_bundle_mode": "0644",
            "slurm_power_munge_key_file": "",
        },
    ),
    "container_images": ("images", OWNER, "images", {"container_images_user": OWNER, "__container_images_present": []}),
    "pytorch": (
        "pytorch",
        OWNER,
        "packages",
        {"pytorch_owner": OWNER, "__pytorch_texts": {}, "pytorch_wheelhouse": False},
    ),
    "training_extras": ("training_extras", OWNER, "bring", {"training_extras_owner": OWNER}),
    "apex": ("wheels", OWNER, "bring", {"apex_owner": OWNER, "apex_staging_dir": "{{ cluster_shared_dir }}/staging"}),
    "opt_benchmark": (
        "opt",
        OWNER,
        "main",
        {
            "opt_benchmark_user": OWNER,
            "opt_benchmark_dir": "{{ cluster_shared_dir }}/opt",
        },
    ),
    "node_health_check": (
        "mail",
        OWNER,
        "reconcile",
        {
            "node_health_check_mailbox": "{{ cluster_shared_dir }}/mail",
            "node_health_check_mailbox_user": OWNER,
        },
    ),
}
# Those whose tasks change nothing else of a host. The others are run in check mode, which refuses the same.
WHOLE = ("certification", "training_job", "checkpoint_upload", "nccl_examples", "slurm_power", "container_images")


class Share:
    """A shared directory beside one of root's that nobody else may have."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.path, self.victim, self.home = folder / "shared", folder / "etc", home
        self.victim.mkdir()
        (self.victim / "shadow").write_text("secret")
        self.path.mkdir()
        self.path.chmod(0o1777)
        (self.path / "staging").mkdir(mode=0o755)

    def of_mallory(self, path: Path) -> None:
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)

    def play(self, names: t.Sequence[str], *options: str) -> tuple[dict[str, str], int]:
        """Run the tasks of roles; return why each failed, empty where it did not, and how many changes there were."""
        tasks: list[t.Any] = []
        for name in names:
            dummy, dummy, part, variables = ROLES[name]
            role: dict[str, t.Any] = {"include_role": {"name": f"hpcai.gpu_cluster.{name}", "tasks_from": part}}
            if name == "slurm_power":  # with it would come the role slurm, which installs packages
                role = {"include_tasks": str(ROOT / f"roles/{name}/tasks/{part}.yml")}
            role["vars"] = variables
            why = {
                "set_fact": {f"why_{name}": "{{ ansible_failed_result.msg | default(ansible_failed_result | string) }}"}
            }
            tasks.append({"block": [role], "rescue": [why]})
        said = {name: f"{{{{ why_{name} | default('') }}}}" for name in names}
        tasks.append({"debug": {"msg": said}})
        given = {
            "cluster_shared_dir": str(self.path),
            "cluster_name": "lab",
            "cluster_sku": "generic",
        }
        done = play_here(self.home, tasks, given, *options, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.json")
        result = json.loads(done.stdout[done.stdout.index("{") :])
        last = result["plays"][0]["tasks"][-1]["hosts"]["localhost"]["msg"]
        return last, result["stats"]["localhost"]["changed"]

    def untouched(self) -> bool:
        """Say whether root's directory is as it was."""
        status, names = self.victim.stat(), sorted(path.name for path in self.victim.iterdir())
        return (status.st_uid, stat.S_IMODE(status.st_mode), names) == (0, 0o755, ["shadow"])


@pytest.fixture
def share(tmp_path: Path) -> t.Iterator[Share]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield Share(folder, tmp_path)
    shutil.rmtree(folder)


def missed(refused: dict[str, str], reason: str) -> dict[str, str]:
    """Return what roles said instead of the reason for which they had to refuse."""
    return {name: text for name, text in refused.items() if reason not in text}


def test_no_role_follows_a_users_link_to_a_directory_of_root(share: Share) -> None:
    for name, *_rest in ROLES.values():
        (share.path / name).symlink_to(share.victim)
        share.of_mallory(share.path / name)
    reason = "is a symbolic link of nobody (uid 65534)"
    assert not missed(share.play(WHOLE)[0], reason)
    assert share.untouched()
    assert not missed(share.play(list(ROLES), "--check")[0], reason)


def test_no_role_puts_anything_into_a_directory_that_a_user_made_first(share: Share) -> None:
    for name, *_rest in ROLES.values():
        (share.path / name).mkdir()
        share.of_mallory(share.path / name)
    reason = "belongs to nobody (uid 65534)"
    assert not missed(share.play(WHOLE)[0], reason)
    for name, *_rest in ROLES.values():
        assert not list((share.path / name).iterdir())
        assert (share.path / name).owner() == "nobody"
    assert not missed(share.play(list(ROLES), "--check")[0], reason)


def test_on_a_sound_share_check_mode_tells_what_is_made_and_the_second_run_changes_nothing(share: Share) -> None:
    for options, changes in ((["--check"], True), ([], True), (["--check"], False), ([], False)):
        refused, changed = share.play(WHOLE, *options)
        assert not any(refused.values()), refused
        assert bool(changed) == changes, (options, changed)
    for name in WHOLE:
        folder, owner = share.path / ROLES[name][0], ROLES[name][1]
        assert (folder.owner(), folder.lstat().st_mode & 0o022) == (owner, 0), name
    assert (share.path / "certification/hpcai-agent.pyz").owner() == OWNER
    assert stat.S_IMODE((share.path / "examples/logs").stat().st_mode) == 0o1777


def test_names_are_reserved_below_mounts_alone_and_a_directory_that_is_there_stays_as_it_is(share: Share) -> None:
    files = [f"{ROOT}/roles/shared_storage/{name}/main.yml" for name in ("defaults", "vars")]
    tasks: list[t.Any] = [{"include_vars": file} for file in files]
    tasks.append({"hpcai.gpu_cluster.trusted_directory": {"directories": "{{ __shared_storage_reserved }}"}})
    given = {
        "cluster_shared_dir": str(share.path),
        "certification_user": OWNER,
        "training_job_user": OWNER,
        "shared_storage_mounts": [{"path": f"{share.path}/", "type": "existing"}],
        "more": [{"path": str(share.victim / "new")}],
        "shared_storage_directories": "{{ __shared_storage_own + more }}",
    }
    (share.path / "pytorch").mkdir()
    share.of_mallory(share.path / "pytorch")
    play_here(share.home, tasks, given)
    owners = {
        str(path.relative_to(share.path)): path.owner() for path in share.path.rglob("*") if path.name != "staging"
    }
    assert owners.pop("pytorch") == "nobody"
    assert {owners.pop(name) for name in ("certification", f"training/{OWNER}")} == {OWNER}
    roots = (".hpcai", "checkpoint_upload", "examples", "hpcai", "images", "training", "training_extras", "wheels")
    assert owners == dict.fromkeys(roots, "root")
    assert share.untouched()
