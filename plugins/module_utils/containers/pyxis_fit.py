# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which Slurm a SPANK plugin was built, and whether the Slurm here loads it. No I/O; private.

Slurm compares its own SLURM_VERSION_NUMBER with the plugin's symbol ``plugin_version``, without the last byte:
``mask = 0xffff00`` in ``_verify_syms`` of Slurm's src/common/plugin.c, the same in 22.05 to 26.05.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.elf import ElfError, Library


class Slurm(t.NamedTuple):
    """A version of Slurm; the release is what a plugin is built for."""

    major: int
    minor: int
    micro: int

    def __str__(self) -> str:
        return f"{self.release}.{self.micro}"

    @property
    def release(self) -> str:
        return f"{self.major}.{self.minor:02d}"

    def loads(self, plugin: Slurm) -> bool:
        return self[:2] == plugin[:2]


class Plugin(t.NamedTuple):
    name: str
    slurm: Slurm


class Seen(t.NamedTuple):
    """What one host has; None is what it does not have, or does not tell.

    ``slurmd`` and ``client`` are installed programs, ``running`` is the slurmd that answers here.
    """

    plugin: Slurm | None = None
    slurmd: Slurm | None = None
    client: Slurm | None = None
    running: Slurm | None = None
    controller: Slurm | None = None


def from_number(number: int) -> Slurm:
    return Slurm(number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF)


def from_text(text: str) -> Slurm | None:
    """Read the version out of ``slurm-wlm 24.11.5`` or ``SLURM_VERSION = 22.05.8``."""
    match = re.search(r"(?<![\d.])(\d{2})\.(\d{2})\.(\d{1,2})(?!\d)", text)
    return Slurm(*map(int, match.groups())) if match else None


def from_header(text: str) -> Slurm | None:
    """Read the version out of slurm_version.h: a number since 21.08."""
    match = re.search(r"^#define\s+SLURM_VERSION_NUMBER\s+(0x[0-9a-fA-F]+)", text, re.MULTILINE)
    return from_number(int(match.group(1), 16)) if match else None


def read_plugin(data: bytes) -> Plugin:
    """Say what a library is, by its own symbols; raises ElfError when it is no SPANK plugin."""
    library = Library(data)
    kind = library.text("plugin_type")
    if kind != "spank":
        raise ElfError(f"it is a plugin of type {kind or 'unknown'}, not spank")
    return Plugin(library.text("plugin_name"), from_number(library.number("plugin_version")))


def misfits(seen: Seen, path: str) -> list[str]:
    """Say why Slurm would not load the plugin here; then it starts no job step at all, with containers or without."""
    if seen.plugin is None:
        return []
    programs = {"slurmd": seen.slurmd, "srun": seen.client}
    wrong = {name: version for name, version in programs.items() if version and not version.loads(seen.plugin)}
    if not wrong:
        return []
    here = " and ".join(f"{name} here is {version}" for name, version in wrong.items())
    release = next(iter(wrong.values())).release
    return [
        f"{path} was built for Slurm {seen.plugin}, but {here}. Slurm loads plugins of its own release ({release}.x) "
        f"only, and with this one in plugstack.conf no job step starts. Build it for {release} (role pyxis with the "
        f"headers of that release on pyxis_build_host), or remove it (pyxis_state: absent)"
    ]


def remarks(seen: Seen) -> list[str]:
    """Say what else does not agree, none of which keeps the plugin from loading."""
    said = []
    if seen.running and seen.slurmd and seen.running[:2] != seen.slurmd[:2]:
        said.append(
            f"slurmd {seen.running} runs, but {seen.slurmd} is installed: it was not restarted since the upgrade, and "
            f"what it starts for a job step is already {seen.slurmd}. Restart slurmd, jobs go on"
        )
    newer = seen.running or seen.slurmd or seen.client
    if seen.controller and newer and newer[:2] > seen.controller[:2]:
        said.append(
            f"Slurm here is {newer}, slurmctld is {seen.controller}: slurmctld has to be upgraded first "
            "(playbook upgrade_slurm.yml)"
        )
    return said


def headers_problem(headers: Slurm | None, place: str, wanted: Slurm | None, whose: str) -> str:
    """Say why the headers are not those to build with; empty when they are."""
    if headers is None or wanted is None or wanted.loads(headers):
        return ""
    return (
        f"the headers in {place} are of Slurm {headers}, {whose} is {wanted}: Slurm {wanted} would not load what is "
        f"built with them. Install those of {wanted.release} (libslurm-dev in the version of the installed Slurm), "
        "or name the directory of that Slurm as slurm_home"
    )
