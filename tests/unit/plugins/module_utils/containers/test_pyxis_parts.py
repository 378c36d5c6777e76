# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from stand_in import answer

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._elf import ElfError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_fit as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_package
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.pyxis_fit import InstalledSlurm
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.elf_made import spank

NEW = InstalledSlurm(24, 11, 5)
INPUTS = pyxis_package.Inputs("commit:" + "a" * 40, "24.11.5", "b" * 64, "14.2.0", "", "amd64")


def test_inputs_that_are_unknown_are_taken_as_they_were() -> None:
    built = INPUTS._asdict()
    assert pyxis_package.same(INPUTS, built)
    assert pyxis_package.same(INPUTS._replace(compiler=None, headers=None, slurm=None), built)
    for change in ({"compiler": "12.2.0"}, {"source": "sha256:" + "c" * 64}, {"recipe": 99}, {"home": "/opt/slurm"}):
        assert not pyxis_package.same(INPUTS._replace(**change), built)
    assert not pyxis_package.same(INPUTS, {})


@pytest.mark.parametrize("text", ["PYXIS_VER ?= 0.24.0\n", "a := b\nPYXIS_VER = 0.24.0\n"])
def test_the_version_of_pyxis_is_in_its_makefile(text: str) -> None:
    assert pyxis_package.version(text) == "0.24.0"


@pytest.mark.parametrize("text", ["", "VERSION := 4.1.2\n", "PYXIS_VER ?= $(shell date)\n"])
def test_another_makefile_is_refused(text: str) -> None:
    with pytest.raises(pyxis_package.PyxisError, match="not pyxis"):
        pyxis_package.version(text)


def test_the_package_breaks_with_other_releases_only() -> None:
    made = pyxis_package.fields("0.24.0", INPUTS, NEW, "2.41")
    assert made["Version"] == pyxis_package.full_version("0.24.0", INPUTS)
    assert "slurmd (<< 24.11), slurmd (>= 24.12~), slurm-client (<< 24.11)" in made["Breaks"]
    assert "Breaks" not in pyxis_package.fields("0.24.0", INPUTS._replace(home="/opt/slurm"), NEW, "2.41")


def test_headers_of_a_home_are_given_to_the_compiler() -> None:
    made = pyxis_package.build_step("/s", "/t", INPUTS, "aarch64", "/opt/slurm")
    assert made.environment["CPPFLAGS"] == "-I/opt/slurm/include"
    assert "libdir=/usr/lib/aarch64-linux-gnu" in made.argv and "DESTDIR=/t" in made.argv
    assert pyxis_package.build_step("/s", "/t", INPUTS, "aarch64", "").environment["CPPFLAGS"] == ""


@pytest.mark.parametrize(
    "text, plugin, options",
    [
        ("", "", []),
        ("# required /x.so\n\n", "", []),
        (
            "# v\nrequired /x.so runtime_path=/scratch/p container_scope=job # why\n",
            "/x.so",
            ["runtime_path=/scratch/p", "container_scope=job"],
        ),
        ("optional\t/x.so\n", "/x.so", []),
        ("include /etc/slurm/more.conf\n", "", []),
    ],
)
def test_a_drop_in_names_a_plugin_and_its_options(text: str, plugin: str, options: list[str]) -> None:
    assert host.used(text) == (plugin, options)


def test_headers_are_told_by_their_content(tmp_path: Path) -> None:
    assert host.headers(str(tmp_path)) == (None, "")
    folder = tmp_path / "include/slurm"
    folder.mkdir(parents=True)
    (folder / "slurm_version.h").write_text("#define SLURM_VERSION_NUMBER 0x180b05\n")
    assert host.headers(str(tmp_path)) == (NEW, "")  # no spank.h: not enough
    (folder / "spank.h").write_text("a")
    version, digest = host.headers(str(tmp_path))
    (folder / "spank.h").write_text("b")
    assert version == NEW and len(digest) == 64 and host.headers(str(tmp_path))[1] != digest


def test_a_plugin_that_cannot_be_read_says_which(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(b"\x7fELF")
    with pytest.raises(ElfError, match=r"x\.so: its ELF header is damaged"):
        host.plugin(str(tmp_path / "x.so"))
    with pytest.raises(ElfError, match="cannot be read"):
        host.plugin(str(tmp_path))
    assert host.plugin(str(tmp_path / "none")) is None


class Node:
    """A host with a Slurm in a directory, a plugin and a drop-in."""

    def __init__(self, path: Path, plugin: bytes | None, slurmd: str = "24.11.5") -> None:
        self.home, self.drop_in, self.plugin = path / "slurm", path / "pyxis.conf", path / "spank_pyxis.so"
        self.home.joinpath("bin").mkdir(parents=True)
        for name in ("slurmd", "scontrol"):
            text = f"slurm {slurmd}\nVersion = 22.05.8\nSLURM_VERSION = {slurmd}\n"
            answer(self.home / "bin" / name, text)
        if plugin is not None:
            self.plugin.write_bytes(plugin)
        self.drop_in.write_text(f"# 0.24.0\nrequired {self.plugin} container_scope=job\n")

    def look(self, **more: t.Any) -> dict[str, t.Any]:
        defaults = {key: option.get("default") for key, option in pyxis_package.INFO_SPEC.items()}
        return pyxis_package.look({**defaults, "slurm_home": str(self.home), "drop_in": str(self.drop_in), **more})


def test_a_host_with_its_own_pyxis_is_well(tmp_path: Path) -> None:
    node = Node(tmp_path, spank(0x180B00))
    found = node.look(ask=False)
    assert found["fits"] and found["options"] == ["container_scope=job"] and found["plugin"] == str(node.plugin)
    assert found["versions"]["plugin"] == "24.11.0" and found["versions"]["slurmd"] == "24.11.5"
    assert "22.05.8 runs" in node.look()["remarks"][0]


@pytest.mark.parametrize(
    "plugin, said",
    [
        (spank(0x160508), "built for Slurm 22.05.8, but slurmd here is 24.11.5"),
        (b"\x7fELF\x02\x01", "cut short"),
        (spank(0x180B05)[:-40], "cut short"),
        (None, "so no job step starts here"),
    ],
)
def test_a_host_where_no_step_would_start_is_told(tmp_path: Path, plugin: bytes | None, said: str) -> None:
    found = Node(tmp_path, plugin).look(ask=False)
    assert not found["fits"] and said in found["problems"][0]


def test_a_host_without_pyxis_is_well(tmp_path: Path) -> None:
    node = Node(tmp_path, None)
    node.drop_in.unlink()
    assert node.look()["fits"] and node.look()["plugin"] == ""
    missing = node.look(plugin=str(node.plugin))
    assert not missing["fits"] and "nothing names it" in missing["problems"][0]
    # So role pyxis knows of a slurmd to restart when it comes for the first time.
    assert (node.look()["versions"]["running"], missing["versions"]["running"]) == ("", "22.05.8")
