# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where wheels of Apex are kept: ``<directory>/apex-<digest>`` holds one with its manifest. Private."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import digest, same
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_release import ApexError

Json = t.Dict[str, t.Any]
MANIFEST = "manifest.json"
LOCK = ".apex.lock"
_STAGED = ".apex-"


def folder(directory: str, wanted: t.Mapping[str, t.Any]) -> Path:
    return Path(directory, f"apex-{digest(wanted)}")


def find(directory: str, wanted: t.Mapping[str, t.Any]) -> Json:
    """Return the manifest of the wheel that is wanted, with its path; empty when there is none."""
    for path in sorted(Path(directory).glob(f"apex-*/{MANIFEST}")):
        found = _manifest(path)
        wheel = path.parent / str(found.get("wheel"))
        if same(wanted, found.get("inputs", {})) and wheel.is_file():
            return {**found, "path": str(wheel)}
    return {}


def _manifest(path: Path) -> Json:
    """Read a manifest; one that was cut short by a full disk is none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def prepare(directory: str) -> None:
    try:
        Path(directory).mkdir(mode=0o755, parents=True, exist_ok=True)
        Path(directory, LOCK).touch()
    except OSError as exc:
        raise ApexError(f"wheels cannot be kept in {directory}: {exc.strerror}") from exc


def stage(directory: str, made: str) -> Path:
    """Put a wheel and its content beside the place where it will be; what a build that was killed left there goes."""
    for path in Path(directory).glob(f"{_STAGED}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
    wheels = sorted(Path(made).glob("*.whl"))
    if len(wheels) != 1:
        raise ApexError(f"the build ended well, but made {len(wheels)} wheels instead of one")
    staged = Path(tempfile.mkdtemp(prefix=_STAGED, dir=directory))
    staged.chmod(0o755)
    shutil.copy(wheels[0], staged / wheels[0].name)
    shutil.unpack_archive(str(wheels[0]), staged / "content", "zip")
    return staged


def keep(staged: Path, target: Path, content: t.Mapping[str, t.Any]) -> Json:
    """Make a proved wheel the one that its digest names, in one step, with all of it on the disk before."""
    shutil.rmtree(staged / "content")
    wheel = next(staged.glob("*.whl"))
    manifest = {**content, "wheel": wheel.name, "sha256": sha256(wheel)}
    (staged / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    for path in staged.iterdir():
        path.chmod(0o644)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    shutil.rmtree(target, ignore_errors=True)
    staged.rename(target)
    return {**manifest, "path": str(target / wheel.name)}
