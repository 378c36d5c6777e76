# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How pyxis is built, and from what: no I/O, no AnsibleModule, private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import package_store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_fit as fit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.pyxis_host import PACKAGE

# Raised when the commands or the fields below change in a way that makes another package.
RECIPE = 1

_SLURM_PACKAGES = ("slurmd", "slurm-client", "slurm-smd-slurmd", "slurm-smd-client")


class PyxisError(ValueError):
    """pyxis cannot be built or used; the text is fit for the user."""


class Inputs(t.NamedTuple):
    """All that decides what a build makes; None stands for what this host cannot tell."""

    source: str
    slurm: str | None
    headers: str | None
    compiler: str | None
    home: str
    architecture: str
    recipe: int = RECIPE


def same(wanted: Inputs, built: t.Mapping[str, t.Any]) -> bool:
    """Return whether a package is the wanted one, as far as this host can tell: its compiler may be gone."""
    return all(value is None or built.get(key) == value for key, value in wanted._asdict().items())


def version(makefile: str) -> str:
    """Read the version of pyxis out of its makefile."""
    match = re.search(r"^PYXIS_VER\s*\??=\s*(\d[\w.]*)\s*$", makefile, re.MULTILINE)
    if not match:
        raise PyxisError("the source is not pyxis: its Makefile sets no PYXIS_VER")
    return match.group(1)


def full_version(pyxis: str, inputs: Inputs) -> str:
    """Return the version of the package, e.g. ``0.24.0+slurm24.11.5+hpcai.3f1c52a09b7e``."""
    return package_store.version(f"{pyxis}+slurm{inputs.slurm}", inputs._asdict())


def step(source: str, tree: str, inputs: Inputs, machine: str, home: str) -> Step:
    """Return the command that builds; the places are those of NVIDIA's own package."""
    argv = ["make", "-C", source, f"DESTDIR={tree}", "prefix=/usr", f"libdir=/usr/lib/{machine}-linux-gnu"]
    # From the environment, for on the command line they would take the place of the makefile's own. The second makes
    # the same inputs the same file, wherever it is built.
    flags = {"CFLAGS": f"-ffile-prefix-map={source}=/usr/src/pyxis", "CPPFLAGS": f"-I{home}/include" if home else ""}
    return Step([*argv, "datarootdir=/usr/share", "install"], flags)


def fields(pyxis: str, inputs: Inputs, slurm: fit.Slurm, libc: str) -> dict[str, str]:
    """Return the control fields of the package."""
    found = {
        "Package": PACKAGE,
        "Version": full_version(pyxis, inputs),
        "Architecture": inputs.architecture,
        "Maintainer": "hpcai.gpu_cluster <root@localhost>",
        "Section": "admin",
        "Priority": "optional",
        "Homepage": "https://github.com/NVIDIA/pyxis",
        "Depends": f"libc6 (>= {libc})",
        "Recommends": "enroot (>= 3.1.0) | enroot-hardened (>= 3.1.0)",
        "Description": f"Slurm plugin for containerized job steps, built for Slurm {slurm.release}\n"
        f"Built by role hpcai.gpu_cluster.pyxis from {inputs.source} with the headers of Slurm {slurm}.",
    }
    if not inputs.home:
        # An upgrade of everything then leaves Slurm alone, instead of a node where no job step starts.
        after = f"{slurm.major}.{slurm.minor + 1:02d}~"
        found["Breaks"] = ", ".join(f"{name} (<< {slurm.release}), {name} (>= {after})" for name in _SLURM_PACKAGES)
    return found
