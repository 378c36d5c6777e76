# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first runs: scratch is made and the node is tuned as check mode promised, and a second run changes nothing."""

from __future__ import annotations

import typing as t

from conftest import MODULE, MOUNT, TUNED, Lab, Node, result, settled
from patience import wait_for

NFS = "mkdir -p /export/t /mnt/t && exportfs -o rw,no_root_squash,fsid=77,insecure 127.0.0.1:/export/t"
NFS_MOUNT = f"systemctl start nfs-server && {NFS} && mount -t nfs 127.0.0.1:/export/t /mnt/t && udevadm settle"
READ_AHEAD = "cat /sys/class/bdi/$(mountpoint -d /mnt/t)/read_ahead_kb"


def test_check_mode_promises_exactly_the_scratch_that_the_first_run_makes(lab: Lab, node: Node):
    before = node.digests("disk1", "disk8")
    promised = result(lab.scratch("--check", "-vvv")[1], MODULE)
    assert node.digests("disk1", "disk8") == before
    assert node.run("ls /dev/md /var/lib/hpcai /etc/hpcai")[1].count("No such file") == 3
    rc, text, recap = lab.scratch("-vvv")
    done = result(text, MODULE)
    assert (rc, recap["changed"], promised["changed"], done["changed"]) == (0, 2, True, True)
    assert done["diff"] == promised["diff"] and done["diff"]["before"] != done["diff"]["after"]
    assert done["commands"] == promised["commands"]
    assert [words[0] for words in done["commands"]][:4] == ["mark", "mdadm", "mkfs.xfs", "unmark"]
    assert (promised["check"]["verdict"], done["check"]["verdict"]) == ("pass", "pass")
    assert sorted(done["disks"]) == sorted(node.disks.values())


def test_scratch_is_what_was_asked_for(node: Node):
    assert node.root(f"findmnt -no FSTYPE {MOUNT}") == "xfs"
    assert "noatime" in node.root(f"findmnt -no OPTIONS {MOUNT}")
    assert "sunit=128 swidth=1024 blks" in " ".join(node.root(f"xfs_info {MOUNT}").split())
    assert node.root(f"stat -c '%a %U' {MOUNT} {MOUNT}/trainer") == "1777 root\n700 trainer"
    node.root(f"runuser -u trainer -- sh -c 'echo mine > {MOUNT}/tmp/file'")
    assert node.root("grep -c raid0 /proc/mdstat; cat /sys/block/md*/md/raid_disks") == "2\n8"
    assert not node.run(f"grep -c {MOUNT} /etc/fstab")[1].strip("0\n")


def test_modules_were_forked(node: Node):
    """Where they cannot be, they run as well, and nothing but time tells."""
    assert node.root("systemctl is-active lab_python") == "active"


def test_a_second_run_changes_nothing_of_scratch(lab: Lab):
    rc, text, recap = lab.scratch()
    assert (rc, recap["changed"]) == (0, 0), text[-3000:]


def test_check_mode_promises_exactly_the_tuning_that_the_first_run_does(
    lab: Lab, node: Node, before: tuple[t.Any, ...]
):
    promised = lab.tuning("--check", "--diff")
    assert node.state() == before
    done = lab.tuning("--diff")
    assert (promised[0], done[0], done[2]["changed"]) == (0, 0, 1), done[1]
    assert settled(promised[1]) == settled(done[1])
    assert node.values() == TUNED


def test_a_second_run_changes_nothing_of_the_tuning(lab: Lab):
    rc, text, recap = lab.tuning("--diff")
    assert (rc, recap["changed"]) == (0, 0), text


def test_logins_and_jobs_get_the_limits(node: Node):
    limits = node.root("su - trainer -s /bin/bash -c 'ulimit -l; ulimit -s; ulimit -n'").split()
    assert limits == ["unlimited", "unlimited", "1048576"]
    job = node.root("systemctl show slurmd -p LimitMEMLOCK,LimitSTACK,LimitNOFILE").splitlines()
    assert sorted(job) == ["LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "LimitSTACK=infinity"]


def test_an_nfs_mount_gets_the_read_ahead_past_the_rule_of_nfs_utils(node: Node):
    node.root(NFS_MOUNT)
    wait_for("the read-ahead of the mount", lambda: node.root(READ_AHEAD) == "15380", 60)
    node.root("umount /mnt/t; systemctl stop nfs-server")


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
