# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the pyxis plugin fits the Slurm that loads it."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.elf import ElfError, Library

# For which Slurm a SPANK plugin was built, and whether the Slurm here loads it. No I/O; private.


class InstalledSlurm(t.NamedTuple):
    """A version of Slurm; the release is what a plugin is built for."""

    major: int
    minor: int
    micro: int

    def __str__(self) -> str:
        return f"{self.release}.{self.micro}"

    @property
    def release(self) -> str:
        return f"{self.major}.{self.minor:02d}"

    def loads(self, plugin: InstalledSlurm) -> bool:
        return self[:2] == plugin[:2]


class Plugin(t.NamedTuple):
    name: str
    slurm: InstalledSlurm


class ObservedPyxis(t.NamedTuple):
    """What one host has; None is what it does not have, or does not tell.

    ``slurmd`` and ``client`` are installed programs, ``running`` is the slurmd that answers here.
    """

    plugin: InstalledSlurm | None = None
    slurmd: InstalledSlurm | None = None
    client: InstalledSlurm | None = None
    running: InstalledSlurm | None = None
    controller: InstalledSlurm | None = None


def from_number(number: int) -> InstalledSlurm:
    return InstalledSlurm(number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF)


def from_text(text: str) -> InstalledSlurm | None:
    """Read the version out of ``slurm-wlm 24.11.5`` or ``SLURM_VERSION = 22.05.8``."""
    match = re.search(r"(?<![\d.])(\d{2})\.(\d{2})\.(\d{1,2})(?!\d)", text)
    return InstalledSlurm(*map(int, match.groups())) if match else None


def from_header(text: str) -> InstalledSlurm | None:
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


def misfits(seen: ObservedPyxis, path: str) -> list[str]:
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


def remarks(seen: ObservedPyxis) -> list[str]:
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


def headers_problem(headers: InstalledSlurm | None, place: str, wanted: InstalledSlurm | None, whose: str) -> str:
    """Say why the headers are not those to build with; empty when they are."""
    if headers is None or wanted is None or wanted.loads(headers):
        return ""
    return (
        f"the headers in {place} are of Slurm {headers}, {whose} is {wanted}: Slurm {wanted} would not load what is "
        f"built with them. Install those of {wanted.release} (libslurm-dev in the version of the installed Slurm), "
        "or name the directory of that Slurm as slurm_home"
    )


# What a host has of Slurm and pyxis: programs, headers, daemons that run, the plugin and its drop-in.


PACKAGE = "nvslurm-plugin-pyxis"
PLUGIN = "spank_pyxis.so"
DROP_IN = "/etc/slurm/plugstack.conf.d/pyxis.conf"
_SECONDS = 20.0
# Enough for a command to say its version: it reads slurm.conf first, and there may be none yet.
PROBE = "ClusterName=probe\nSlurmctldHost=localhost\n"


def program(name: str, home: str) -> str:
    """Return the path of one of Slurm's programs; empty when it is not there."""
    places = [f"{home}/sbin", f"{home}/bin"] if home else [*os.environ.get("PATH", "").split(":"), "/usr/sbin"]
    return shutil.which(name, path=":".join(places)) or ""


def installed(home: str) -> tuple[InstalledSlurm | None, InstalledSlurm | None]:
    """Return the versions of slurmd and of the commands that are installed here."""
    slurmd, client = program("slurmd", home), program("scontrol", home)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as probe:
        probe.write(PROBE)
        probe.flush()
        return (
            from_text(run([slurmd, "-V"], _SECONDS).out) if slurmd else None,
            from_text(run([client, "--version"], _SECONDS, environment={"SLURM_CONF": probe.name}).out)
            if client
            else None,
        )


def running(home: str) -> tuple[InstalledSlurm | None, InstalledSlurm | None]:
    """Return the versions of the slurmd that runs here and of slurmctld, as far as they answer."""
    client = program("scontrol", home)
    if not client:
        return None, None
    # A slurmd that does not answer is asked twice over, for MessageTimeout each time; its process is not.
    here = run([client, "show", "slurmd"], _SECONDS)
    there = run([client, "show", "config"], _SECONDS)
    return _labelled(here.out, "Version"), _labelled(there.out, "SLURM_VERSION")


def _labelled(text: str, label: str) -> InstalledSlurm | None:
    match = re.search(rf"^{label}\s*=\s*(\S+)", text, re.MULTILINE)
    return from_text(match.group(1)) if match else None


def include_dir(home: str) -> str:
    return f"{home or '/usr'}/include"


def headers(home: str) -> tuple[InstalledSlurm | None, str]:
    """Return the version of the headers and a digest of them; None and nothing when there are none."""
    folder = Path(include_dir(home), "slurm")
    try:
        version = from_header((folder / "slurm_version.h").read_text())
        digest = hashlib.sha256()
        for path in sorted(folder.glob("*.h")):
            digest.update(f"{path.name}\n".encode() + path.read_bytes())
    except OSError:
        return None, ""
    return version, digest.hexdigest() if version and (folder / "spank.h").is_file() else ""


def plugin(path: str) -> Plugin | None:
    """Read an installed plugin; None when there is none."""
    try:
        return read_plugin(Path(path).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ElfError(f"{path} cannot be read: {exc.strerror}") from exc
    except ElfError as exc:
        raise ElfError(f"{path}: {exc}") from exc


def packed(deb: str) -> Plugin:
    """Read the plugin inside a package that is not installed."""
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=False)  # noqa: S607
    if done.returncode != 0:
        raise ElfError(f"{deb} is no whole package: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as content:
        for member in content.getmembers():
            found = content.extractfile(member) if Path(member.name).name == PLUGIN and member.isfile() else None
            if found:
                try:
                    return read_plugin(found.read())
                except ElfError as exc:
                    raise ElfError(f"{member.name} in {deb}: {exc}") from exc
    raise ElfError(f"{deb} holds no {PLUGIN}")


def used(text: str) -> tuple[str, list[str]]:
    """Return the plugin and the options that a drop-in names; nothing when it names none."""
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if len(words) > 1 and words[0] in ("required", "optional"):
            return words[1], words[2:]
    return "", []


def read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
