# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where environments are kept, on a directory that all nodes see. Private.

``envs/<name>`` is one environment and complete when its manifest is there; until then ``envs/.<name>.building`` marks
it. ``envs/.<name>.json`` holds what is learned later: where it was proved, and when a link left it. A link beside
``envs`` points to the one in use, ``<link>.previous`` to the one before.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_plan import NAME, Environment

MANIFEST = "manifest.json"
_GONE = ".gone-"
_LITTLE = 1 << 20


class Store:
    def __init__(self, path: str) -> None:
        self.root = Path(path)
        self.envs = self.root / "envs"
        self.lock = self.envs / ".lock"

    def target(self, name: str) -> Path:
        return self.envs / name

    def manifest(self, name: str) -> dict[str, t.Any]:
        return _read(self.envs / name / MANIFEST)

    def state(self, name: str) -> dict[str, t.Any]:
        return _read(self.envs / f".{name}.json")

    def remember(self, name: str, **known: t.Any) -> None:
        _write(self.envs / f".{name}.json", {**self.state(name), **known})

    def there(self) -> list[Environment]:
        """Return the complete environments."""
        names = [one.name for one in _entries(self.envs) if NAME.fullmatch(one.name) and self.manifest(one.name)]
        return [
            Environment(one, float(self.manifest(one).get("made", 0)), self.state(one).get("retired")) for one in names
        ]

    def goal(self, link: str) -> str:
        """Return the name of the environment that a link points to; empty when there is none."""
        with contextlib.suppress(OSError):
            return os.path.basename(os.readlink(self.root / link))  # noqa: PTH119 - of what the link says
        return ""

    def linked(self) -> set[str]:
        return {self.goal(one.name) for one in _entries(self.root) if one.is_symlink()} - {""}

    def unfinished(self) -> list[str]:
        """Return environments that an interrupted run left half made or half removed."""
        marks = [one.name[1 : -len(".building")] for one in self.envs.glob(".*.building")]
        gone = [one.name for one in self.envs.glob(f"{_GONE}*")]
        return sorted([name for name in marks if not self.manifest(name)] + gone)

    def clean(self) -> None:
        for name in self.unfinished():
            shutil.rmtree(self.envs / name, ignore_errors=True)
        for mark in [*self.envs.glob(".*.building"), *self.envs.glob(".cache-*")]:
            shutil.rmtree(mark) if mark.is_dir() else mark.unlink()

    def begin(self, name: str) -> Path:
        (self.envs / f".{name}.building").touch()
        shutil.rmtree(self.envs / name, ignore_errors=True)
        return self.envs / name

    def abandon(self, name: str) -> None:
        shutil.rmtree(self.envs / name, ignore_errors=True)
        (self.envs / f".{name}.building").unlink(missing_ok=True)

    def finish(self, name: str, content: t.Mapping[str, t.Any]) -> None:
        """Make a built environment one that may be used."""
        _write(self.envs / name / MANIFEST, content)
        (self.envs / f".{name}.building").unlink()

    def drop(self, name: str) -> None:
        """Remove an environment; its name is gone before its files are."""
        with contextlib.suppress(FileNotFoundError):
            (self.envs / name).rename(self.envs / f"{_GONE}{name}")
        shutil.rmtree(self.envs / f"{_GONE}{name}", ignore_errors=True)
        (self.envs / f".{name}.json").unlink(missing_ok=True)

    def point(self, link: str, name: str) -> None:
        """Move a link in one step, never a moment without one."""
        fresh = self.root / f".{link}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(f"envs/{name}")
        os.replace(fresh, self.root / link)  # noqa: PTH105 - a rename over the old link

    def free(self) -> int:
        known = os.statvfs(self.envs if self.envs.exists() else self.root)
        return known.f_bavail * known.f_frsize

    def full(self) -> bool:
        """Return whether next to no space, or no further file, is left; a quota is not seen."""
        known = os.statvfs(self.envs)
        return known.f_bavail * known.f_frsize < _LITTLE or known.f_files > 0 == known.f_favail


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> dict[str, t.Any]:
    """Read a file of ours; one that was cut short is none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: t.Mapping[str, t.Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with fresh.open("w") as out:
        json.dump(content, out, indent=2, sort_keys=True)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)
