# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let a release that is not installed yet read the configuration, for slurm_upgrade_trial. Private."""

from __future__ import annotations

import re
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import parse

_PLUGIN = re.compile(r"([a-z_]+)/([a-z0-9_]+)")
_BY_KIND = re.compile(r".*(type|plugin|plugins)$")
# Slurm itself takes the one name for the other (src/common/read_config.c of 26.05), or loads nothing.
_ALIASES = {"topology_default": "topology_flat"}
_WITHOUT = ("none",)
_SPOKEN = re.compile(r"error:|fatal:")


class TrialError(Exception):
    """The new release cannot be tried; the text is fit for the user."""


def plugins(text: str) -> dict[str, str]:
    """Plugins that slurm.conf asks for, by the name of their file, with the setting that does."""
    found = {}
    for key, value in parse(text).settings:
        for word in value.split(",") if _BY_KIND.match(key) else []:
            match = _PLUGIN.fullmatch(word)
            if match and match.group(2) not in _WITHOUT:
                found[f"{match.group(1)}_{match.group(2)}"] = f"{key}={value}"
        if key == "mpidefault" and value not in _WITHOUT:
            found[f"mpi_{value}"] = f"{key}={value}"
    return found


def lacking(wanted: t.Mapping[str, str], there: t.Container[str]) -> list[str]:
    """Settings whose plugin is not among those that are there."""
    names = [name for name in wanted if name not in there and _ALIASES.get(name, name) not in there]
    return [f"{wanted[name]}: the new packages hold no plugin {name}.so" for name in names]


def lost(before: t.Iterable[str], after: t.Container[str]) -> list[str]:
    """Plugins that the new packages do not bring; versions of the JSON parser come and go with every release."""
    return sorted(name for name in before if name not in after and not name.startswith("data_parser_"))


def staged(text: str, plugin_dir: str) -> str:
    """slurm.conf that loads the plugins of the trial."""
    bare = re.sub(r"^\s*plugindir\s*=.*$", "", text, flags=re.IGNORECASE | re.MULTILINE)
    return f"{bare.rstrip()}\nPluginDir={plugin_dir}\n"


def unpack(words: t.Sequence[str], stage: Path, timeout: float) -> Path:
    """Fetch the packages, checked by apt, and unpack them below ``stage``; return the directory of their plugins."""
    debs = stage / "debs"
    debs.mkdir()
    answer = run(["sh", "-c", 'cd "$1" && shift && exec apt-get -qq download "$@"', "sh", str(debs), *words], timeout)
    if answer.problem:
        raise TrialError(f"the new packages cannot be fetched: {answer.problem}")
    for deb in sorted(debs.glob("*.deb")):
        answer = run(["dpkg-deb", "-x", str(deb), str(stage / "root")], timeout)
        if answer.problem:
            raise TrialError(f"{deb.name} cannot be unpacked: {answer.problem}")
    found = sorted((stage / "root").rglob("auth_munge.so"))
    if not found:
        raise TrialError("the new packages hold no auth_munge.so; is there a package with Slurm's plugins among them?")
    return found[0].parent


def read(config: Path, stage: Path, plugin_dir: Path) -> list[str]:
    """What the new sinfo says of the configuration: it reads slurm.conf and loads what that names for a client."""
    staged_config = stage / "etc"
    shutil.copytree(config, staged_config, ignore=shutil.ignore_patterns("slurmdbd.conf"))
    path = staged_config / "slurm.conf"
    path.write_text(staged(path.read_text(), str(plugin_dir)))
    sinfo = sorted((stage / "root").rglob("bin/sinfo"))
    if not sinfo:
        raise TrialError("the new packages hold no sinfo")
    environment = {"SLURM_CONF": str(path), "LD_LIBRARY_PATH": str(plugin_dir)}
    answer = run([str(sinfo[0]), "--version"], 60, environment=environment)
    said = [line for line in f"{answer.out}\n{answer.err}".splitlines() if _SPOKEN.search(line)]
    return said or ([answer.problem] if answer.problem else [])
