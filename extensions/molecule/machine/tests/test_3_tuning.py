# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tuned node: what is left out, what is missing, what is not its own, and the way back to what it was."""

from __future__ import annotations

import typing as t

from conftest import TUNED, Lab, Node, settled

# A user who lingers is logged in without PAM's part of logind, which the image has not.
LOGOUT = (
    "runuser -u trainer -- touch /dev/shm/segment; loginctl enable-linger trainer; loginctl disable-linger trainer;"
    " while loginctl list-users --no-legend | grep -qw trainer; do sleep 0.2; done"
)


def kept_after_a_logout(node: Node) -> bool:
    """Whether what a user has in /dev/shm is there when that user has logged out."""
    node.root(LOGOUT)
    return node.run("rm /dev/shm/segment")[0] == 0


def test_parts_can_be_left_out_somebody_s_sysctl_wins_and_what_is_missing_fails_after_all_else(lab: Lab, node: Node):
    node.root("echo vm.zone_reclaim_mode=0 >> /etc/sysctl.conf")
    missing = ["nvidia-fabricmanager", "nvidia-imex"]
    rc, text, dummy = lab.tuning(
        node_tuning_transparent_hugepages="", node_tuning_sunrpc_slots=0, node_tuning_services=missing
    )
    assert rc != 0
    assert "/etc/sysctl.conf says 0" in text
    assert "nvidia-imex: this machine type needs it, but its unit is not-found" in text
    assert node.values()[0] == "0" and node.values()[3] == "65536"


def test_what_is_missing_can_be_forgiven_and_what_was_left_out_comes_back(lab: Lab, node: Node):
    node.root("sed -i /zone_reclaim/d /etc/sysctl.conf")
    assert lab.tuning(node_tuning_services=["nvidia-imex"], node_tuning_strict=False)[0] == 0
    assert node.values() == TUNED


def test_a_container_leaves_its_host_alone(lab: Lab, node: Node):
    """The node says that it is one; what an earlier run noted is kept for a boot that is none."""
    node.root("mkdir -p /run/systemd && echo podman > /run/systemd/container")
    rc, dummy, dummy = lab.tuning()
    node.root("rm /run/systemd/container")
    assert rc == 0 and node.values() == TUNED
    assert node.run("ls /etc/sysctl.d/90-hpcai.conf /etc/tmpfiles.d/hpcai-hugepages.conf")[0] != 0
    assert lab.tuning()[0] == 0


def test_what_a_job_shares_stays_when_its_user_logs_out(node: Node):
    assert kept_after_a_logout(node)


def test_absent_is_the_way_back(lab: Lab, node: Node, before: tuple[t.Any, ...]):
    promised = lab.tuning("--check", "--diff", node_tuning_state="absent")
    done = lab.tuning("--diff", node_tuning_state="absent")
    assert settled(promised[1]) == settled(done[1])
    now = node.state()
    assert set(now[0]) ^ set(before[0]) == set()
    assert now[1:] == before[1:]
    assert lab.tuning(node_tuning_state="absent")[2]["changed"] == 0
    assert not kept_after_a_logout(node), "logind does again as it did before"
