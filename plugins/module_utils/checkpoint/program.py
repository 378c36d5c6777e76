# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that uploads checkpoints, on one node or by a Slurm step on many; a JSON line says what it did. Private.

`run` does all of it; `part`, `seal` and `unseal` are the steps that it runs on nodes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import socket
import sys
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _process, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files, site
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.azcopy import Azcopy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import MANIFEST, CheckpointError

# Upload a checkpoint: each node its part, then one the manifest and the seal that tells readers all is there.


Json = t.Dict[str, t.Any]


class CheckpointUpload(t.NamedTuple):
    """The upload of one checkpoint from a directory to a URL, by this one of so many nodes."""

    settings: site.Site
    directory: Path
    target: str
    node: int = 0
    nodes: int = 1
    dry: bool = False
    replace: bool = False
    home: str = ""  # the user's directory of states, chosen once for all nodes; empty: the usual one

    def state(self) -> Path:
        """Return the shared directory in which nodes record what they sent."""
        name = hashlib.sha256(f"{self.directory}\n{self.target}".encode()).hexdigest()[:24]
        base, user = Path(self.settings.state_dir), os.geteuid()
        trusted = site.trusted_users()
        home = site.own(Path(self.home), base, user) if self.home else site.private(base, user, trusted)[0]
        path = home / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path


@contextlib.contextmanager
def tool(upload: CheckpointUpload, concurrency: int = 4) -> t.Iterator[Azcopy]:
    """Yield azcopy with a directory and the credentials, which are removed at the end."""
    secrets = site.credentials(upload.settings.credentials, os.geteuid())
    scratch = tempfile.mkdtemp(prefix="checkpoint_upload-")
    try:
        with _process.ending():
            yield Azcopy(
                upload.settings.azcopy,
                site.variables(upload.settings, secrets, scratch, concurrency),
                upload.target,
                secrets.get("SAS", "") if upload.settings.identity == "sas" else "",
                upload.settings.answer_timeout,
                upload.settings.copy_timeout,
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def part(upload: CheckpointUpload) -> Json:
    """Send this node's files that the account lacks; the record for other nodes is written when all are there."""
    state = upload.state()
    with _files.lock(state / f"part-{upload.node}.lock"):
        record = state / f"part-{upload.node}.json"
        if not upload.dry:
            record.unlink(missing_ok=True)
        mine = files.scan(upload.directory, upload.settings.settle, time.time())
        if upload.settings.layout == "shared":
            mine = files.share(mine, upload.node, upload.nodes)
        sums = files.sums(upload.directory, mine, state / f"part-{upload.node}-sums.json")
        entries = {file.name: files.entry(file.size, sums[file.name]) for file in mine}
        planned = _planned(upload, len(mine))
        with tool(upload, planned.concurrency) as azcopy:
            blobs = azcopy.blobs()
            _refuse_other(upload, azcopy, entries, blobs)
            differing = files.differing(entries, blobs)
            if not upload.dry:
                _send(upload, azcopy, [file for file in mine if file.name in differing], planned)
                _verify(upload, azcopy, entries, differing)
        if not upload.dry:
            record.write_text(json.dumps({"count": upload.nodes, "files": entries}), encoding="utf-8")
    kept = len(mine) - len(differing)
    return {"sent": differing, "kept": kept, "manifest": MANIFEST in blobs, "plan": planned._asdict()}


def _planned(upload: CheckpointUpload, count: int) -> site.TransferPlan:
    settings = upload.settings
    copies = max(1, min(settings.copies, count))
    try:
        return site.plan(
            settings.ingress_gbps,
            copies,
            upload.nodes,
            settings.cores or site.usable_cores(),
            node_gbps=settings.node_gbps,
            least_mbps=settings.least_mbps,
        )
    except site.PlanError as exc:
        raise CheckpointError(str(exc)) from exc


def _refuse_other(
    upload: CheckpointUpload, azcopy: Azcopy, entries: files.Entries, blobs: t.Mapping[str, files.Blob]
) -> None:
    """Refuse to change a sealed checkpoint: a reader that saw its manifest may be reading the files."""
    if MANIFEST not in blobs or upload.replace:
        return
    other = files.conflicts(entries, sealed(azcopy))
    if other:
        raise CheckpointError(
            f"{upload.target} holds a complete checkpoint that is another: {other[0]} differs from"
            f" {upload.directory}'s. Give this one another name, or say replace"
        )


def sealed(azcopy: Azcopy) -> files.Entries:
    """Return the files of the manifest in the account."""
    with tempfile.TemporaryDirectory(prefix="checkpoint_upload-") as into:
        path = Path(into, MANIFEST)
        azcopy.fetch(MANIFEST, str(path))
        return files.read_manifest(path.read_text(encoding="utf-8"), f"{azcopy.target}/{MANIFEST}")


def _send(
    upload: CheckpointUpload, azcopy: Azcopy, unsent: t.Sequence[files.CheckpointFile], planned: site.TransferPlan
) -> None:
    """Send files side by side; when one fails the others are sent all the same, and need not be sent again."""

    def send_one(file: files.CheckpointFile) -> str:
        try:
            azcopy.send(upload.directory / file.name, file.name, planned.cap_mbps)
            files.unchanged(upload.directory / file.name, file)
        except CheckpointError as exc:
            return str(exc)
        return ""

    largest_first = sorted(unsent, key=lambda file: -file.size)
    with concurrent.futures.ThreadPoolExecutor(planned.copies_per_node) as pool:
        copies = [pool.submit(send_one, file) for file in largest_first]
        try:
            problems = [problem for problem in (copy.result() for copy in copies) if problem]
        except (SystemExit, KeyboardInterrupt):
            # The pool would wait for its threads, which wait for azcopy; one of them may just be starting it.
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(copy.done() for copy in copies):
                _process.end_all()
                time.sleep(0.1)
            raise
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CheckpointError(f"{problems[0]}{more}; {len(unsent) - len(problems)} of {len(unsent)} files were sent")


def _verify(upload: CheckpointUpload, azcopy: Azcopy, entries: files.Entries, sent: t.Sequence[str]) -> None:
    wrong = files.differing(entries, azcopy.blobs()) if sent else []
    if wrong:
        raise CheckpointError(f"{upload.target}/{wrong[0]} is not what was sent ({len(wrong)} of {len(entries)} files)")
    if upload.settings.verify == "content":
        for name in entries:
            azcopy.fetch(name, os.devnull)


# Makes a checkpoint complete for readers, by one small blob that comes last and goes first.


def seal(upload: CheckpointUpload) -> Json:
    """Put the manifest beside the files once every node's are there; also return which blobs do not belong to them."""
    entries = _together(upload)
    with _files.lock(upload.state() / "seal.lock"), tempfile.TemporaryDirectory() as at, tool(upload) as azcopy:
        blobs = azcopy.blobs()
        wrong = files.differing(entries, blobs)
        if wrong:
            raise CheckpointError(
                f"{upload.target} is not complete: {wrong[0]} ({len(wrong)} of {len(entries)}) is missing"
            )
        path = Path(at, MANIFEST)
        path.write_text(files.manifest(entries), encoding="utf-8")
        md5 = hashlib.new("md5", path.read_bytes(), usedforsecurity=False).hexdigest()
        current = blobs.get(MANIFEST) == files.Blob(path.stat().st_size, md5)
        if MANIFEST in blobs and not current and not upload.replace:
            raise CheckpointError(f"{upload.target} has a manifest of other files; give this checkpoint another name")
        if not current and not upload.dry:
            azcopy.send(path, MANIFEST, upload.settings.least_mbps)
    size = sum(entry["size"] for entry in entries.values())
    return {"sealed": not current, "files": len(entries), "bytes": size, "stray": files.stray(entries, blobs)}


def unseal(upload: CheckpointUpload) -> Json:
    """Remove the manifest before files change, so that nobody takes the mixture for a checkpoint."""
    with tool(upload) as azcopy:
        sealed = MANIFEST in azcopy.blobs()
        if sealed and not upload.dry:
            azcopy.remove(MANIFEST)
    return {"unsealed": sealed}


def _together(upload: CheckpointUpload) -> files.Entries:
    """Return the files of all nodes; two of the same name must be the same."""
    entries: files.Entries = {}
    for index in range(upload.nodes):
        path = upload.state() / f"part-{index}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise CheckpointError(f"part {index} of {upload.nodes} of {upload.directory} is not uploaded") from exc
        if record["count"] != upload.nodes:
            raise CheckpointError(f"part {index} of {upload.directory} is of {record['count']}, not of {upload.nodes}")
        for name, entry in record["files"].items():
            if entries.setdefault(name, entry) != entry:
                raise CheckpointError(f"two nodes have different files {name} in {upload.directory}")
    return entries


# The steps on nodes, and the run that starts them.


STEPS: dict[str, t.Callable[[CheckpointUpload], Json]] = {
    "part": part,
    "seal": seal,
    "unseal": unseal,
}
# A node that fails does not stop others: what they send is there the next time.
SRUN = ["--kill-on-bad-exit=0", "--cpu-bind=none", "--ntasks-per-node=1"]


def main(argv: list[str]) -> int:
    """Run the step that the arguments name and return the exit status."""
    options = arguments(argv)
    answer: Json = {"step": options.step, "node": socket.gethostname(), "index": options.index}
    try:
        done = run(options) if options.step == "run" else STEPS[options.step](request(options))
        answer.update(failed="", **done)
    except (CheckpointError, OSError) as exc:
        answer.update(failed=files.hidden(str(exc)))
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()
    return 1 if answer["failed"] else 0


def arguments(argv: list[str]) -> argparse.Namespace:
    """Return the parsed command line; index and count come from the Slurm step."""
    parser = argparse.ArgumentParser(prog="checkpoint_upload", description=__doc__)
    parser.add_argument("step", choices=["run", *STEPS])
    parser.add_argument("source", help="directory of the checkpoint")
    parser.add_argument("name", help="its name below the destination")
    parser.add_argument("--config", required=True, help="JSON file with the settings of the site")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be sent")
    parser.add_argument("--replace", action="store_true", help="change a checkpoint that is complete in the account")
    parser.add_argument(
        "--nodes", type=int, default=0, help="run: send from so many nodes through Slurm; 0 is this one"
    )
    parser.add_argument("--srun", action="append", default=[], metavar="OPTION", help="run: an option of srun")
    parser.add_argument("--timeout", type=float, default=86400, help="run: seconds for one step of all nodes")
    parser.add_argument("--state", default="", help="the user's directory of states, which run hands to its steps")
    parser.add_argument("--index", type=int, default=int(os.environ.get("SLURM_PROCID", "0")))
    parser.add_argument("--count", type=int, default=int(os.environ.get("SLURM_NTASKS", "1")))
    return parser.parse_args(argv)


def request(options: argparse.Namespace) -> CheckpointUpload:
    """Return the upload that the command line requests."""
    source = Path(options.source)
    if not source.is_absolute() or not source.is_dir():
        raise CheckpointError(f"{source} on {socket.gethostname()} is no directory with an absolute path")
    if not 0 <= options.index < options.count:
        raise CheckpointError(f"there is no part {options.index} of {options.count}")
    settings = read_settings(options.config)
    if foreign := _trusted.distrust(settings.azcopy, site.trusted_users()):
        raise CheckpointError(f"azcopy cannot be started: {foreign}")
    target = files.target(settings.destination, options.name)
    return CheckpointUpload(
        settings, source, target, options.index, options.count, options.dry_run, options.replace, options.state
    )


def read_settings(config: str) -> site.Site:
    """Return the settings in a file; refuses one that others could have put there."""
    trusted = site.trusted_users()
    try:
        path = str(Path(config).absolute())
        if foreign := _trusted.distrust(path, trusted):
            raise CheckpointError(foreign)
        settings = site.site(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as exc:
        raise CheckpointError(f"the settings {config} cannot be used: {exc}") from exc
    return settings


def run(options: argparse.Namespace) -> Json:
    """Have all nodes send their parts, then one of them seal the checkpoint."""
    base = Path(read_settings(options.config).state_dir)
    home, warning = site.private(base, os.geteuid(), site.trusted_users())
    options.state = str(home)
    return {"warnings": [warning] if warning else [], **_run(options)}


def _run(options: argparse.Namespace) -> Json:
    dry = _step(options, "part", max(options.nodes, 1), dry=True) if options.replace or options.dry_run else []
    changes = any(part["sent"] for part in dry)
    if options.dry_run:
        sealed = all(part["manifest"] for part in dry)
        return {**_summary(dry), "changed": changes or not sealed}
    if options.replace and changes:
        _step(options, "unseal", 1)
    parts = _step(options, "part", max(options.nodes, 1))
    (end,) = _step(options, "seal", 1)
    summary = {**_summary(parts), **{name: end[name] for name in ("files", "bytes", "stray")}}
    return {**summary, "changed": end["sealed"] or any(part["sent"] for part in parts)}


def _summary(parts: t.Sequence[Json]) -> Json:
    sent = sorted(name for part in parts for name in part["sent"])
    nodes = {part["node"]: {"sent": len(part["sent"]), "kept": part["kept"]} for part in parts}
    return {"sent": sent, "nodes": nodes, "plan": parts[0]["plan"]}


def _step(options: argparse.Namespace, step: str, tasks: int, dry: bool = False) -> list[Json]:
    """Run a step on the nodes; return all answers, or raise CheckpointError that names a node that failed."""
    command = [sys.argv[0], step, options.source, options.name, "--config", options.config, "--state", options.state]
    command += ["--dry-run"] * dry + ["--replace"] * options.replace
    if step != "part":
        command += ["--index", "0", "--count", str(max(options.nodes, 1))]
    if options.nodes:
        command = ["srun", f"--nodes={tasks}", f"--ntasks={tasks}", *SRUN, *options.srun, *command]
    elif step == "part":
        command += ["--index", "0", "--count", "1"]
    done = _process.run(command, options.timeout)
    answers = _answers(done.out, step)
    failed = [f"{answer['node']}: {answer['failed']}" for answer in answers if answer["failed"]]
    if failed:
        more = f" (and {len(failed) - 1} more nodes)" if len(failed) > 1 else ""
        raise CheckpointError(f"{failed[0]}{more}")
    if done.rc != 0 or len(answers) != tasks:
        heard = ", ".join(sorted(answer["node"] for answer in answers)) or "none"
        raise CheckpointError(f"{len(answers)} of {tasks} nodes answered ({heard}): {files.hidden(done.problem)}")
    return answers


def _answers(output: str, step: str) -> list[Json]:
    answers = []
    for line in output.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and answer.get("step") == step:
            answers.append(answer)
    return sorted(answers, key=lambda answer: int(answer["index"]))
