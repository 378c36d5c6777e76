# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user of the cluster who is before root on a shared directory where everybody may write."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from cluster_lab import Lab, recap

PLAY = Path(__file__).with_name("hostile_share.yml")
OPEN, VICTIM = "/shared/open", "/srv/hpcai-victim"
# The part of a role, and its input that names the directory or file.
PARTS = {
    "certification": ("directory", "certification_dir", f"{OPEN}/certification"),
    "training_job": ("directory", "training_job_dir", f"{OPEN}/training/smoke"),
    "node_health_check": ("reconcile", "node_health_check_mailbox", f"{OPEN}/mail/health"),
    "munge": ("main", "munge_key_file", f"{OPEN}/secret/munge.key"),
}


@pytest.fixture
def share(lab: Lab) -> t.Iterator[Lab]:
    """A shared directory for everybody, and one of root's that is to stay root's."""
    lab.root(f"install -d -m 1777 {OPEN} && install -d -m 0755 {VICTIM} && touch {VICTIM}/kept")
    yield lab
    lab.root(f"rm -rf {OPEN} {VICTIM}")


def prepare(lab: Lab, script: str) -> None:
    """Do something as an ordinary user who is not the cluster's own."""
    done = lab.run(f"set -eu; cd {OPEN}; {script}", user="guest")
    assert done.rc == 0, done.stderr


def refused(lab: Lab, role: str, reason: str) -> None:
    """Run the part of a role, which has to fail on the login node for this reason and change nothing."""
    part, name, path = PARTS[role]
    status, output = lab.play(PLAY, hostile_role=role, hostile_part=part, **{name: path})
    assert status != 0, output[-3000:]
    # The message is wrapped nowhere in the JSON that Ansible prints of a failed task.
    assert reason in output.replace("\\n", " "), output[-3000:]
    assert recap(output)["ctl"]["changed"] == 0, output[-3000:]


def test_a_users_link_gives_no_directory_of_root_away(share: Lab) -> None:
    names = ("certification", "training", "mail", "secret")
    prepare(share, "; ".join(f"ln -s {VICTIM} {name}" for name in names))
    for role, name in zip(PARTS, names):
        refused(share, role, f"{OPEN}/{name} is a symbolic link of guest")
    assert share.root(f"stat -c '%U %a' {VICTIM}; ls -A {VICTIM}") == "root 755\nkept"


def test_what_a_user_made_first_is_believed_by_nobody(share: Lab) -> None:
    prepare(
        share,
        "mkdir -p certification training mail/health secret; chmod 0777 training mail/health;"
        " echo '{}' > mail/health/c1.json; head -c 128 /dev/zero > secret/munge.key; chmod 0400 secret/munge.key;"
        " echo 'raise SystemExit(1)' > certification/hpcai-agent.pyz",
    )
    before = share.root("sha256sum < /etc/munge/munge.key")
    for role, name in zip(PARTS, ("certification", "training", "mail", "secret")):
        refused(share, role, f"{OPEN}/{name} belongs to guest")
    assert share.root("sha256sum < /etc/munge/munge.key") == before
    assert share.root(f"find {OPEN} -mindepth 1 ! -user guest") == ""


def test_a_user_can_take_no_name_that_the_collection_uses(lab: Lab) -> None:
    script = "for d in /shared/.hpcai /shared/*/; do stat -c '%n %U' $d; done"
    owners = dict(line.split() for line in lab.root(script).replace("/ ", " ").splitlines())
    ours = ("certification", "checkpoint_upload", "examples", "hpcai", "images", "pytorch", "training", "wheels")
    assert {f"/shared/{name}" for name in (*ours, ".hpcai")} <= set(owners)
    assert {owners[f"/shared/{name}"] for name in (*ours, ".hpcai")} <= {"root", "trainer"}
