# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._elf import ElfError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.pyxis_fit import (
    InstalledSlurm,
    ObservedPyxis,
    from_header,
    from_number,
    from_text,
    headers_problem,
    misfits,
    read_plugin,
    remarks,
)
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.elf_made import library, spank

OLD, NEW, NEWER = InstalledSlurm(22, 5, 8), InstalledSlurm(24, 11, 5), InstalledSlurm(26, 5, 5)
PATH = "/usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"


@pytest.mark.parametrize(
    "text, version",
    [
        ("slurm-wlm 24.11.5\n", NEW),  # Debian 13: slurmd -V
        ("slurm-wlm 22.05.8\n", OLD),  # Debian 12
        ("slurm 25.11.0-0rc1\n", InstalledSlurm(25, 11, 0)),
        ("SLURM_VERSION           = 24.11.5", NEW),
        ("", None),
        ("srun: fatal: Could not establish a configuration source", None),
        ("slurm 10.0.0.1", None),
    ],
)
def test_versions_are_read_from_what_programs_print(text: str, version: InstalledSlurm | None) -> None:
    assert from_text(text) == version


@pytest.mark.parametrize(
    "text, version",
    [
        ("#define SLURM_VERSION_NUMBER 0x180b05\n", NEW),
        ("#undef SLURM_VERSION_NUMBER\n#define SLURM_VERSION_NUMBER 0x160508\n", OLD),
        ("/* #define SLURM_VERSION_NUMBER */\n#define SLURM_VERSION_NUM(a,b,c) (((a) << 16))\n", None),
    ],
)
def test_versions_are_read_from_headers(text: str, version: InstalledSlurm | None) -> None:
    assert from_header(text) == version


def test_a_version_reads_as_slurm_writes_it() -> None:
    assert (str(from_number(0x160508)), OLD.release, str(NEWER)) == ("22.05.8", "22.05", "26.05.5")


def test_only_the_release_counts() -> None:
    assert NEW.loads(InstalledSlurm(24, 11, 0)) and not NEW.loads(InstalledSlurm(24, 5, 5)) and not NEW.loads(NEWER)


def test_a_plugin_says_what_it_is() -> None:
    assert read_plugin(spank(0x180B05)) == ("pyxis", NEW)
    with pytest.raises(ElfError, match="type cgroup/v1, not spank"):
        read_plugin(spank(0x180B05, kind="cgroup/v1"))
    with pytest.raises(ElfError, match="no symbol plugin_type"):
        read_plugin(library({"a": 1}))


@pytest.mark.parametrize(
    "seen, said",
    [
        (ObservedPyxis(), []),
        (ObservedPyxis(slurmd=NEW, client=NEW), []),
        (ObservedPyxis(plugin=NEW), []),  # slurmd comes later
        (ObservedPyxis(plugin=InstalledSlurm(24, 11, 1), slurmd=NEW, client=NEW), []),
        (
            ObservedPyxis(plugin=OLD, slurmd=NEW, client=NEW),
            ["for Slurm 22.05.8", "slurmd here is 24.11.5 and srun here is 24.11.5"],
        ),
        (
            ObservedPyxis(plugin=NEW, slurmd=NEW, client=NEWER),
            ["for Slurm 24.11.5", "srun here is 26.05.5", "Build it for 26.05"],
        ),
    ],
)
def test_a_misfit_names_both_versions_and_the_way_out(seen: ObservedPyxis, said: list[str]) -> None:
    found = misfits(seen, PATH)
    assert len(found) == bool(said)
    assert all(part in found[0] for part in [*said, PATH, "pyxis_state: absent"]) if said else not found


@pytest.mark.parametrize(
    "seen, said",
    [
        (ObservedPyxis(NEW, NEW, NEW, NEW, NEW), []),
        (ObservedPyxis(NEW, NEW, NEW, OLD, NEW), ["slurmd 22.05.8 runs, but 24.11.5 is installed"]),
        (ObservedPyxis(NEW, NEW, NEW, NEW, OLD), ["slurmctld is 22.05.8"]),
        (ObservedPyxis(NEW, NEW, NEW, NEW, NEWER), []),  # as it is in the middle of an upgrade
        (ObservedPyxis(slurmd=NEW), []),
    ],
)
def test_what_else_does_not_agree_is_remarked(seen: ObservedPyxis, said: list[str]) -> None:
    found = remarks(seen)
    assert len(found) == len(said) and all(part in text for part, text in zip(said, found))


def test_headers_of_another_release_are_refused_with_both_versions() -> None:
    assert headers_problem(None, "/usr/include/slurm", NEW, "it") == ""
    assert headers_problem(NEW, "/usr/include/slurm", InstalledSlurm(24, 11, 0), "it") == ""
    said = headers_problem(OLD, "/usr/include/slurm", NEW, "the Slurm that runs")
    assert (
        "/usr/include/slurm are of Slurm 22.05.8, the Slurm that runs is 24.11.5" in said
        and "24.11 (libslurm-dev" in said
    )
