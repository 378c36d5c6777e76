# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the inputs of a bundle to its file. Private."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import content, others, pack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.content import BundleError, File

SCHEMA = 1
# Executed by a shell that is named, but a person may not know.
_PROGRAMS = ("bootstrap.sh",)


class Wish(t.NamedTuple):
    dest: str
    collection: str
    wheels: t.Sequence[str]
    scripts: t.Mapping[str, str]
    groups: t.Sequence[str]
    variables: t.Mapping[str, t.Any]
    collections: t.Sequence[str]
    places: t.Sequence[str]
    budget: int


class Bundle(t.NamedTuple):
    files: dict[str, File]
    digest: str
    manifest: dict[str, t.Any]


def refuse(wish: Wish) -> None:
    """Say everything that is wrong with the inputs."""
    wrong = [
        f"{path} looks like a secret, and whoever has the bundle reads it"
        for path in pack.secrets(dict(wish.variables))
    ]
    if "slurm_compute" not in wish.groups:
        wrong.append("node_bundle_groups lacks slurm_compute, and node.yml is for that group")
    slurm = wish.variables.get("cluster_slurm", "ours")
    if slurm not in ("ours", "cyclecloud"):
        wrong.append(f"cluster_slurm is {slurm!r}; accepted: ours, cyclecloud")
    if slurm == "ours":
        needed = ("cluster_name", "slurm_controller_hosts")
        wrong += [
            f"{name} is missing, and slurmd needs it (cluster_slurm is ours)"
            for name in needed
            if not wish.variables.get(name)
        ]
    if not wish.variables.get("cluster_sku"):
        wrong.append("cluster_sku is missing: tuning, scratch and health check follow the machine type")
    if wish.budget < 1:
        wrong.append(f"the budget is {wish.budget} seconds")
    if wrong:
        raise BundleError("; ".join(wrong))


def build(wish: Wish, check: bool = False) -> Bundle:
    """Read what belongs to a bundle; in check mode the wheels may be still to come."""
    refuse(wish)
    ours, roles = content.collection(Path(wish.collection))
    files = {f"collections/ansible_collections/hpcai/gpu_cluster/{path}": file for path, file in ours.items()}
    for name in wish.collections:
        below = "/".join(["collections/ansible_collections", *name.split(".")])
        files.update({f"{below}/{path}": file for path, file in others.whole(name, wish.places).items()})
    wheels = [Path(folder).expanduser() for folder in wish.wheels]
    packages = {} if check and not all(folder.is_dir() for folder in wheels) else others.site(wheels)
    files.update({f"site/{path}": file for path, file in packages.items()})
    for name, text in wish.scripts.items():
        files[name] = File(text.encode(), 0o755 if name in _PROGRAMS else 0o644)
    inventory: dict[str, t.Any] = {group: {"hosts": {"node": {}}} for group in wish.groups}
    files["inventory.yml"] = pack.document({"all": {"children": inventory}})
    files["vars.yml"] = pack.document(wish.variables)
    manifest = {
        "schema": SCHEMA,
        "packages": sorted({path.split(".dist-info/")[0] for path in packages if ".dist-info/" in path}),
        "collections": sorted(["hpcai.gpu_cluster", *wish.collections]),
        "roles": roles,
        "groups": list(wish.groups),
        "budget": wish.budget,
    }
    files["manifest.json"] = pack.document(manifest)
    return Bundle(files, pack.digest(pack.sums(files)), manifest)


def keep(wish: Wish, check: bool) -> tuple[bool, dict[str, t.Any]]:
    """Have the file; return whether it had to be written, and what it is."""
    bundle = build(wish, check)
    name = pack.folder(bundle.digest)
    path = Path(wish.dest).expanduser() / f"{name}.tar.gz"
    changed = not pack.intact(path, name, bundle.digest)
    if changed:
        data = pack.pack({**bundle.files, pack.SUMS: File(pack.sums(bundle.files).encode())}, name)
        if not check:
            pack.put(data, path)
    else:
        data = path.read_bytes()
    told = {"path": str(path), "name": path.name, "folder": name, "sha256": pack.sha256(data), "size": len(data)}
    return changed, {
        **told,
        "digest": bundle.digest,
        "version": pack.version(bundle.digest),
        "manifest": bundle.manifest,
    }
