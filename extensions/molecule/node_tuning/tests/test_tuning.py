# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is tuned, stays so over a boot, and is what it was when the role is taken back; on a kernel of its own."""

from __future__ import annotations

import typing as t

import pytest
from conftest import Lab, Node

SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
# As Azure's images do it (components/setup_sku_customizations.sh): the file is written anew at every boot.
IMAGE = """\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'printf "NCCL_IGNORE_CPU_AFFINITY=0\\\\n" >/etc/nccl.conf'
[Install]
WantedBy=multi-user.target
"""
NFS = "mkdir -p /export/t /mnt/t && exportfs -o rw,no_root_squash,fsid=77,insecure 127.0.0.1:/export/t"
MOUNT = (
    "systemctl start nfs-server && " + NFS + " && mount -t nfs 127.0.0.1:/export/t /mnt/t && udevadm settle && sleep 1"
)
READ_AHEAD = "cat /sys/class/bdi/$(mountpoint -d /mnt/t)/read_ahead_kb"
TUNED = ["1", "16384", "always [madvise] never", "128"]


@pytest.fixture(scope="module")
def before(node: Node) -> tuple[t.Any, ...]:
    """The node with a service that stands for fabric manager and an administrator's own settings."""
    node.write("/etc/systemd/system/nvidia-fabricmanager.service", SERVICE)
    node.write("/etc/nccl.conf", "NCCL_DEBUG=INFO\n")
    node.root("systemctl daemon-reload; mkdir -p /opt/azurehpc; apt-mark hold libc6")
    return node.state()


def settled(text: str) -> str:
    """Tasks and diffs of a run, without what tells check mode from a real run."""
    return text[text.index("TASK [") : text.index("PLAY RECAP")]


def test_check_mode_promises_exactly_what_the_first_run_does(lab: Lab, node: Node, before: tuple[t.Any, ...]):
    promised = lab.converge("--check", "--diff")
    assert node.state() == before
    done = lab.converge("--diff")
    assert (promised[0], done[0], done[2]["changed"]) == (0, 0, 3), done[1]
    assert settled(promised[1]) == settled(done[1])
    assert node.values() == TUNED


def test_the_second_run_changes_nothing(lab: Lab):
    rc, text, recap = lab.converge("--diff")
    assert (rc, recap["changed"]) == (0, 0), text


def test_logins_and_jobs_get_the_limits(node: Node):
    limits = node.root("su - trainer -s /bin/bash -c 'ulimit -l; ulimit -s; ulimit -n'").split()
    assert limits == ["unlimited", "unlimited", "1048576"]
    job = node.root("systemctl show slurmd -p LimitMEMLOCK,LimitSTACK,LimitNOFILE").splitlines()
    assert sorted(job) == ["LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "LimitSTACK=infinity"]


def test_an_nfs_mount_gets_the_read_ahead_past_the_rule_of_nfs_utils(node: Node):
    node.root(MOUNT)
    assert node.root(READ_AHEAD) == "15380"
    node.root("umount /mnt/t")


def test_packages_are_held_and_somebody_s_hold_is_his(node: Node):
    held = node.root("apt-mark showhold").split()
    assert "libc6" in held and any(name.startswith("linux-image-") for name in held)
    assert "libc6" not in node.root("cat /var/lib/hpcai/package_hold.json")
    assert 'APT::Periodic::Enable "0";' in node.root("apt-config dump")


def test_nccl_finds_the_file_and_somebody_s_line_stays(node: Node):
    lines = node.root("cat /etc/nccl.conf").splitlines()
    assert lines[0] == "NCCL_DEBUG=INFO"
    assert "NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml" in lines
    assert node.root("grep -c 'pci busid' /opt/microsoft/ndv4-topo.xml") == "20"


def test_a_boot_keeps_it_also_where_the_image_writes_nccl_conf_anew(lab: Lab, node: Node):
    node.write("/etc/systemd/system/sku-customizations.service", IMAGE)
    node.root("systemctl daemon-reload; systemctl enable sku-customizations")
    assert lab.converge()[2]["changed"] == 1
    node.reboot()
    assert node.values() == TUNED
    assert node.root("systemctl is-active nvidia-fabricmanager; lsmod | grep -c ^dummy") == "active\n1"
    lines = node.root("cat /etc/nccl.conf").splitlines()
    assert lines[0] == "NCCL_IGNORE_CPU_AFFINITY=0"
    assert "NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml" in lines
    rc, text, dummy = lab.converge()
    assert rc == 0 and "/etc/nccl.conf says 0, which stays" in text
    node.root("systemctl disable --now sku-customizations; rm /etc/systemd/system/sku-customizations.service")
    node.root("systemctl daemon-reload; sed -i 's/^NCCL_IGNORE_CPU_AFFINITY=0$/NCCL_DEBUG=INFO/' /etc/nccl.conf")


def test_a_part_can_be_switched_off_and_a_sysctl_of_somebody_wins(lab: Lab, node: Node):
    node.root("echo vm.zone_reclaim_mode=0 >> /etc/sysctl.conf")
    rc, text, dummy = lab.converge(node_tuning_transparent_hugepages="", node_tuning_sunrpc_slots=0)
    assert rc == 0 and "/etc/sysctl.conf says 0" in text
    assert node.values()[0] == "0" and node.values()[3] == "65536"
    node.root("sed -i /zone_reclaim/d /etc/sysctl.conf")
    assert lab.converge()[0] == 0
    assert node.values() == TUNED


def test_a_node_that_lacks_what_it_needs_fails_after_all_else_is_done(lab: Lab, node: Node):
    rc, text, dummy = lab.converge(node_tuning_services=["nvidia-fabricmanager", "nvidia-imex"])
    assert rc != 0
    assert "nvidia-imex: this machine type needs it, but its unit is not-found" in text
    assert lab.converge(node_tuning_services=["nvidia-imex"], node_tuning_strict=False)[0] == 0
    assert lab.converge()[0] == 0


def test_a_container_leaves_its_host_alone(lab: Lab, node: Node):
    """The node says that it is one; what an earlier run noted is kept for a boot that is none."""
    node.root("mkdir -p /run/systemd && echo podman > /run/systemd/container")
    rc, dummy, dummy = lab.converge()
    node.root("rm /run/systemd/container")
    assert rc == 0 and node.values() == TUNED
    assert node.run("ls /etc/sysctl.d/90-hpcai.conf /etc/tmpfiles.d/hpcai-hugepages.conf")[0] != 0
    assert lab.converge()[0] == 0


def test_absent_is_the_way_back(lab: Lab, node: Node, before: tuple[t.Any, ...]):
    promised = lab.converge("--check", "--diff", node_tuning_state="absent")
    done = lab.converge("--diff", node_tuning_state="absent")
    assert settled(promised[1]) == settled(done[1])
    now = node.state()
    assert set(now[0]) ^ set(before[0]) == set()
    assert now[1:] == before[1:]
    assert lab.converge(node_tuning_state="absent")[2]["changed"] == 0
