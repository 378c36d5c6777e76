# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._elf import ElfError, Library
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.elf_made import library

SOURCE = """
const char plugin_name[] = "pyxis", plugin_type[] = "spank";
const unsigned int plugin_version = 0x180b05;
unsigned short narrow = 7;
extern int elsewhere;
int slurm_spank_init(void) { return elsewhere; }
static int hidden_one(void) { return 1; }
int (*pointer)(void) = hidden_one;
"""
SCRIPT = "VERSION { V_1.0 { global: plugin_*; slurm_spank_*; local: *; }; }"


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("little", [True, False])
def test_every_layout_is_read(wide: bool, little: bool) -> None:
    made = Library(library({"plugin_version": 0x180B05, "plugin_type": "spank"}, wide, little))
    assert made.number("plugin_version") == 0x180B05
    assert made.text("plugin_type") == "spank"
    assert set(made.symbols) == {"plugin_version", "plugin_type"}


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "no ELF file"),
        (b"#!/bin/sh\n", "no ELF file"),
        (b"\x7fELF", "header is damaged"),
        (b"\x7fELF\x09\x09" + b"\0" * 90, "header is damaged"),
        (b"\x7fELF\x02\x01\x01", "cut short"),
        (library({"a": 1}, kind=2), "no shared library"),
        (library({"a": 1})[:200], "cut short"),
    ],
)
def test_what_is_no_library_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ElfError, match=said):
        Library(data)


def test_a_symbol_must_be_there_and_be_what_is_asked_for() -> None:
    made = Library(library({"plugin_type": "spank"}))
    with pytest.raises(ElfError, match="no symbol plugin_version"):
        made.number("plugin_version")
    with pytest.raises(ElfError, match="is no number: 6 bytes"):
        made.number("plugin_type")


def test_a_dynamic_section_without_tables_is_refused() -> None:
    data = bytearray(library({"a": 1}))
    at = data.rindex(struct.pack("<QQ", 6, 0)[:8])
    data[at : at + 8] = struct.pack("<Q", 0x70000001)
    with pytest.raises(ElfError, match="no table of symbols"):
        Library(bytes(data))


def test_damage_never_ends_in_another_error() -> None:
    whole, dice = library({"plugin_version": 0x180B05, "plugin_type": "spank"}), random.Random(5)
    for dummy in range(2000):
        data = bytearray(whole)
        for place in dice.sample(range(len(data)), 4):
            data[place] = dice.randrange(256)
        try:
            made = Library(bytes(data[: dice.choice([len(data), dice.randrange(len(data))])]))
            made.number("plugin_version"), made.text("plugin_type")
        except ElfError:
            continue


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here (package gcc): compiled libraries are not read")
@pytest.mark.parametrize("hashes", ["gnu", "sysv", "both"])
@pytest.mark.parametrize("stripped", [False, True])
def test_what_a_compiler_makes_is_read(tmp_path: Path, hashes: str, stripped: bool) -> None:
    (tmp_path / "x.c").write_text(SOURCE)
    (tmp_path / "x.lds").write_text(SCRIPT)
    argv = ["cc", "-shared", "-fPIC", f"-Wl,--hash-style={hashes}", "-o", "x.so", "x.c", "x.lds"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    if stripped and shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", "x.so"], cwd=tmp_path, check=True)
    data = bytearray((tmp_path / "x.so").read_bytes())
    if stripped:
        data[40:48] = b"\0" * 8  # no section headers either
    made = Library(bytes(data))
    assert (made.number("plugin_version"), made.text("plugin_type")) == (0x180B05, "spank")
    assert {"plugin_name", "slurm_spank_init"} <= set(made.symbols)
    assert not {"narrow", "hidden_one", "elsewhere"} & set(made.symbols)
