# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tools that an environment lacks, unpacked beside a build: an environment in use is never changed. Private."""

from __future__ import annotations

import re
import shutil
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_release import ApexError


def provide(names: t.Sequence[str], wheels: str | None, into: Path) -> str:
    """Unpack the wheels of ``names``; programs come into ``bin``. Return pip's version when it is among them."""
    into.mkdir(parents=True)
    pip = ""
    for name in names:
        found = sorted(Path(wheels or "").glob(f"{name}-*.whl")) if wheels else []
        if len(found) != 1:
            raise ApexError(f"tools ({wheels}) must hold one wheel of {name}, not {len(found)}")
        _unpack(found[0], into)
        pip = found[0].name.split("-")[1] if name == "pip" else pip
    return pip


def _unpack(wheel: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as content:
            content.extractall(into)
    except (zipfile.BadZipFile, OSError) as exc:
        raise ApexError(f"{wheel} cannot be unpacked: {exc}") from exc
    for scripts in into.glob("*.data/scripts"):
        (into / "bin").mkdir(exist_ok=True)
        for script in scripts.iterdir():
            shutil.move(str(script), str(into / "bin" / script.name))
    for path in [*(into / "bin").glob("*"), *into.glob("ninja/data/bin/*")]:
        path.chmod(0o755)


def pip_version(unpacked: str, facts: t.Mapping[str, t.Any]) -> str:
    """Return the version of the pip that builds: what is unpacked comes first on the path."""
    version = unpacked or str(facts["tools"]["pip"])
    if not re.match(r"\d+\.\d+", version):
        raise ApexError(f"pip says that it is version {version!r}")
    return version
