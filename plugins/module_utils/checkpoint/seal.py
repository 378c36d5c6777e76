# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a checkpoint complete for readers, by one small blob that comes last and goes first. Private."""

from __future__ import annotations

import hashlib
import json
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import remote
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import MANIFEST, CheckpointError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.upload import Upload, tool

Json = t.Dict[str, t.Any]


def seal(upload: Upload) -> Json:
    """Put the manifest beside the files once every node's are there; says which blobs do not belong to them."""
    entries = _together(upload)
    with _lock.lock(upload.state() / "seal.lock"), tempfile.TemporaryDirectory() as at, tool(upload) as azcopy:
        blobs = azcopy.blobs()
        wrong = remote.differing(entries, blobs)
        if wrong:
            raise CheckpointError(
                f"{upload.place} is not complete: {wrong[0]} ({len(wrong)} of {len(entries)}) is missing"
            )
        path = Path(at, MANIFEST)
        path.write_text(remote.manifest(entries), encoding="utf-8")
        md5 = hashlib.new("md5", path.read_bytes(), usedforsecurity=False).hexdigest()
        current = blobs.get(MANIFEST) == remote.Blob(path.stat().st_size, md5)
        if MANIFEST in blobs and not current and not upload.replace:
            raise CheckpointError(f"{upload.place} has a manifest of other files; give this checkpoint another name")
        if not current and not upload.dry:
            azcopy.send(path, MANIFEST, upload.settings.least_mbps)
    size = sum(one["size"] for one in entries.values())
    return {"sealed": not current, "files": len(entries), "bytes": size, "stray": remote.stray(entries, blobs)}


def unseal(upload: Upload) -> Json:
    """Take the manifest away before files change; nobody then takes the mixture for a checkpoint."""
    with tool(upload) as azcopy:
        there = MANIFEST in azcopy.blobs()
        if there and not upload.dry:
            azcopy.remove(MANIFEST)
    return {"unsealed": there}


def _together(upload: Upload) -> remote.Entries:
    """Return the files of all nodes; two of the same name must be the same."""
    found: remote.Entries = {}
    for index in range(upload.nodes):
        path = upload.state() / f"part-{index}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise CheckpointError(f"part {index} of {upload.nodes} of {upload.directory} is not uploaded") from exc
        if record["count"] != upload.nodes:
            raise CheckpointError(f"part {index} of {upload.directory} is of {record['count']}, not of {upload.nodes}")
        for name, one in record["files"].items():
            if found.setdefault(name, one) != one:
                raise CheckpointError(f"two nodes have different files {name} in {upload.directory}")
    return found
