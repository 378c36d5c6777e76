# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where built GPU test programs are kept, and where an image may carry its own. Private.

``<prefix>/versions/<tool>-<digest>`` holds one build and its manifest and never changes; ``<prefix>/current/<tool>``
points to the one in use, so that all programs of a tool change at once; ``<prefix>/bin`` has one link per program.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import executable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.tools_recipe import Tool, digest, same

MANIFEST = "manifest.json"


def folder(prefix: str, wanted: t.Mapping[str, t.Any]) -> str:
    return f"{prefix}/versions/{wanted['tool']}-{digest(wanted)}"


def built(prefix: str, wanted: t.Mapping[str, t.Any]) -> str:
    """Return the directory of the build that is wanted; empty when there is none."""
    for path in sorted(Path(prefix, "versions").glob(f"{wanted['tool']}-*/{MANIFEST}")):
        if same(wanted, manifest(str(path)).get("inputs", {})):
            return str(path.parent)
    return ""


def manifest(path: str) -> dict[str, t.Any]:
    """Read a manifest; one that was cut short by a full disk is none."""
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def current(prefix: str, name: str) -> str:
    """Return the directory that a tool is used from; empty when there is none."""
    link = Path(prefix, "current", name)
    return str(link.resolve()) if link.is_dir() else ""


def carried(tool: Tool, extra: t.Sequence[str], good: t.Callable[[str], bool]) -> str:
    """Return the directory where the image carries a tool that is ``good``; empty when there is none."""
    for place in (*extra, *tool.places):
        for one in sorted(glob.glob(place), reverse=True):  # noqa: PTH207 - absolute, with wildcards in the middle
            if executable(f"{one}/{tool.proof}") and good(f"{one}/{tool.proof}"):
                return one
    return ""


def programs(tool: Tool, directory: str) -> list[str]:
    """Return the programs of a tool that a directory has: collectives came one by one."""
    return [name for name in tool.programs if executable(f"{directory}/{name}")]


def name(library: str, folder: str, short: str) -> None:
    """Give a library the short name that the linker looks for."""
    Path(folder).mkdir()
    Path(folder, short).symlink_to(library)


def stage(tool: Tool, made: str, target: str) -> str:
    """Copy the programs of a build beside the place where they will be; return that directory."""
    partial = Path(f"{target}.{os.uname().nodename}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in programs(tool, made):
        shutil.copy(f"{made}/{name}", partial / name)
        (partial / name).chmod(0o755)
    return str(partial)


def keep(partial: str, target: str, content: t.Mapping[str, t.Any]) -> None:
    """Make a staged build the one that its digest names; the manifest is there before the name is."""
    Path(partial, MANIFEST).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    # Another host may have made the same on a shared directory meanwhile, and may already run it.
    if manifest(f"{target}/{MANIFEST}").get("inputs") == content["inputs"]:
        shutil.rmtree(partial)
        return
    shutil.rmtree(target, ignore_errors=True)
    Path(partial).rename(target)


def links(prefix: str, tool: Tool, directory: str) -> dict[str, str]:
    """Return the links that a tool should have: path and what it points to."""
    inside = directory.startswith(f"{prefix}/versions/")
    wanted = {f"{prefix}/current/{tool.name}": os.path.relpath(directory, f"{prefix}/current") if inside else directory}
    for name in programs(tool, directory):
        wanted[f"{prefix}/bin/{name}{tool.suffix}"] = f"../current/{tool.name}/{name}"
    return wanted


def stale(prefix: str, tool: Tool, wanted: t.Mapping[str, str]) -> list[str]:
    """Return links of programs that the version in use does not have."""
    ours = [f"{prefix}/bin/{name}{tool.suffix}" for name in tool.programs]
    return [path for path in ours if os.path.islink(path) and path not in wanted]  # noqa: PTH114


def wrong(wanted: t.Mapping[str, str]) -> dict[str, str]:
    return {path: goal for path, goal in wanted.items() if not Path(path).is_symlink() or os.readlink(path) != goal}


def point(wanted: t.Mapping[str, str], gone: t.Sequence[str]) -> None:
    """Set links one by one, each in one step; the directory comes first, then programs that are new in it."""
    for path, goal in wanted.items():
        Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = f"{path}.{os.getpid()}"
        Path(fresh).unlink(missing_ok=True)
        Path(fresh).symlink_to(goal)
        os.replace(fresh, path)  # noqa: PTH105 - a rename over the old link, never a moment without one
    for path in gone:
        Path(path).unlink()
