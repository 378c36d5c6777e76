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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._elf import ElfError, Library
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

# For which Slurm a SPANK plugin was built, and whether the installed Slurm loads it.


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
    """The versions on one host; None where it lacks the program, or the program does not answer.

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
    """Return name and Slurm version from the library's symbols; raises ElfError when it is no SPANK plugin."""
    library = Library(data)
    kind = library.text("plugin_type")
    if kind != "spank":
        raise ElfError(f"it is a plugin of type {kind or 'unknown'}, not spank")
    return Plugin(library.text("plugin_name"), from_number(library.number("plugin_version")))


def misfits(observed: ObservedPyxis, path: str) -> list[str]:
    """Say why Slurm would not load the plugin here; then no job step starts at all, with containers or without."""
    if observed.plugin is None:
        return []
    programs = {"slurmd": observed.slurmd, "srun": observed.client}
    wrong = {name: version for name, version in programs.items() if version and not version.loads(observed.plugin)}
    if not wrong:
        return []
    here = " and ".join(f"{name} here is {version}" for name, version in wrong.items())
    release = next(iter(wrong.values())).release
    return [
        f"{path} was built for Slurm {observed.plugin}, but {here}. Slurm loads plugins of its own release "
        f"({release}.x) only, and with this one in plugstack.conf no job step starts. Build it for {release} (role "
        f"pyxis with the headers of that release on pyxis_build_host), or remove it (pyxis_state: absent)"
    ]


def remarks(observed: ObservedPyxis) -> list[str]:
    """Say which other versions do not agree; none of that keeps the plugin from loading."""
    texts = []
    if observed.running and observed.slurmd and observed.running[:2] != observed.slurmd[:2]:
        texts.append(
            f"slurmd {observed.running} runs, but {observed.slurmd} is installed: it was not restarted since the "
            f"upgrade, and what it starts for a job step is already {observed.slurmd}. Restart slurmd, jobs go on"
        )
    newer = observed.running or observed.slurmd or observed.client
    if observed.controller and newer and newer[:2] > observed.controller[:2]:
        texts.append(
            f"Slurm here is {newer}, slurmctld is {observed.controller}: slurmctld has to be upgraded first "
            "(playbook upgrade_slurm.yml)"
        )
    return texts


def headers_problem(headers: InstalledSlurm | None, folder: str, required: InstalledSlurm | None, owner: str) -> str:
    """Say why the headers are not those to build with; empty when they are."""
    if headers is None or required is None or required.loads(headers):
        return ""
    return (
        f"the headers in {folder} are of Slurm {headers}, {owner} is {required}: Slurm {required} would not load "
        f"what is built with them. Install those of {required.release} (libslurm-dev in the version of the installed "
        "Slurm), "
        "or name the directory of that Slurm as slurm_home"
    )


# Reading a host: Slurm's programs, headers and daemons, the plugin and its drop-in.


PACKAGE = "nvslurm-plugin-pyxis"
PLUGIN = "spank_pyxis.so"
DROP_IN = "/etc/slurm/plugstack.conf.d/pyxis.conf"
_SECONDS = 20.0
# Enough for a command to say its version: it reads slurm.conf first, and there may be none yet.
PROBE = "ClusterName=probe\nSlurmctldHost=localhost\n"


def program(name: str, home: str) -> str:
    """Return the path of one of Slurm's programs; empty when it is not installed."""
    folders = [f"{home}/sbin", f"{home}/bin"] if home else [*os.environ.get("PATH", "").split(":"), "/usr/sbin"]
    return shutil.which(name, path=":".join(folders)) or ""


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
    # scontrol tries twice where slurmd does not answer, for MessageTimeout each time.
    slurmd = run([client, "show", "slurmd"], _SECONDS)
    config = run([client, "show", "config"], _SECONDS)
    return _labelled(slurmd.out, "Version"), _labelled(config.out, "SLURM_VERSION")


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
    outcome = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=False)  # noqa: S607
    if outcome.returncode != 0:
        raise ElfError(f"{deb} is no whole package: {outcome.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(outcome.stdout)) as content:
        for member in content.getmembers():
            file = content.extractfile(member) if Path(member.name).name == PLUGIN and member.isfile() else None
            if file:
                try:
                    return read_plugin(file.read())
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
