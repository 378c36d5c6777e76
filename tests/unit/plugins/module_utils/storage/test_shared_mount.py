# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mount, its line in fstab and what is done about them, as case tables."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.mount import (
    DROP_IN,
    Mounted,
    MountPlan,
    MountRequest,
    ObservedMount,
    SharedMountError,
    fstab_line,
    hidden,
    parse_mountinfo,
    plan,
    same_source,
    server_of,
    unit_name,
)

NFS = MountRequest("/shared", "ctl:/export/shared", "nfs", "hard,nofail")
LINE = "ctl:/export/shared /shared nfs hard,nofail 0 0\n"
OTHERS = "# /shared is further down\nUUID=1 / ext4 rw 0 1"
UP = Mounted("ctl:/export/shared", "nfs4", "rw")
GONE = NFS._replace(present=False)
NO_SOURCE = MountRequest("/shared", "", "none", "defaults")
MOUNTINFO = r"""23 28 0:21 / /sys rw,nosuid - sysfs sysfs rw
30 28 0:30 / /shared rw,relatime shared:1 - autofs systemd-1 rw,fd=50
31 28 0:31 / /auto rw,relatime shared:2 - autofs systemd-1 rw,fd=51
40 30 0:40 / /shared rw,noatime shared:3 - nfs4 ctl:/export/shared rw,vers=4.2
41 28 0:41 / /with\040space rw - cifs //ctl/my\040files rw
"""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/shared", "shared.mount"),
        ("/mnt/resource_nvme", "mnt-resource_nvme.mount"),
        ("/my-data/a b", r"my\x2ddata-a\x20b.mount"),
        ("/.hidden/x.y", r"\x2ehidden-x.y.mount"),
        ("/größe", r"gr\xc3\xb6\xc3\x9fe.mount"),
        ("/", "-.mount"),
    ],
)
def test_unit_is_named_as_systemd_names_it(path: str, name: str) -> None:
    assert unit_name(path) == name
    if shutil.which("systemd-escape"):
        command = ["systemd-escape", "--path", "--suffix=mount", path]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.stdout.strip() == name


@pytest.mark.parametrize(
    ("path", "mounted"),
    [
        ("/shared", Mounted("ctl:/export/shared", "nfs4", "rw,noatime")),
        ("/with space", Mounted("//ctl/my files", "cifs", "rw")),
        ("/auto", None),
        ("/share", None),
    ],
)
def test_mountinfo_names_what_is_on_top(path: str, mounted: Mounted | None) -> None:
    assert parse_mountinfo(MOUNTINFO, path) == mounted


@pytest.mark.parametrize(
    ("wanted", "mounted", "same"),
    [
        (NFS, UP, True),
        (NFS, UP._replace(source="ctl:/export/shared/"), True),
        (NFS, UP._replace(source="other:/export/shared"), False),
        (NFS, Mounted("ctl:/export/shared", "cifs", "rw"), False),
        (MountRequest("/d", "//Files/Data", "cifs", ""), Mounted("//files/data", "cifs", ""), True),
    ],
)
def test_the_kernel_s_name_of_a_source_is_recognised(wanted: MountRequest, mounted: Mounted, same: bool) -> None:
    assert same_source(wanted, mounted) is same


@pytest.mark.parametrize(
    ("source", "fstype", "options", "server"),
    [
        ("ctl:/e", "nfs", "", ("ctl", 2049)),
        ("[fd00::1]:/e", "nfs", "hard,port=2050", ("fd00::1", 2050)),
        ("//files/data", "cifs", "", ("files", 445)),
        ("/e", "none", "bind", None),
    ],
)
def test_server_that_is_asked(source: str, fstype: str, options: str, server: tuple[str, int] | None) -> None:
    assert server_of(MountRequest("/x", source, fstype, options)) == server


@pytest.mark.parametrize(
    ("wanted", "seen", "fstab", "drop_in", "actions"),
    [
        (NFS, ObservedMount("", ""), LINE, DROP_IN, ["mount"]),
        (NFS, ObservedMount(OTHERS, ""), f"{OTHERS}\n{LINE}", DROP_IN, ["mount"]),
        (NFS, ObservedMount(LINE, DROP_IN, UP, True), LINE, DROP_IN, []),
        (NFS, ObservedMount(LINE, "old", UP, True), LINE, DROP_IN, []),
        (NFS, ObservedMount(LINE, DROP_IN), LINE, DROP_IN, ["mount"]),
        (NFS, ObservedMount(LINE.replace(" ", "\t"), DROP_IN, UP, True), LINE.replace(" ", "\t"), DROP_IN, []),
        (NFS, ObservedMount(LINE.replace("hard", "soft"), DROP_IN, UP, True), LINE, DROP_IN, ["remount"]),
        (
            NFS,
            ObservedMount("x:/y /shared/ nfs rw 0 0\n" + OTHERS, DROP_IN, UP, False),
            LINE + OTHERS,
            DROP_IN,
            ["unmount", "mount"],
        ),
        (NFS, ObservedMount(LINE, DROP_IN, UP, True, "Stale file handle"), LINE, DROP_IN, ["detach", "mount"]),
        (GONE, ObservedMount(LINE + OTHERS, DROP_IN, UP, True), OTHERS, "", ["unmount"]),
        (GONE, ObservedMount(LINE, DROP_IN, UP, True, "Stale file handle"), "", "", ["detach"]),
        (GONE, ObservedMount(OTHERS, ""), OTHERS, "", []),
        (NO_SOURCE, ObservedMount(OTHERS, "", UP), OTHERS, "", []),
    ],
)
def test_plan(wanted: MountRequest, seen: ObservedMount, fstab: str, drop_in: str, actions: list[str]) -> None:
    todo = plan(wanted, seen)
    assert todo == MountPlan(fstab, drop_in, actions)
    then = ObservedMount(fstab, drop_in, UP if wanted.present else None, True)
    assert plan(wanted, then) == MountPlan(fstab, drop_in, []), "a second run changes nothing"


@pytest.mark.parametrize(
    ("wanted", "seen", "words"),
    [
        (NFS, ObservedMount("", "", UP, True, "stat did not end within 15 s"), "does not answer"),
        (GONE, ObservedMount(LINE, "", UP, True, "Host is down"), "umount -f -l /shared"),
        (NFS, ObservedMount(LINE + LINE, ""), "2 lines for /shared"),
        (NO_SOURCE, ObservedMount("", ""), "no mount of its own"),
        (NO_SOURCE, ObservedMount("", "", UP, False, "Stale file handle"), "Stale file handle"),
    ],
)
def test_refusal(wanted: MountRequest, seen: ObservedMount, words: str) -> None:
    with pytest.raises(SharedMountError, match=words):
        plan(wanted, seen)


def test_white_space_in_names_survives_fstab() -> None:
    wanted = MountRequest("/my data", "//ctl/a#b c", "cifs", "rw")
    text = plan(wanted, ObservedMount("", "")).fstab
    assert text == "//ctl/a\\043b\\040c /my\\040data cifs rw 0 0\n"
    assert fstab_line(text, "/my data") == text.rstrip()


def test_a_password_in_an_old_line_is_not_shown() -> None:
    shown = hidden("//s/d /d cifs username=hpc,password=Geheim,rw,pass=x,password2=y 0 0")
    assert shown == "//s/d /d cifs username=hpc,password=(hidden),rw,pass=(hidden),password2=(hidden) 0 0"


def test_no_options_are_the_default_ones() -> None:
    """An empty field would make the next one the options."""
    todo = plan(NFS._replace(options=""), ObservedMount("", ""))
    assert todo.fstab == "ctl:/export/shared /shared nfs defaults 0 0\n"


def test_a_path_that_is_not_absolute_is_refused() -> None:
    with pytest.raises(SharedMountError, match="no absolute path"):
        plan(NFS._replace(path="shared"), ObservedMount("", ""))


def test_a_password_behind_the_user_name_of_an_old_line_is_hidden() -> None:
    assert hidden("//f/d /d cifs user=hpc%secret,ro 0 0") == "//f/d /d cifs user=hpc%(hidden),ro 0 0"
