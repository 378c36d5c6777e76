# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node is after each kind of boot: a reboot, a power cut, with blank disks, with one too few."""

from __future__ import annotations

import pytest
from conftest import MOUNT, TUNED, Lab, Node

STALE = f"/dev/md128 {MOUNT} xfs defaults,nofail,x-systemd.device-timeout=10s 0 2"
# As Azure's images do it (components/setup_sku_customizations.sh): the file is written anew at every boot.
IMAGE = """\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'printf "NCCL_IGNORE_CPU_AFFINITY=0\\\\n" >/etc/nccl.conf'
[Install]
WantedBy=multi-user.target
"""
UNIT = "/etc/systemd/system/sku-customizations.service"


@pytest.fixture(scope="module")
def rebooted(lab: Lab, node: Node) -> Node:
    """The node after a reboot past what an older tool and an image left in its way."""
    node.write(UNIT, IMAGE)
    node.root("systemctl daemon-reload; systemctl enable sku-customizations")
    assert lab.tuning()[2]["changed"] == 1
    node.root(f"cp -a /etc/fstab /root/; echo '{STALE}' >> /etc/fstab; sync")
    node.reboot()
    return node


def test_scratch_comes_back_by_itself_past_a_line_of_an_older_tool(rebooted: Node):
    node = rebooted
    assert node.record()["verdict"] == "pass" and node.record()["context"]["door"] == "boot"
    assert node.root(f"cat {MOUNT}/tmp/file") == "mine"
    fstab = node.root("cat /etc/fstab")
    assert STALE in fstab and STALE not in fstab.splitlines()
    # systemd would take a mount away that stands where a unit with a missing device was.
    node.root("systemctl daemon-reload; udevadm trigger --settle --subsystem-match=block")
    assert node.root(f"findmnt -no FSTYPE {MOUNT}") == "xfs"
    node.root("mv /root/fstab /etc/fstab; systemctl daemon-reload")


def test_the_tuning_is_kept_also_where_the_image_writes_nccl_conf_anew(rebooted: Node, lab: Lab):
    node = rebooted
    assert node.values() == TUNED
    assert node.root("systemctl is-active nvidia-fabricmanager; lsmod | grep -c ^dummy") == "active\n1"
    lines = node.root("cat /etc/nccl.conf").splitlines()
    assert lines[0] == "NCCL_IGNORE_CPU_AFFINITY=0"
    assert "NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml" in lines
    rc, text, dummy = lab.tuning()
    assert rc == 0 and "/etc/nccl.conf says 0, which stays" in text
    node.root(f"systemctl disable --now sku-customizations; rm {UNIT}")
    node.root("systemctl daemon-reload; sed -i 's/^NCCL_IGNORE_CPU_AFFINITY=0$/NCCL_DEBUG=INFO/' /etc/nccl.conf; sync")


def test_scratch_comes_back_once_more_and_after_a_power_cut(node: Node):
    node.power_cut()
    assert node.record()["verdict"] == "pass"
    assert node.root(f"cat {MOUNT}/tmp/file") == "mine"
    assert node.root("systemctl is-active hpcai-scratch") == "active"


def test_blank_disks_after_a_redeployment_get_a_new_one(node: Node):
    node.power_cut(disks=node.machine.blank)
    assert node.record()["verdict"] == "pass"
    assert node.root(f"stat -c '%a %U' {MOUNT} {MOUNT}/trainer") == "1777 root\n700 trainer"
    assert node.run(f"ls {MOUNT}/tmp/file")[0] != 0
    node.root(f"echo again > {MOUNT}/tmp/file; sync")


def test_with_a_disk_missing_the_node_boots_and_is_not_ready(lab: Lab, node: Node):
    node.switch_off_and_on(disks=lambda: node.machine.remove(["disk5"]))
    record = node.record()
    assert (record["verdict"], record["class"]) == ("fail", "hardware")
    assert node.run("systemctl is-failed hpcai-scratch")[1].strip() == "failed"
    assert node.root("systemctl is-active multi-user.target") == "active"
    assert "7 NVMe disks found, 8 expected" in record["reason"] and node.disks["disk1"] in record["reason"]
    assert node.run(f"findmnt {MOUNT}")[0] != 0
    assert node.root(f"stat -c '%a %U' {MOUNT}") == "755 root"
    rc, text, recap = lab.scratch()
    assert (rc, recap["failed"], recap["changed"]) == (2, 1, 0) and "7 of 8 members" in text, text[-3000:]


def test_when_the_disk_is_back_so_is_what_was_on_scratch(node: Node):
    node.push("disk5")
    node.root("systemctl restart hpcai-scratch")
    assert node.record()["verdict"] == "pass"
    assert node.root(f"cat {MOUNT}/tmp/file") == "again"
