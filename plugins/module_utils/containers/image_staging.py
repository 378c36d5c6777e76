# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module container_staging: images on the nodes' local disks, staged by a Slurm job."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import joined
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import (
    BROADCAST,
    GOOD,
    MARK,
    UNPROVED,
    ImageError,
    Record,
    write_text,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_store import check_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import pick
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader

# The request.


_EMPTY: dict[str, t.Any] = {"file": "", "sha256": "", "size": 0}
_FILE = re.compile(r"[a-z0-9][a-z0-9._+-]*\.sqsh")

SPEC: dict[str, dict[str, t.Any]] = {
    "images": {"type": "list", "elements": "dict", "default": []},
    "absent": {"type": "list", "elements": "str", "default": []},
    "source": {"type": "path", "required": True},
    "directory": {"type": "path", "required": True},
    "nodes": {"type": "str", "default": ""},
    "partition": {"type": "str"},
    "transport": {"type": "str", "choices": ["shared", "sbcast"], "default": "shared"},
    "fan_out": {"type": "int", "default": 64},
    "keep": {"type": "int", "default": 1},
    "min_free": {"type": "int", "default": 1024},
    "verify": {"type": "bool", "default": False},
    "wait": {"type": "int", "default": 60},
    "options": {"type": "dict", "default": {}},
    "python": {"type": "str", "default": "python3"},
    "timeout": {"type": "int", "default": 3600},
}


class StagingRequest(t.NamedTuple):
    """What is staged, and where; ``task`` is sent to every node."""

    task: Record
    nodes: list[str]
    partition: str | None
    transport: str
    fan_out: int
    wait: float
    dry: bool


def read(params: t.Mapping[str, t.Any], nodes: list[str], dry: bool) -> StagingRequest:
    """Make a request of a module's options; an image that does not exist yet is accepted only in check mode."""
    for name in [*params["absent"], *(image.get("name", "") for image in params["images"])]:
        check_name(name)
    for image in params["images"]:
        whole = _FILE.fullmatch(str(image.get("file", ""))) and int(image.get("size", 0)) > 0 and image.get("sha256")
        if not whole and not dry:
            raise ImageError(f"image {image['name']} has no file, sha256 and size; give what container_image returned")
    twice = {image["name"] for image in params["images"]} & set(params["absent"])
    if twice:
        raise ImageError(f"{', '.join(sorted(twice))} cannot be both in images and absent")
    images = [
        {"name": image["name"], **{key: image.get(key) or empty for key, empty in _EMPTY.items()}}
        for image in params["images"]
    ]
    task = {key: params[key] for key in ("absent", "source", "directory", "keep", "verify")}
    task.update(images=images, min_free=params["min_free"] * 1000000)
    return StagingRequest(task, nodes, params["partition"], params["transport"], params["fan_out"], params["wait"], dry)


# Which nodes get images, and what became of them: planned = staged + missing.


ImageRecord = t.Dict[str, t.Any]
# srun's messages about the node at fault; it also names nodes on which it then ends the step, in other messages.
BLAMED = re.compile(r"(?:failed on node|Node failure on) ([A-Za-z0-9_.,\[\]-]+)")
LATE = "did not end within"
BUSY = "jobs have it, or Slurm keeps it for others; run this again later"


class Group(t.NamedTuple):
    """Nodes that one job can have, and the others of its partition, which it must not take."""

    partition: str
    nodes: list[str]
    others: list[str]
    max_time: int | None = None


class MissingImage(t.NamedTuple):
    """A node without the images; ``fault`` is false where Slurm did not give the node."""

    node: str
    reason: str
    fault: bool = False


def choose(
    nodes: list[ImageRecord], partitions: list[ImageRecord], requested: list[str], partition: str | None
) -> tuple[list[str], list[Group], list[MissingImage]]:
    """Return the planned nodes, the groups of those in service, and the others with the reason."""
    chosen = pick(nodes, requested) if requested else [node for node in nodes if node["state"] != "FUTURE"]
    ranks = {entry["name"]: not entry["default"] for entry in partitions if entry["state"] == "UP"}
    by_partition: dict[str, list[str]] = {}
    missing = []
    for node in chosen:
        open_to = [name for name in node["partitions"] if name in ranks and partition in (None, "", name)]
        reason = out_of_service(node) or ("" if open_to else f"is in no open partition {partition or ''}".rstrip())
        if reason:
            missing.append(MissingImage(node["name"], reason))
        else:
            by_partition.setdefault(sorted(open_to, key=lambda name: (ranks[name], name))[0], []).append(node["name"])
    groups = [
        Group(
            name,
            members,
            [entry["name"] for entry in nodes if name in entry["partitions"] and entry["name"] not in members],
            next(entry["max_time"] for entry in partitions if entry["name"] == name),
        )
        for name, members in sorted(by_partition.items())
    ]
    return [node["name"] for node in chosen], groups, missing


def out_of_service(node: ImageRecord) -> str:
    """Say why Slurm gives a node to no job, empty when it does."""
    if node["available"]:
        return ""
    states = "+".join([node["state"], *node["flags"]]).lower()
    return f"is {states}{': ' + node['reason'] if node['reason'] else ''}"


def occupied(nodes: list[ImageRecord]) -> set[str]:
    """Return the nodes that no job can have now; one whose job is only ending is free in a moment."""
    return {
        node["name"]
        for node in nodes
        if node["cpus"] and (node["allocated_cpus"] or 0) >= node["cpus"] and "COMPLETING" not in node["flags"]
    }


def answers(text: str) -> dict[str, ImageRecord]:
    """Return the answers in a step's output by node; a line that was cut off is no answer."""
    by_node: dict[str, ImageRecord] = {}
    for line in text.splitlines():
        dummy, mark, document = line.partition(MARK)
        try:
            answer = json.loads(document) if mark else None
        except ValueError:
            continue
        if isinstance(answer, dict):
            by_node[str(answer.get("node"))] = answer
    return by_node


def sort_out(
    nodes: t.Sequence[str], received: t.Mapping[str, ImageRecord], trouble: str
) -> tuple[list[str], list[MissingImage]]:
    """Return the nodes that completed the step, and those that did not with the reason."""
    good, missing = [], []
    for node in nodes:
        problem = wrong(received[node]) if node in received else f"gave no answer{': ' + trouble if trouble else ''}"
        if problem:
            missing.append(MissingImage(node, problem, fault=True))
        else:
            good.append(node)
    return good, missing


def again(nodes: t.Sequence[str], received: t.Mapping[str, ImageRecord], trouble: str) -> list[list[str]]:
    """Return the groups in which nodes that gave no answer are tried again.

    Those that srun blames are left out; without any, the nodes are halved until a dead node is alone. Late nodes are
    not tried again.
    """
    silent = [node for node in nodes if node not in received]
    if LATE in trouble or len(silent) < 2 or not trouble:
        return []
    dead = {name for hostlist in BLAMED.findall(trouble) for name in expand(hostlist)}
    others = [node for node in silent if node not in dead]
    if 0 < len(others) < len(silent):
        return [others]
    half = len(silent) // 2
    return [silent[:half], silent[half:]]


def wrong(answer: ImageRecord) -> str:
    """Say what a node could not do, empty when it did everything."""
    bad = [f"{name}: {state}" for name, state in answer["images"].items() if state not in GOOD]
    return "; ".join([text for text in (answer.get("problem"), *bad) if text])


def lacking(answer: ImageRecord) -> bool:
    """Say whether a node that looked needs anything, removals included."""
    return bool(answer.get("absent")) or any(state != "current" for state in answer["images"].values())


def changing(answer: ImageRecord) -> bool:
    """Say whether a node needs more than a new record of a file that was hashed again."""
    return bool(answer.get("absent")) or any(state not in ("current", UNPROVED) for state in answer["images"].values())


def needs(answer: ImageRecord) -> str:
    """Say what is missing on a node that looked, and what is to be removed there."""
    texts = [f"{name} {state}" for name, state in answer["images"].items() if state != "current"]
    return "; ".join([*texts, *(f"{name} is to be removed" for name in answer.get("absent", []))])


def waves(nodes: t.Sequence[str], size: int) -> list[list[str]]:
    """Split nodes into groups of this size, which read from the shared directory one group after the other."""
    step = size if size > 0 else max(1, len(nodes))
    return [list(nodes[start : start + step]) for start in range(0, len(nodes), step)]


def report(planned: t.Sequence[str], staged: t.Sequence[str], missing: t.Sequence[MissingImage]) -> ImageRecord:
    """Return every planned node once, as staged or as missing with the reason."""
    reasons = {entry.node: entry for entry in missing}
    for node in planned:
        if node not in staged and node not in reasons:
            reasons[node] = MissingImage(node, "was not reached")
    return {
        "planned": list(planned),
        "staged": sorted(set(staged) - set(reasons)),
        "missing": [reasons[node]._asdict() for node in planned if node in reasons],
    }


def sentence(result: ImageRecord) -> str:
    """Return the report as one sentence."""
    missing = "; ".join(f"{entry['node']} {entry['reason']}" for entry in result["missing"])
    count = f"{len(result['staged'])} of {len(result['planned'])} nodes have the images"
    return f"{count}. Missing: {missing}" if missing else count


# Staging: look everywhere, copy where something is missing, then let jobs use it.


_PAUSE = 2.0


class BusyError(Exception):
    """Jobs have all of the nodes."""


class RevokedError(BusyError):
    """Slurm gave nodes and took them back, as it does when the prolog of one of them does not end."""


class Held(t.Protocol):
    """Nodes that a job of ours holds."""

    nodes: list[str]

    def step(self, nodes: t.Sequence[str], task: ImageRecord) -> tuple[dict[str, ImageRecord], str]: ...

    def broadcast(self, source: str, target: str, fan_out: int) -> str: ...


class StagingSlurm(t.Protocol):
    """What staging needs of Slurm: its nodes and partitions, and jobs that hold nodes."""

    def nodes(self) -> list[ImageRecord]: ...

    def partitions(self) -> list[ImageRecord]: ...

    def hold(self, group: Group, wait: float) -> t.ContextManager[Held]: ...


class Staging:
    """One run over the whole cluster."""

    def __init__(
        self, request: StagingRequest, slurm: StagingSlurm, clock: t.Callable[[], float] = time.monotonic
    ) -> None:
        self.request, self.slurm, self.clock = request, slurm, clock
        self.staged: list[str] = []
        self.missing: list[MissingImage] = []
        self.changes: dict[str, str] = {}
        self.revoked = ""

    def run(self) -> ImageRecord:
        """Return planned, staged, missing, and what changed on which node."""
        request = self.request
        nodes = self.slurm.nodes()
        planned, groups, self.missing = choose(nodes, self.slurm.partitions(), request.nodes, request.partition)
        for group in groups:
            self.serve(group, nodes)
        result = report(planned, self.staged, self.missing)
        done = {node: text for node, text in self.changes.items() if request.dry or node in result["staged"]}
        return {**result, "changes": dict(sorted(done.items()))}

    def serve(self, group: Group, nodes: list[ImageRecord]) -> None:
        """Serve the nodes that are free, and until the wait is over those that become free."""
        end, remaining = self.clock() + self.request.wait, list(group.nodes)
        while True:
            # Nodes without a free CPU are not waited for.
            free = [node for node in remaining if node not in occupied(nodes)]
            others = group.others + [node for node in group.nodes if node not in remaining]
            served = self.once(group._replace(nodes=remaining, others=others), end - self.clock()) if free else []
            remaining = [node for node in remaining if node not in served]
            if not remaining or not free or self.clock() >= end:
                break
            time.sleep(min(_PAUSE, max(0.0, end - self.clock())))
            nodes = self.slurm.nodes()
        self.missing += [MissingImage(node, self.revoked or BUSY, bool(self.revoked)) for node in remaining]

    def once(self, group: Group, wait: float) -> list[str]:
        """Look at the nodes that are free now and copy what is missing; return the nodes that are finished."""
        try:
            with self.slurm.hold(group, wait) as job:
                held_nodes, needing = list(job.nodes), self.look(job)
        except (BusyError, ImageError) as exc:
            self.refused(exc)
            return []
        if not needing or self.request.dry:
            return held_nodes
        others = [node for node in group.nodes if node not in needing]
        try:
            with self.slurm.hold(group._replace(nodes=needing, others=group.others + others), max(wait, 5)) as job:
                self.fill(job)
                return [node for node in held_nodes if node not in needing or node in job.nodes]
        except (BusyError, ImageError) as exc:
            self.refused(exc)
            return [node for node in held_nodes if node not in needing]

    def refused(self, exc: Exception) -> None:
        """Let busy and revoked nodes be tried again; after a revocation any refusal is taken for its consequence."""
        if isinstance(exc, RevokedError):
            self.revoked = str(exc)
        elif not isinstance(exc, BusyError) and not self.revoked:
            raise exc

    def look(self, job: Held) -> list[str]:
        """Return the nodes that need something and can have it."""
        received, trouble = self.step(job, job.nodes, "look")
        looked = {node: {**answer, "images": {}} for node, answer in received.items()}
        good = self.sort(job.nodes, looked, trouble)
        needing = [node for node in good if lacking(received[node])]
        self.staged += [node for node in good if node not in needing]
        self.changes.update({node: needs(received[node]) for node in needing if changing(received[node])})
        if self.request.dry or not needing:
            self.missing += [MissingImage(node, needs(received[node])) for node in needing]
            return needing
        prepared, trouble = self.step(job, needing, "prepare")
        return self.sort(needing, prepared, trouble)

    def fill(self, job: Held) -> None:
        """Copy missing images to all nodes, and only then point the links that jobs use to them."""
        placed, trouble = self.place(job)
        used, trouble_of_use = self.step(job, sorted(placed), "use") if placed else ({}, "")
        good = self.sort(job.nodes, placed, trouble)
        self.staged += self.sort(good, used, trouble_of_use)

    def place(self, job: Held) -> tuple[dict[str, ImageRecord], str]:
        """Bring the images to the job's nodes; return what each node answered, and what went wrong besides."""
        request = self.request
        if request.transport == "shared":
            received: dict[str, ImageRecord] = {}
            troubles = []
            for wave in waves(job.nodes, request.fan_out):
                part, trouble = self.step(job, wave, "place")
                received.update(part)
                troubles.append(trouble)
            return received, "; ".join(filter(None, troubles))
        trouble = ""
        for image in request.task["images"]:
            target = f"{request.task['directory']}/.{image['file']}{BROADCAST}"
            trouble = trouble or job.broadcast(f"{request.task['source']}/{image['file']}", target, request.fan_out)
        placed, last = self.step(job, job.nodes, "place", broadcast=True)
        if trouble:
            placed = {node: with_cause(answer, trouble) for node, answer in placed.items()}
        return placed, "; ".join(filter(None, [trouble, last]))

    def step(
        self, job: Held, nodes: t.Sequence[str], action: str, **extra: t.Any
    ) -> tuple[dict[str, ImageRecord], str]:
        """Run an action on nodes; a step that srun ended because of a dead node is started again without it."""
        received, trouble = job.step(nodes, {**self.request.task, "action": action, **extra})
        for part in again(nodes, received, trouble):
            retried, retry_trouble = self.step(job, part, action, **extra)
            received, trouble = {**received, **retried}, "; ".join(filter(None, [trouble, retry_trouble]))
        return received, trouble

    def sort(self, nodes: t.Sequence[str], received: t.Mapping[str, ImageRecord], trouble: str) -> list[str]:
        good, missing = sort_out(nodes, received, trouble)
        self.missing += missing
        return good


def with_cause(answer: ImageRecord, cause: str) -> ImageRecord:
    """Add sbcast's error to the images that a node did not get."""
    images = {
        name: f"{state} ({cause})" if state not in ("copied", "kept") else state
        for name, state in answer["images"].items()
    }
    return {**answer, "images": images}


# Slurm jobs that hold nodes: as many as are free, one task on each.


_HEAD = (
    "#!/usr/bin/env python3\n# From the collection hpcai.gpu_cluster; see the README of its role container_images.\n"
)
# It lives as long as somebody holds the other end of its standard input, so that nothing outlives us.
_HOLD = 'echo "HELD $SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat >/dev/null'
_HELD = re.compile(r"^HELD (\d+) (\S+)\n", re.MULTILINE)
_REVOKED = re.compile(r"allocation \d+ has been revoked")
_BUSY = re.compile(r"nodes are busy|[Ii]mmediate execution impossible|Connection timed out")


def program() -> str:
    """Return the text of the program for nodes, which needs nothing but Python."""
    return _HEAD + joined(_trusted, image_node)


def publish(directory: Path, dry: bool) -> bool:
    """Write the program beside the images, for nodes that join later; return whether it differed."""
    path, text = directory / "stage.py", program()
    with contextlib.suppress(OSError):
        if path.read_text(encoding="utf-8") == text:
            return False
    if not dry:
        write_text(path, text)
    return True


class Tools(t.NamedTuple):
    """Paths of Slurm's commands, options, and the time at which everything has to end."""

    paths: t.Mapping[str, str]
    python: str
    options: t.Mapping[str, t.Any]
    end: float

    @property
    def left(self) -> float:
        """Return the seconds that are left, at least 5, so that a program can still print an error."""
        return max(5.0, self.end - time.monotonic())


class StagingJob:
    """Nodes that are held, and what is done on them."""

    def __init__(self, tools: Tools, number: int, nodes: list[str]) -> None:
        self.tools, self.number, self.nodes = tools, number, nodes

    def step(self, nodes: t.Sequence[str], task: Record) -> tuple[dict[str, Record], str]:
        """Run a task on nodes; return the answer of each, and srun's error."""
        options = {
            "jobid": self.number,
            "nodes": len(nodes),
            "ntasks": len(nodes),
            "nodelist": compress(nodes),
            "overlap": True,
            "no_kill": True,  # the others go on when a node dies
            "kill_on_bad_exit": 0,
            "mpi": "none",
            "chdir": "/",
        }
        argv = [self.tools.paths["srun"], *flags(options), self.tools.python, "-", "task", json.dumps(task)]
        outcome = run(argv, self.tools.left, program())
        return answers(outcome.out), last(outcome)

    def broadcast(self, source: str, target: str, fan_out: int) -> str:
        """Send a file to all nodes through Slurm's daemons; return what went wrong."""
        options = {"jobid": self.number, "force": True, "fanout": fan_out or None}
        outcome = run([self.tools.paths["sbcast"], *flags(options), source, target], self.tools.left)
        return last(outcome)


class StagingCluster:
    """Slurm's nodes and partitions, and jobs on them."""

    def __init__(self, reader: SlurmReader, tools: Tools) -> None:
        self.nodes, self.partitions, self.tools = reader.nodes, reader.partitions, tools

    def hold(self, group: Group, wait: float) -> t.ContextManager[StagingJob]:
        return allocation(self.tools, group, wait)


def last(outcome: Outcome) -> str:
    """Return the error of a command, empty when it succeeded; lines that blame a node are preferred."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    telling = [line for line in lines if BLAMED.search(line) or LATE in line]
    return "" if outcome.rc == 0 else "; ".join(telling or lines[-2:]) or outcome.problem


def argv(tools: Tools, group: Group, wait: float) -> list[str]:
    """Return the salloc command for as many of the nodes as are free now; busy ones do not keep it from starting."""
    defaults = {"job_name": "hpcai_images", "mem": "1G", "cpus_per_task": 1}
    required = {
        "partition": group.partition,
        "nodes": f"1-{len(group.nodes)}",
        "ntasks_per_node": 1,
        "exclude": compress(group.others, sort=True) or None,
        "immediate": max(1, round(wait)),
        # A job that asks for more than its partition allows would wait for ever.
        "time": max(1, math.ceil(min(tools.left, group.max_time or tools.left) / 60)),
        "no_kill": True,
        "chdir": "/",
    }
    return [tools.paths["salloc"], *flags({**defaults, **tools.options, **required}), "sh", "-c", _HOLD]


@contextlib.contextmanager
def allocation(tools: Tools, group: Group, wait: float) -> t.Iterator[StagingJob]:
    """Hold nodes while the context lasts, and no longer than this process."""
    command = argv(tools, group, wait)
    with tempfile.TemporaryFile() as errors, _process.session(
        command, None, subprocess.PIPE, subprocess.PIPE, errors.fileno()
    ) as process:
        try:
            match = _HELD.search(_until_held(process, wait + 60))
            if not match:
                process.terminate()
                process.wait(10)
                errors.seek(0)
                raise _refusal(errors.read().decode(errors="replace"), command)
            yield StagingJob(tools, int(match.group(1)), expand(match.group(2)))
        finally:
            if process.stdin:
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_process.GRACE)


def _until_held(process: subprocess.Popen[bytes], limit: float) -> str:
    """Return the output of salloc up to the line that names the held nodes, its end, or the limit."""
    output, end = b"", time.monotonic() + limit
    while process.stdout and not _HELD.search(output.decode(errors="replace")):
        ready = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]
        piece = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not piece:
            break
        output += piece
    return output.decode(errors="replace")


def _refusal(output: str, command: t.Sequence[str]) -> Exception:
    if _BUSY.search(output):
        return BusyError()
    lines = [line for line in output.splitlines() if "error" in line] or output.splitlines()
    if _REVOKED.search(output):
        revoked_line = next(line for line in output.splitlines() if _REVOKED.search(line))
        return RevokedError(f"Slurm gave it and took it back ({revoked_line}); look at the node and at slurmctld's log")
    return ImageError(f"Slurm gives no nodes: {' '.join(lines[-1:]) or 'no answer'} (tried: {' '.join(command[:-3])})")
