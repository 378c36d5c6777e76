# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be found on a node's disks, one case after the other on one running machine.

The boot program is started by hand: it plans and acts as the module does, and never erases.
"""

from __future__ import annotations

import pytest
from conftest import MOUNT, Lab, Node

# How others use a disk ({}), and which; nothing of it may change.
FOREIGN = {
    "a filesystem (ext4)": "mkfs.ext4 -qF {0} && mount {0} /mnt && echo theirs > /mnt/file && umount /mnt",
    "an LVM physical volume": "pvcreate -qq -ff -y {0}",
    "a partition table (gpt)": "sgdisk -n 1:0:+64M {0} > /dev/null && partx -a {0}; mkfs.ext4 -qF {0}p1",
    # mdadm gives udev five seconds for the name.
    "a member of an md array": "mdadm -C /dev/md/home -R -qq -l 1 -n 2 {0} missing && udevadm settle"
    " && mdadm -S /dev/md/home",
    "unknown data": "printf theirs | dd of={0} bs=1 seek=4096 conv=fsync status=none",
    # Complete, or the kernel goes on with it after the mount.
    "mounted at /data": "mkfs.ext4 -qF -E lazy_itable_init=0 {0} && mkdir -p /data && mount {0} /data && sync",
}
# What has udev assemble arrays, masked here.
ASSEMBLY = "/run/udev/rules.d/64-md-raid-assembly.rules"
# Steps of a creation, and what takes the power away from them.
CREATE = """case "$*" in *--create*) {0};; esac; exec /sbin/mdadm "$@" """
STRACE = 'strace -qq -f -o /dev/null -e inject={1}:signal=SIGKILL:when={2} /sbin/{0} "$@"; echo $? > /run/ended; exit 1'
# The program that is cut off, how, and how many disks have a superblock then.
KILLS = {
    "after some superblocks": ("mdadm", CREATE.format(STRACE.format("mdadm", "fsync", 4)), range(1, 8)),
    "after the array was made": (
        "mdadm",
        CREATE.format('/sbin/mdadm "$@"; echo 137 > /run/ended; kill -9 $PPID; exit 1'),
        [8],
    ),
    "within the filesystem": ("mkfs.xfs", STRACE.format("mkfs.xfs", "pwrite64", 12), [8]),
}


def test_a_disk_that_is_pulled_out_is_reported_and_comes_back(node: Node):
    node.root(f"echo again > {MOUNT}/tmp/file; sync")
    node.pull("disk5")
    record = node.boot_program()
    assert (record["verdict"], record["class"]) == ("fail", "hardware")
    assert "7 of 8 members" in record["reason"] and not record["context"]["path"], record
    node.push("disk5")
    record = node.boot_program()
    assert record["verdict"] == "fail" and f"umount {MOUNT}" in record["reason"], record
    node.root(f"umount {MOUNT}")
    record = node.boot_program()
    assert record["verdict"] == "pass", record
    assert node.root(f"cat {MOUNT}/tmp/file") == "again"


def test_an_array_that_was_renamed_is_used_as_it_is(node: Node):
    node.down()
    node.root(f"mdadm --assemble /dev/md99 --config=none {' '.join(node.devices().values())}")
    record = node.boot_program()
    assert record["verdict"] == "pass", record
    assert node.root(f"findmnt -no SOURCE {MOUNT}") == "/dev/md99"
    assert node.root(f"cat {MOUNT}/tmp/file") == "again"


def test_an_array_that_was_started_in_part_is_finished(node: Node):
    node.down()
    node.root(f"mdadm --incremental --quiet {node.device('disk2')}; true")
    assert "inactive" in node.root("cat /proc/mdstat")
    record = node.boot_program()
    assert record["verdict"] == "pass", record
    assert node.root(f"cat {MOUNT}/tmp/file") == "again"


@pytest.fixture(scope="module")
def blank(node: Node) -> Node:
    """The machine with nothing on its disks."""
    node.erase_all()
    return node


def test_what_others_keep_on_disks_stays(blank: Node):
    """Each disk but two is used in another way; one look finds them all, and not a byte of any disk changes."""
    node = blank
    # Where udev is late, it assembles the array again that was just stopped; the disk is in use then: another finding.
    node.root(f"mkdir -p /run/udev/rules.d; ln -s /dev/null {ASSEMBLY}; udevadm control --reload")
    names = node.devices()
    devices = dict(zip(FOREIGN, (names[f"disk{number}"] for number in range(3, 9))))
    for words, device in devices.items():
        node.root(FOREIGN[words].format(device))
    node.root("udevadm settle")
    before = node.digests()
    record = node.boot_program()
    assert (record["verdict"], record["class"]) == ("fail", "config")
    serials = {device: node.disks[disk] for disk, device in node.devices().items()}
    for words, device in devices.items():
        found = [text for text in record["evidence"].splitlines() if f"{device} ({serials[device]}, QEMU NVMe" in text]
        assert any(words in text for text in found), (words, record["evidence"])
    assert not any(node.disks[disk] in record["evidence"] for disk in ("disk1", "disk2")), record
    assert node.digests() == before
    assert node.run("ls /dev/md/scratch /var/lib/hpcai/nvme_scratch.json")[1].count("No such file") == 2
    node.root(f"rm {ASSEMBLY}; udevadm control --reload; umount /data")
    node.erase_all()


def test_ansible_refuses_it_too_and_erases_only_what_is_named(lab: Lab, blank: Node):
    node = blank
    theirs = [node.device(disk) for disk in ("disk7", "disk8")]
    node.erase("disk7", "disk8")
    node.root("; ".join(f"mkfs.ext4 -qF {device}" for device in theirs))
    before = node.digests()
    for wipe in ([], [node.disks["disk8"]]):
        done = lab.module(wipe=wipe)
        assert (done["changed"], done["check"]["verdict"], done["commands"]) == (False, "fail", []), done
        assert node.disks["disk7"] in done["check"]["reason"]
    assert "a name that the kernel gives anew" in lab.module(wipe=[node.device("disk8")])["msg"]
    assert node.digests() == before
    ids = [serial for disk, serial in node.disks.items() if disk != "disk7"]
    promised = lab.module("--check", ids=ids, count=7, wipe=[node.disks["disk8"]])
    done = lab.module(ids=ids, count=7, wipe=[node.disks["disk8"]])
    assert (done["check"]["verdict"], done["commands"]) == ("pass", promised["commands"])
    assert [words[-1] for words in done["commands"] if words[0] == "wipefs"] == [node.device("disk8")]
    assert node.digests("disk7") == {"disk7": before["disk7"]}


@pytest.mark.parametrize("moment", KILLS)
def test_a_creation_that_is_killed_is_finished(node: Node, moment: str):
    node.erase_all()
    name, script, superblocks = KILLS[moment]
    wrapper = f"/usr/local/sbin/{name}"
    node.root(f"rm -f /run/ended; cat > {wrapper} <<'END'\n#!/bin/sh\n{script}\nEND\nchmod +x {wrapper}")
    try:
        assert node.run("hpcai-scratch boot")[0] != 0
    finally:
        node.root(f"rm {wrapper}")
    assert node.root("cat /run/ended") == "137", "it was not killed"
    assert node.run(f"findmnt {MOUNT}")[0] != 0
    examine = "; ".join(f"mdadm --examine {device} > /dev/null 2>&1; echo $?" for device in node.devices().values())
    found = node.root(examine).split()
    assert found.count("0") in superblocks, found
    node.root("udevadm settle; test -e /var/lib/hpcai/nvme_scratch.json")
    record = node.boot_program()
    assert record["verdict"] == "pass", record
    assert node.root(f"cat /sys/block/md*/md/raid_disks; ls {MOUNT}") == "8\ntmp\ntrainer"
    assert node.run("ls /var/lib/hpcai/nvme_scratch.json")[0] != 0


def test_a_broken_array_is_made_anew_only_when_told(lab: Lab, node: Node):
    node.down()
    node.erase("disk3")
    before = node.digests("disk4")
    record = node.boot_program()
    assert record["verdict"] == "fail" and "7 of 8 members" in record["reason"]
    done = lab.module()
    assert (done["changed"], done["check"]["verdict"]) == (False, "fail")
    assert node.digests("disk4") == before
    promised, done = lab.module("--check", rebuild=True), lab.module(rebuild=True)
    assert (done["check"]["verdict"], done["commands"]) == ("pass", promised["commands"])
    assert lab.module()["changed"] is False


def test_what_another_tool_mounts_is_adopted(node: Node):
    node.erase_all()
    disks = " ".join(node.devices().values())
    # mdadm gives udev five seconds for the name.
    node.root(f"mdadm --create /dev/md/theirs --run -qq -l 0 -n 8 -N theirs {disks} && udevadm settle")
    node.root("mkfs.xfs -q -f /dev/md/theirs")
    node.root("mkdir -p /nvme && mount /dev/md/theirs /nvme && echo theirs > /nvme/file")
    record = node.boot_program()
    assert record["verdict"] == "pass" and record["context"]["source"] == "adopted", record
    assert node.root(f"ls /nvme; stat -c %a {MOUNT}; ls {MOUNT}") == "file\nscratch\n1777\ntmp\ntrainer"
