# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Uploads a checkpoint: every node its part, then one the manifest, which tells readers that all is there. Private.

azcopy resumes whole files only: `jobs resume` of 10.32.2 sent all 400 MB of a file of which 108 MB had been sent, for
its test of blocks that are there is the wrong way round (ste/sender-blockBlob.go, ChunkAlreadyTransferred, 595529d). So
no job of azcopy is resumed: files that are complete in the account are left out, the others are sent.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _child, _lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files, plan, remote, site
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.azcopy import Azcopy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import MANIFEST, CheckpointError

Json = t.Dict[str, t.Any]


class Upload(t.NamedTuple):
    """One checkpoint on its way: from a directory to a place, by this one of so many nodes."""

    settings: site.Site
    directory: Path
    place: str
    node: int = 0
    nodes: int = 1
    dry: bool = False
    replace: bool = False

    def state(self) -> Path:
        """Return the directory that the nodes share to tell each other what they sent."""
        name = hashlib.sha256(f"{self.directory}\n{self.place}".encode()).hexdigest()[:24]
        path = site.private(Path(self.settings.state_dir), os.geteuid()) / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path


@contextlib.contextmanager
def tool(upload: Upload, concurrency: int = 4) -> t.Iterator[Azcopy]:
    """Give azcopy a directory and the credentials for a while."""
    secrets = site.credentials(upload.settings.credentials, os.geteuid())
    scratch = tempfile.mkdtemp(prefix="checkpoint_upload-")
    try:
        with _child.ending():
            yield Azcopy(
                upload.settings.azcopy,
                site.variables(upload.settings, secrets, scratch, concurrency),
                upload.place,
                secrets.get("SAS", "") if upload.settings.identity == "sas" else "",
                upload.settings.answer_timeout,
                upload.settings.copy_timeout,
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def part(upload: Upload) -> Json:
    """Send this node's files that the account lacks; tells the other nodes only when all of them are there."""
    state = upload.state()
    with _lock.lock(state / f"part-{upload.node}.lock"):
        record = state / f"part-{upload.node}.json"
        if not upload.dry:
            record.unlink(missing_ok=True)
        mine = files.scan(upload.directory, upload.settings.settle, time.time())
        if upload.settings.layout == "shared":
            mine = files.share(mine, upload.node, upload.nodes)
        sums = files.sums(upload.directory, mine, state / f"part-{upload.node}-sums.json")
        entries = {file.name: remote.entry(file.size, sums[file.name]) for file in mine}
        planned = _planned(upload, len(mine))
        with tool(upload, planned.concurrency) as azcopy:
            blobs = azcopy.blobs()
            _refuse_other(upload, azcopy, entries, blobs)
            wanted = remote.differing(entries, blobs)
            if not upload.dry:
                _send(upload, azcopy, [file for file in mine if file.name in wanted], planned)
                _verify(upload, azcopy, entries, wanted)
        if not upload.dry:
            record.write_text(json.dumps({"count": upload.nodes, "files": entries}), encoding="utf-8")
    kept = len(mine) - len(wanted)
    return {"sent": wanted, "kept": kept, "manifest": MANIFEST in blobs, "plan": planned._asdict()}


def _planned(upload: Upload, count: int) -> plan.Plan:
    settings = upload.settings
    copies = max(1, min(settings.copies, count))
    try:
        return plan.plan(
            settings.ingress_gbps,
            copies,
            upload.nodes,
            settings.cores or site.usable_cores(),
            node_gbps=settings.node_gbps,
            least_mbps=settings.least_mbps,
        )
    except plan.PlanError as exc:
        raise CheckpointError(str(exc)) from exc


def _refuse_other(upload: Upload, azcopy: Azcopy, entries: remote.Entries, blobs: t.Mapping[str, remote.Blob]) -> None:
    """A reader that found the manifest may be reading: what it lists is not changed under its hands."""
    if MANIFEST not in blobs or upload.replace:
        return
    other = remote.conflicts(entries, sealed(azcopy))
    if other:
        raise CheckpointError(
            f"{upload.place} holds a complete checkpoint that is another: {other[0]} differs from {upload.directory}'s."
            " Give this one another name, or say replace"
        )


def sealed(azcopy: Azcopy) -> remote.Entries:
    """Return the files of the manifest in the account."""
    with tempfile.TemporaryDirectory(prefix="checkpoint_upload-") as into:
        path = Path(into, MANIFEST)
        azcopy.fetch(MANIFEST, str(path))
        return remote.read_manifest(path.read_text(encoding="utf-8"), f"{azcopy.place}/{MANIFEST}")


def _send(upload: Upload, azcopy: Azcopy, wanted: t.Sequence[files.File], planned: plan.Plan) -> None:
    """Send files side by side; one that fails does not keep the others from being there the next time."""

    def one(file: files.File) -> str:
        try:
            azcopy.send(upload.directory / file.name, file.name, planned.cap_mbps)
            files.unchanged(upload.directory / file.name, file)
        except CheckpointError as exc:
            return str(exc)
        return ""

    largest_first = sorted(wanted, key=lambda file: -file.size)
    with concurrent.futures.ThreadPoolExecutor(planned.copies_per_node) as pool:
        copies = [pool.submit(one, file) for file in largest_first]
        try:
            problems = [said for said in (copy.result() for copy in copies) if said]
        except (SystemExit, KeyboardInterrupt):
            # The pool would wait for its threads, which wait for azcopy; one of them may just be starting it.
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(copy.done() for copy in copies):
                _child.end_all()
                time.sleep(0.1)
            raise
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CheckpointError(f"{problems[0]}{more}; {len(wanted) - len(problems)} of {len(wanted)} files were sent")


def _verify(upload: Upload, azcopy: Azcopy, entries: remote.Entries, sent: t.Sequence[str]) -> None:
    wrong = remote.differing(entries, azcopy.blobs()) if sent else []
    if wrong:
        raise CheckpointError(f"{upload.place}/{wrong[0]} is not what was sent ({len(wrong)} of {len(entries)} files)")
    if upload.settings.verify == "content":
        for name in entries:
            azcopy.fetch(name, os.devnull)
