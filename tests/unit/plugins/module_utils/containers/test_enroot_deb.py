# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of our own: what is written into them, which are installed, which are kept."""

from __future__ import annotations

import shutil
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import debian
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.debian import InstallError, PackageFile

FIELDS = {
    "Package": "probe",
    "Version": "1.0+hpcai.0123",
    "Architecture": "all",
    "Maintainer": "nobody <nobody@localhost>",
    "Description": "A probe\nwith more\n\nto say",
}
needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="no dpkg here")


def test_control_marks_the_lines_of_a_description() -> None:
    assert debian.control(FIELDS).endswith("Description: A probe\n with more\n .\n to say\n")
    assert "Depends" not in debian.control({**FIELDS, "Depends": ""})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Package": "Big Name"}, "no name for a package"),
        ({"Version": "v1"}, "begins with a digit"),
        ({"Version": "1.0 2"}, "no version"),
        ({"Depends": "a,\n b"}, "one line"),
        ({"Description": ""}, "needs Description"),
    ],
)
def test_control_refuses_what_dpkg_would_not_take(change: dict[str, str], said: str) -> None:
    with pytest.raises(debian.DebError, match=said):
        debian.control({**FIELDS, **change})


def tree(directory: Path) -> Path:
    (directory / "etc/probe").mkdir(parents=True)
    (directory / "etc/probe/probe.conf").write_text("answer 42\n")
    (directory / "etc/link").symlink_to("probe/probe.conf")
    (directory / "usr/bin").mkdir(parents=True)
    program = directory / "usr/bin/probe"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    return directory


@needs_dpkg
def test_the_same_files_make_the_same_package(tmp_path: Path) -> None:
    made = [
        debian.pack(tree(tmp_path / name), FIELDS, {"postinst": "#!/bin/sh\n"}, tmp_path / f"{name}.d") for name in "ab"
    ]
    assert [path.name for path in made] == ["probe_1.0+hpcai.0123_all.deb"] * 2
    assert made[0].read_bytes() == made[1].read_bytes()
    assert debian.whole(made[0])
    assert debian.field(made[0], "Version") == "1.0+hpcai.0123"
    assert debian.conffiles(tmp_path / "a") == "/etc/probe/probe.conf\n"
    assert [path.name for path in (tmp_path / "a.d").iterdir()] == [made[0].name]


@needs_dpkg
def test_a_package_that_was_cut_short_is_none(tmp_path: Path) -> None:
    path = debian.pack(tree(tmp_path / "tree"), FIELDS, {}, tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    assert not debian.whole(path)
    path.write_bytes(b"!<arch>")
    with pytest.raises(debian.DebError, match="no package"):
        debian.field(path, "Version")


@needs_dpkg
def test_nothing_is_left_of_a_package_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(debian.DebError, match="dpkg-deb"):
        debian.pack(tree(tmp_path / "tree"), {**FIELDS, "Depends": "((("}, {}, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(debian.DebError, match="no script config"):
        debian.pack(tmp_path / "tree", FIELDS, {"config": ""}, tmp_path / "out")


def test_the_digest_of_what_decided_a_package_is_in_its_version(tmp_path: Path) -> None:
    one, other = {"source": "commit:1", "system": "debian 12"}, {"system": "debian 13", "source": "commit:1"}
    version = debian.version("4.1.2", one)
    assert version == debian.version("4.1.2", dict(reversed(list(one.items()))))
    assert debian.is_ours(version, one)
    assert not debian.is_ours(version, other)
    assert debian.is_ours(version)
    assert not debian.is_ours("4.1.2-1")
    assert not debian.is_ours("", one)
    assert debian.find(tmp_path, "enroot", one) is None


@needs_dpkg
def test_a_kept_package_is_found_by_its_digest(tmp_path: Path) -> None:
    inputs = {"source": "commit:1"}
    fields = {**FIELDS, "Version": debian.version("1.0", inputs)}
    path = debian.pack(tree(tmp_path / "tree"), fields, {}, tmp_path / "cache")
    assert debian.find(tmp_path / "cache", "probe", inputs) == path
    assert debian.find(tmp_path / "cache", "probe", {"source": "commit:2"}) is None
    path.write_bytes(path.read_bytes()[:100])
    assert debian.find(tmp_path / "cache", "probe", inputs) is None


def host(**versions: str) -> t.Callable[[str], str]:
    return lambda name: versions.get(name.replace("+", "_"), "")


KNOWN = {"aa": {"name": "enroot", "version": "4.1.2-1"}, "bb": {"name": "enroot+caps", "version": "4.1.2-1"}}
PAIR = [PackageFile(sha256="aa"), PackageFile(sha256="bb")]


@pytest.mark.parametrize(
    ("files", "installed", "missing"),
    [
        (PAIR, host(enroot="4.1.2-1", enroot_caps="4.1.2-1"), []),
        (PAIR, host(enroot="4.1.2-1"), ["bb"]),
        (PAIR, host(enroot="4.1.2+hpcai.1"), ["aa", "bb"]),
        ([PackageFile(sha256="cc")], host(enroot="4.1.2-1"), ["cc"]),
        ([PackageFile("enroot", "4.1.2+hpcai.1")], host(enroot="4.1.2+hpcai.1"), []),
        ([PackageFile("enroot", "4.1.2+hpcai.2")], host(enroot="4.1.2+hpcai.1"), ["enroot=4.1.2+hpcai.2"]),
        # The file given by name counts by that, whatever its checksum was once noted for.
        ([PackageFile("enroot", "4.1.2+hpcai.2", "aa")], host(enroot="4.1.2-1"), ["aa"]),
    ],
)
def test_files_are_needed_for_what_is_not_installed(
    files: list[PackageFile], installed: t.Any, missing: list[str]
) -> None:
    assert debian.without_path(debian.lacking(files, KNOWN, installed)) == missing


@pytest.mark.parametrize(
    ("names", "installed", "wanted"),
    [
        (["enroot", "enroot+caps"], host(), ["enroot", "enroot+caps"]),
        (["enroot"], host(enroot="3.5.0-1"), []),
        (["enroot=4.1.2-1"], host(enroot="3.5.0-1"), ["enroot=4.1.2-1"]),
        (["enroot=4.1.2-1"], host(enroot="4.1.2+hpcai.1"), ["enroot=4.1.2-1"]),
        (["enroot=4.1.2-1"], host(enroot="4.1.2-1"), []),
    ],
)
def test_names_are_installed_when_absent_or_of_another_version(names: t.Any, installed: t.Any, wanted: t.Any) -> None:
    assert debian.absent(names, installed) == wanted


def test_a_name_alone_does_not_say_what_replaces_a_build() -> None:
    with pytest.raises(InstallError, match="enroot=VERSION"):
        debian.absent(["enroot"], host(enroot="4.1.2+hpcai.1"))


@pytest.mark.parametrize(
    ("files", "names"), [([], []), ([PackageFile(sha256="aa")], ["enroot"]), ([PackageFile(name="enroot")], [])]
)
def test_a_set_that_says_nothing_is_refused(files: list[PackageFile], names: list[str]) -> None:
    with pytest.raises(InstallError):
        debian.check(files, names)


def test_what_is_not_installed_any_more_is_forgotten() -> None:
    assert debian.noted(KNOWN, host(enroot="4.1.2-1")) == {"aa": KNOWN["aa"]}


def test_one_transaction_waits_for_others_and_keeps_changed_files() -> None:
    argv = debian.command(["/a.deb", "/b.deb"])
    assert argv[0] == "apt-get"
    assert argv[-3:] == ["install", "/a.deb", "/b.deb"]
    assert {"Dpkg::Options::=--force-confold", "--allow-downgrades", "DPkg::Lock::Timeout=300"} < set(argv)
