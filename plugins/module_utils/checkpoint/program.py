# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that uploads checkpoints, on one node or by a Slurm step on many; a JSON line says what it did. Private.

`run` does all of it; `part`, `seal` and `unseal` are the steps that it runs on nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files, site, upload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

Json = t.Dict[str, t.Any]
STEPS: dict[str, t.Callable[[upload.CheckpointUpload], Json]] = {
    "part": upload.part,
    "seal": upload.seal,
    "unseal": upload.unseal,
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


def request(options: argparse.Namespace) -> upload.CheckpointUpload:
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
    return upload.CheckpointUpload(
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
