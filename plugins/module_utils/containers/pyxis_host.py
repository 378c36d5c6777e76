# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has of Slurm and pyxis: programs, headers, daemons that run, the plugin and its drop-in. Private."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_fit as fit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.elf import ElfError

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


def installed(home: str) -> tuple[fit.Slurm | None, fit.Slurm | None]:
    """Return the versions of slurmd and of the commands that are installed here."""
    slurmd, client = program("slurmd", home), program("scontrol", home)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as probe:
        probe.write(PROBE)
        probe.flush()
        return (
            fit.from_text(run([slurmd, "-V"], _SECONDS).out) if slurmd else None,
            fit.from_text(run([client, "--version"], _SECONDS, environment={"SLURM_CONF": probe.name}).out)
            if client
            else None,
        )


def running(home: str) -> tuple[fit.Slurm | None, fit.Slurm | None]:
    """Return the versions of the slurmd that runs here and of slurmctld, as far as they answer."""
    client = program("scontrol", home)
    if not client:
        return None, None
    # A slurmd that does not answer is asked twice over, for MessageTimeout each time; its process is not.
    here = run([client, "show", "slurmd"], _SECONDS)
    there = run([client, "show", "config"], _SECONDS)
    return _labelled(here.out, "Version"), _labelled(there.out, "SLURM_VERSION")


def _labelled(text: str, label: str) -> fit.Slurm | None:
    match = re.search(rf"^{label}\s*=\s*(\S+)", text, re.MULTILINE)
    return fit.from_text(match.group(1)) if match else None


def include_dir(home: str) -> str:
    return f"{home or '/usr'}/include"


def headers(home: str) -> tuple[fit.Slurm | None, str]:
    """Return the version of the headers and a digest of them; None and nothing when there are none."""
    folder = Path(include_dir(home), "slurm")
    try:
        version = fit.from_header((folder / "slurm_version.h").read_text())
        digest = hashlib.sha256()
        for path in sorted(folder.glob("*.h")):
            digest.update(f"{path.name}\n".encode() + path.read_bytes())
    except OSError:
        return None, ""
    return version, digest.hexdigest() if version and (folder / "spank.h").is_file() else ""


def plugin(path: str) -> fit.Plugin | None:
    """Read an installed plugin; None when there is none."""
    try:
        return fit.read_plugin(Path(path).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ElfError(f"{path} cannot be read: {exc.strerror}") from exc
    except ElfError as exc:
        raise ElfError(f"{path}: {exc}") from exc


def packed(deb: str) -> fit.Plugin:
    """Read the plugin inside a package that is not installed."""
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=False)  # noqa: S607
    if done.returncode != 0:
        raise ElfError(f"{deb} is no whole package: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as content:
        for member in content.getmembers():
            found = content.extractfile(member) if Path(member.name).name == PLUGIN and member.isfile() else None
            if found:
                try:
                    return fit.read_plugin(found.read())
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
