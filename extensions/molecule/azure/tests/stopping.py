# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The five faults that would have stopped the real thing: put back into a copy of the tree, each ends the journey.

`make azure-faults FAULT=stopping`. Why each is one: docs/testing.md.
"""

from __future__ import annotations

import contextlib
import shutil
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
LINKS = ("galaxy.yml", "meta", "lab", "playbooks", "plugins", "roles", "extensions", "tests", "README.md", "changelogs")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build")


class Edit(t.NamedTuple):
    """What stands in a file now, once, and what stood there when the fault was in it."""

    path: str
    now: str
    before: str


class Stopping(t.NamedTuple):
    """A fault, and what the run that it ends says."""

    edits: list[Edit]
    told: str
    scheduled: bool = False  # the job of a scheduled teardown, in place of site.yml


SITE = "plugins/module_utils/cyclecloud/site.py"
EXPIRE = "plugins/module_utils/azure/expire.py"
RESUME = """\
- name: Have Slurm create the nodes that are wanted
  ansible.builtin.import_playbook: elastic_steps/resume.yml
"""
STOPPING = {
    "command line unpacked without its modes, and started by sh": Stopping(
        [
            Edit(
                SITE,
                'unpacked = _process.run(["unzip", "-q", str(self.archive), "-d", directory], 300)',
                'unpacked = _process.run(["python3", "-m", "zipfile", "-e", str(self.archive), directory], 300)',
            ),
            Edit(SITE, '"./install.sh", "--system"]', '"sh", "install.sh", "--system"]'),
        ],
        r"the command line is not installed",
    ),
    "template without launch_parameters": Stopping(
        [
            Edit(
                "roles/cyclecloud_cluster/templates/slurm.txt.j2",
                "    slurm.launch_parameters = $configuration_slurm_launch_parameters\n",
                "",
            )
        ],
        r"slurmctld failed to start.*LaunchParameters=",
    ),
    "Slurm project pinned to one that the server has not": Stopping(
        [
            Edit(
                "plugins/module_utils/cyclecloud/slurm_project.py",
                "    if not needed(request):\n        return SlurmProject()\n",
                '    return SlurmProject("4.0.9", "25.11.5")\n',
            )
        ],
        r"cyclecloud/slurm:default:4\.0\.9",
    ),
    "nobody powers the nodes up": Stopping(
        [
            Edit("playbooks/certify.yml", f"{RESUME}  vars: {{run_stage: certify}}\n", ""),
            Edit("playbooks/train.yml", f"{RESUME}  vars: {{run_stage: train}}\n", ""),
        ],
        r"cluster_nodes wants 3 nodes, and nobody had Slurm create them",
    ),
    "the scheduled teardown asks for what its identity may not read": Stopping(
        [
            Edit(EXPIRE, "        self.delete_groups([", "        self.clean(plan)\n        self.delete_groups(["),
            Edit(
                EXPIRE,
                'self.tell(f"Role assignments of {principal} are not looked for, destroy.yml deletes them: {exc}")\n',
                "raise\n",
            ),
        ],
        r"AuthorizationFailed",
        scheduled=True,
    ),
}


@contextlib.contextmanager
def put_back(fault: Stopping) -> t.Iterator[Path]:
    """Have a copy of the tree with a fault in it."""
    tree = ROOT / ".build/azure-faults"
    shutil.rmtree(tree, ignore_errors=True)
    place = tree / ".build/collections/ansible_collections/hpcai/gpu_cluster"
    place.mkdir(parents=True)
    for name in LINKS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, tree / name)
        (place / name).symlink_to(tree / name)
    shutil.copy(ROOT / "ansible.cfg", tree / "ansible.cfg")
    for edit in fault.edits:
        with_fault(tree, edit)
    try:
        yield tree
    finally:
        shutil.rmtree(tree)


def with_fault(tree: Path, edit: Edit) -> None:
    path = tree / edit.path
    text = path.read_text()
    if text.count(edit.now) != 1:
        raise ValueError(f"{edit.path} does not have once what the fault was in place of: {edit.now!r}")
    path.write_text(text.replace(edit.now, edit.before))
