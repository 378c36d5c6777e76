# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nodes as they were asked for to node arrays of CycleCloud. Private."""

from __future__ import annotations

import typing as t

Json = t.Dict[str, t.Any]


class ArrayError(ValueError):
    """A node array cannot be made of this; the text is fit for the user."""


def node_arrays(nodes: t.Sequence[Json], preflight: Json) -> list[Json]:
    """Return one node array for each entry, its image pinned and its GPUs counted as the preflight found them."""
    known = {node["name"]: node for node in preflight.get("nodes") or []}
    pins = preflight.get("images") or {}
    return [_array(node, known.get(node["name"], {}), pins) for node in nodes]


def _array(node: Json, known: Json, pins: Json) -> Json:
    image = str((pins.get(node.get("image", "")) or {}).get("urn") or node.get("image", ""))
    if image.endswith(":latest"):
        raise ArrayError(
            f"image {image} of {node['name']} is not pinned, and no preflight has looked which version it is; name one,"
            " or leave azure_infra_preflight on"
        )
    gpus = known.get("gpus") if node.get("gpus") is None else node["gpus"]
    rdma = known.get("rdma") if node.get("rdma") is None else node["rdma"]
    return {
        "name": node["name"],
        "machine_type": node["size"],
        "image": image,
        "max_nodes": int(node.get("count", 1)),
        "gpus": int(gpus or 0),
        "spot": bool(node.get("spot", False)),
        "zone": str(node.get("zone", "")),
        "hpc": rdma is not False,
    }
