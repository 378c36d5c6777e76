# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a node's scratch in its order: made, found again after each start, lost with its disks, short of one."""

from __future__ import annotations

from conftest import MODULE, MOUNT, Lab, Node, result

STALE = f"/dev/md128 {MOUNT} xfs defaults,nofail,x-systemd.device-timeout=10s 0 2"


def test_check_mode_promises_exactly_what_the_first_run_does(lab: Lab, node: Node):
    before = {disk: node.digest(disk) for disk in ("disk1", "disk8")}
    promised = result(lab.converge("--check", "-vvv")[1], MODULE)
    assert {disk: node.digest(disk) for disk in before} == before
    assert node.run("ls /dev/md /var/lib/hpcai /etc/hpcai")[1].count("No such file") == 3
    rc, text, recap = lab.converge("-vvv")
    done = result(text, MODULE)
    assert (rc, recap["changed"], promised["changed"], done["changed"]) == (0, 2, True, True)
    assert done["diff"] == promised["diff"] and done["diff"]["before"] != done["diff"]["after"]
    assert done["commands"] == promised["commands"]
    assert [words[0] for words in done["commands"]][:4] == ["mark", "mdadm", "mkfs.xfs", "unmark"]
    assert (promised["check"]["verdict"], done["check"]["verdict"]) == ("pass", "pass")
    assert sorted(done["disks"]) == sorted(node.disks.values())


def test_it_is_what_was_asked_for(node: Node):
    assert node.root(f"findmnt -no FSTYPE {MOUNT}") == "xfs"
    assert "noatime" in node.root(f"findmnt -no OPTIONS {MOUNT}")
    assert "sunit=128 swidth=1024 blks" in " ".join(node.root(f"xfs_info {MOUNT}").split())
    assert node.root(f"stat -c '%a %U' {MOUNT} {MOUNT}/trainer") == "1777 root\n700 trainer"
    node.root(f"runuser -u trainer -- sh -c 'echo mine > {MOUNT}/tmp/file'")
    assert node.root("grep -c raid0 /proc/mdstat; cat /sys/block/md*/md/raid_disks") == "2\n8"
    assert not node.run(f"grep -c {MOUNT} /etc/fstab")[1].strip("0\n")


def test_the_second_run_changes_nothing(lab: Lab):
    rc, text, recap = lab.converge()
    assert (rc, recap["changed"]) == (0, 0), text[-3000:]


def test_it_comes_back_by_itself_past_a_line_of_an_older_tool(node: Node):
    node.root(f"echo '{STALE}' >> /etc/fstab; sync")
    node.reboot()
    assert node.record()["verdict"] == "pass" and node.record()["context"]["door"] == "boot"
    assert node.root(f"cat {MOUNT}/tmp/file") == "mine"
    fstab = node.root("cat /etc/fstab")
    assert STALE in fstab and STALE not in fstab.splitlines()
    # systemd would take a mount away that stands where a unit with a missing device was.
    node.root("systemctl daemon-reload; udevadm trigger --settle --subsystem-match=block")
    assert node.root(f"findmnt -no FSTYPE {MOUNT}") == "xfs"


def test_it_comes_back_once_more_and_after_a_power_cut(node: Node):
    node.machine.kill()
    node.machine.start()
    node.machine.wait(300)
    assert node.record()["verdict"] == "pass"
    assert node.root(f"cat {MOUNT}/tmp/file") == "mine"
    assert node.root("systemctl is-active hpcai-scratch") == "active"


def test_blank_disks_after_a_redeployment_get_a_new_one(node: Node):
    node.restart(disks=node.machine.blank)
    assert node.record()["verdict"] == "pass"
    assert node.root(f"stat -c '%a %U' {MOUNT} {MOUNT}/trainer") == "1777 root\n700 trainer"
    assert node.run(f"ls {MOUNT}/tmp/file")[0] != 0
    node.root(f"echo again > {MOUNT}/tmp/file; sync")


def test_with_a_disk_missing_the_node_boots_and_is_not_ready(lab: Lab, node: Node):
    node.restart(disks=lambda: node.machine.remove(["disk5"]))
    record = node.record()
    assert (record["verdict"], record["class"]) == ("fail", "hardware")
    assert node.run("systemctl is-failed hpcai-scratch")[1].strip() == "failed"
    assert node.root("systemctl is-active multi-user.target") == "active"
    assert "7 NVMe disks found, 8 expected" in record["reason"] and node.disks["disk1"] in record["reason"]
    assert node.run(f"findmnt {MOUNT}")[0] != 0
    assert node.root(f"stat -c '%a %U' {MOUNT}") == "755 root"
    rc, text, recap = lab.converge()
    assert (rc, recap["failed"], recap["changed"]) == (2, 1, 0) and "7 of 8 members" in text, text[-3000:]


def test_when_the_disk_is_back_so_is_what_was_on_scratch(node: Node):
    node.machine.add(["disk5"])
    node.root("udevadm settle; systemctl restart hpcai-scratch")
    assert node.record()["verdict"] == "pass"
    assert node.root(f"cat {MOUNT}/tmp/file") == "again"
