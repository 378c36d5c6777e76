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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import text_of
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

# What is asked of staging. Pure, private.


_EMPTY: dict[str, t.Any] = {"file": "", "sha256": "", "size": 0}
_FILE = re.compile(r"[a-z0-9][a-z0-9._+-]*\.sqsh")

ARGUMENTS: dict[str, dict[str, t.Any]] = {
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
    """What is asked for; ``task`` is what every node is told."""

    task: Record
    nodes: list[str]
    partition: str | None
    transport: str
    fan_out: int
    wait: float
    dry: bool


def read(params: t.Mapping[str, t.Any], nodes: list[str], dry: bool) -> StagingRequest:
    """Make a request of a module's options; an image that does not exist yet is only good for a plan."""
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


# Which nodes get images, in which order, and what became of them: planned = staged + missing. Pure, private.


ImageRecord = t.Dict[str, t.Any]
# srun's words; the nodes that it then ends the others on are named as well, and are not to blame.
BLAMED = re.compile(r"(?:failed on node|Node failure on) ([A-Za-z0-9_.,\[\]-]+)")
LATE = "did not end within"
BUSY = "jobs have it, or Slurm keeps it for others; run this again later"


class Group(t.NamedTuple):
    """Nodes that one job can have, and those of its partition that it must not take."""

    partition: str
    nodes: list[str]
    others: list[str]
    max_time: int | None = None


class MissingImage(t.NamedTuple):
    """A node without the images; ``fault`` is false where it could not even be asked."""

    node: str
    reason: str
    fault: bool = False


def choose(
    nodes: list[ImageRecord], partitions: list[ImageRecord], wanted: list[str], partition: str | None
) -> tuple[list[str], list[Group], list[MissingImage]]:
    """Return the planned nodes, the jobs that reach those in service, and the others with the reason."""
    asked = pick(nodes, wanted) if wanted else [node for node in nodes if node["state"] != "FUTURE"]
    ranks = {one["name"]: not one["default"] for one in partitions if one["state"] == "UP"}
    by_partition: dict[str, list[str]] = {}
    missing = []
    for node in asked:
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
            [one["name"] for one in nodes if name in one["partitions"] and one["name"] not in members],
            next(one["max_time"] for one in partitions if one["name"] == name),
        )
        for name, members in sorted(by_partition.items())
    ]
    return [node["name"] for node in asked], groups, missing


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
    """Return what nodes said; a line that was cut off is no answer."""
    found: dict[str, ImageRecord] = {}
    for line in text.splitlines():
        dummy, mark, said = line.partition(MARK)
        try:
            answer = json.loads(said) if mark else None
        except ValueError:
            continue
        if isinstance(answer, dict):
            found[str(answer.get("node"))] = answer
    return found


def sort_out(
    nodes: t.Sequence[str], said: t.Mapping[str, ImageRecord], trouble: str
) -> tuple[list[str], list[MissingImage]]:
    """Part the nodes that did what they were told from those that did not."""
    good, missing = [], []
    for node in nodes:
        problem = wrong(said[node]) if node in said else f"gave no answer{': ' + trouble if trouble else ''}"
        if problem:
            missing.append(MissingImage(node, problem, fault=True))
        else:
            good.append(node)
    return good, missing


def again(nodes: t.Sequence[str], said: t.Mapping[str, ImageRecord], trouble: str) -> list[list[str]]:
    """Return which of the nodes that gave no answer are to be asked again, in which company.

    Without those that srun names, or else in two halves, until what is dead is alone. Late nodes are not asked again.
    """
    silent = [node for node in nodes if node not in said]
    if LATE in trouble or len(silent) < 2 or not trouble:
        return []
    dead = {name for found in BLAMED.findall(trouble) for name in expand(found)}
    rest = [node for node in silent if node not in dead]
    if 0 < len(rest) < len(silent):
        return [rest]
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
    """Say whether that is more than to remember that a file was hashed again."""
    return bool(answer.get("absent")) or any(state not in ("current", UNPROVED) for state in answer["images"].values())


def needs(answer: ImageRecord) -> str:
    """Say in words what a node that looked is going to get."""
    short = [f"{name} {state}" for name, state in answer["images"].items() if state != "current"]
    return "; ".join([*short, *(f"{name} is to be removed" for name in answer.get("absent", []))])


def waves(nodes: t.Sequence[str], size: int) -> list[list[str]]:
    """Part nodes so that no more than this many read from the shared directory at a time."""
    step = size if size > 0 else max(1, len(nodes))
    return [list(nodes[start : start + step]) for start in range(0, len(nodes), step)]


def report(planned: t.Sequence[str], staged: t.Sequence[str], missing: t.Sequence[MissingImage]) -> ImageRecord:
    """Return every planned node once, as staged or as missing with the reason."""
    reasons = {one.node: one for one in missing}
    for node in planned:
        if node not in staged and node not in reasons:
            reasons[node] = MissingImage(node, "was not reached")
    return {
        "planned": list(planned),
        "staged": sorted(set(staged) - set(reasons)),
        "missing": [reasons[node]._asdict() for node in planned if node in reasons],
    }


def sentence(found: ImageRecord) -> str:
    """Tell the report in one sentence."""
    told = "; ".join(f"{one['node']} {one['reason']}" for one in found["missing"])
    count = f"{len(found['staged'])} of {len(found['planned'])} nodes have the images"
    return f"{count}. Missing: {told}" if told else count


# Bring images to the nodes: look everywhere, copy where something is missing, then let jobs use them.


_PAUSE = 2.0


class BusyError(Exception):
    """Jobs have all of the nodes."""


class RevokedError(BusyError):
    """Slurm gave nodes and took them back: one of them died, and its prolog never ended."""


class Held(t.Protocol):
    """Nodes that are ours for a while."""

    nodes: list[str]

    def step(self, nodes: t.Sequence[str], task: ImageRecord) -> tuple[dict[str, ImageRecord], str]: ...

    def broadcast(self, source: str, target: str, fan_out: int) -> str: ...


class StagingSlurm(t.Protocol):
    """Who knows the nodes and lends them."""

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
        asked = self.request
        nodes = self.slurm.nodes()
        planned, groups, self.missing = choose(nodes, self.slurm.partitions(), asked.nodes, asked.partition)
        for group in groups:
            self.serve(group, nodes)
        found = report(planned, self.staged, self.missing)
        done = {node: text for node, text in self.changes.items() if asked.dry or node in found["staged"]}
        return {**found, "changes": dict(sorted(done.items()))}

    def serve(self, group: Group, nodes: list[ImageRecord]) -> None:
        """Serve those nodes that can be had, and again those whose last job was only ending."""
        end, left = self.clock() + self.request.wait, list(group.nodes)
        while True:
            # Nodes without a free CPU are not waited for.
            free = [node for node in left if node not in occupied(nodes)]
            others = group.others + [node for node in group.nodes if node not in left]
            served = self.once(group._replace(nodes=left, others=others), end - self.clock()) if free else []
            left = [node for node in left if node not in served]
            if not left or not free or self.clock() >= end:
                break
            time.sleep(min(_PAUSE, max(0.0, end - self.clock())))
            nodes = self.slurm.nodes()
        self.missing += [MissingImage(node, self.revoked or BUSY, bool(self.revoked)) for node in left]

    def once(self, group: Group, wait: float) -> list[str]:
        """Look at what can be had now and bring what is missing; return the nodes that are done with."""
        try:
            with self.slurm.hold(group, wait) as job:
                given, short = list(job.nodes), self.look(job)
        except (BusyError, ImageError) as exc:
            self.refused(exc)
            return []
        if not short or self.request.dry:
            return given
        rest = [node for node in group.nodes if node not in short]
        try:
            with self.slurm.hold(group._replace(nodes=short, others=group.others + rest), max(wait, 5)) as job:
                self.fill(job)
                return [node for node in given if node not in short or node in job.nodes]
        except (BusyError, ImageError) as exc:
            self.refused(exc)
            return [node for node in given if node not in short]

    def refused(self, exc: Exception) -> None:
        """Have nodes asked again that jobs have, or that Slurm took back; of those it may say anything then."""
        if isinstance(exc, RevokedError):
            self.revoked = str(exc)
        elif not isinstance(exc, BusyError) and not self.revoked:
            raise exc

    def look(self, job: Held) -> list[str]:
        """Return the nodes that need something and can have it."""
        said, trouble = self.step(job, job.nodes, "look")
        seen = {node: {**answer, "images": {}} for node, answer in said.items()}
        good = self.sort(job.nodes, seen, trouble)
        short = [node for node in good if lacking(said[node])]
        self.staged += [node for node in good if node not in short]
        self.changes.update({node: needs(said[node]) for node in short if changing(said[node])})
        if self.request.dry or not short:
            self.missing += [MissingImage(node, needs(said[node])) for node in short]
            return short
        prepared, trouble = self.step(job, short, "prepare")
        return self.sort(short, prepared, trouble)

    def fill(self, job: Held) -> None:
        """Bring what is missing to all nodes, and only then lead jobs to it."""
        said, trouble = self.place(job)
        placed, trouble_of_use = self.step(job, sorted(said), "use") if said else ({}, "")
        good = self.sort(job.nodes, said, trouble)
        self.staged += self.sort(good, placed, trouble_of_use)

    def place(self, job: Held) -> tuple[dict[str, ImageRecord], str]:
        asked = self.request
        if asked.transport == "shared":
            everywhere: dict[str, ImageRecord] = {}
            troubles = []
            for wave in waves(job.nodes, asked.fan_out):
                more, trouble = self.step(job, wave, "place")
                everywhere.update(more)
                troubles.append(trouble)
            return everywhere, "; ".join(filter(None, troubles))
        trouble = ""
        for image in asked.task["images"]:
            target = f"{asked.task['directory']}/.{image['file']}{BROADCAST}"
            trouble = trouble or job.broadcast(f"{asked.task['source']}/{image['file']}", target, asked.fan_out)
        said, last = self.step(job, job.nodes, "place", broadcast=True)
        if trouble:
            said = {node: with_cause(answer, trouble) for node, answer in said.items()}
        return said, "; ".join(filter(None, [trouble, last]))

    def step(self, job: Held, nodes: t.Sequence[str], action: str, **more: t.Any) -> tuple[dict[str, ImageRecord], str]:
        """Have nodes do something; srun ends a step that one dead node keeps from starting, so it starts again."""
        said, trouble = job.step(nodes, {**self.request.task, "action": action, **more})
        for part in again(nodes, said, trouble):
            later, told = self.step(job, part, action, **more)
            said, trouble = {**said, **later}, "; ".join(filter(None, [trouble, told]))
        return said, trouble

    def sort(self, nodes: t.Sequence[str], said: t.Mapping[str, ImageRecord], trouble: str) -> list[str]:
        good, missing = sort_out(nodes, said, trouble)
        self.missing += missing
        return good


def with_cause(answer: ImageRecord, cause: str) -> ImageRecord:
    """Say why sbcast brought nothing; what a node has all the same stays."""
    images = {
        name: f"{state} ({cause})" if state not in ("copied", "kept") else state
        for name, state in answer["images"].items()
    }
    return {**answer, "images": images}


# Nodes that Slurm holds while images are brought to them: as many as are free, one task on each.


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
    return _HEAD + text_of(image_node)


def publish(directory: Path, dry: bool) -> bool:
    """Keep the program beside the images for nodes that join; return whether it was not there as it is."""
    path, text = directory / "stage.py", program()
    with contextlib.suppress(OSError):
        if path.read_text(encoding="utf-8") == text:
            return False
    if not dry:
        write_text(path, text)
    return True


class Tools(t.NamedTuple):
    """What is run, and how long it may take."""

    paths: t.Mapping[str, str]
    python: str
    options: t.Mapping[str, t.Any]
    end: float

    @property
    def left(self) -> float:
        """Return the seconds that are left, at least enough for a program to say what is wrong."""
        return max(5.0, self.end - time.monotonic())


class StagingJob:
    """Nodes that are held, and what is done on them."""

    def __init__(self, tools: Tools, number: int, nodes: list[str]) -> None:
        self.tools, self.number, self.nodes = tools, number, nodes

    def step(self, nodes: t.Sequence[str], task: Record) -> tuple[dict[str, Record], str]:
        """Give nodes a task; return what each said, and what srun said."""
        asked = {
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
        argv = [self.tools.paths["srun"], *flags(asked), self.tools.python, "-", "task", json.dumps(task)]
        outcome = run(argv, self.tools.left, program())
        return answers(outcome.out), last(outcome)

    def broadcast(self, source: str, target: str, fan_out: int) -> str:
        """Send a file to all nodes through Slurm's daemons; return what went wrong."""
        asked = {"jobid": self.number, "force": True, "fanout": fan_out or None}
        outcome = run([self.tools.paths["sbcast"], *flags(asked), source, target], self.tools.left)
        return last(outcome)


class StagingCluster:
    """The nodes as Slurm has them and lends them."""

    def __init__(self, reader: SlurmReader, tools: Tools) -> None:
        self.nodes, self.partitions, self.tools = reader.nodes, reader.partitions, tools

    def hold(self, group: Group, wait: float) -> t.ContextManager[StagingJob]:
        return allocation(self.tools, group, wait)


def last(outcome: Outcome) -> str:
    """Return why a program's word is not enough, empty when all is well."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    telling = [line for line in lines if BLAMED.search(line) or LATE in line]
    return "" if outcome.rc == 0 else "; ".join(telling or lines[-2:]) or outcome.problem


def argv(tools: Tools, group: Group, wait: float) -> list[str]:
    """Ask for as many of the nodes as are free now; one that a job has all of keeps none of the others."""
    defaults = {"job_name": "hpcai_images", "mem": "1G", "cpus_per_task": 1}
    asked = {
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
    return [tools.paths["salloc"], *flags({**defaults, **tools.options, **asked}), "sh", "-c", _HOLD]


@contextlib.contextmanager
def allocation(tools: Tools, group: Group, wait: float) -> t.Iterator[StagingJob]:
    """Hold nodes while this lasts, and no longer than this process."""
    command = argv(tools, group, wait)
    with tempfile.TemporaryFile() as said, _process.session(
        command, None, subprocess.PIPE, subprocess.PIPE, said.fileno()
    ) as held:
        try:
            found = _HELD.search(_until_held(held, wait + 60))
            if not found:
                held.terminate()
                held.wait(10)
                said.seek(0)
                raise _refusal(said.read().decode(errors="replace"), command)
            yield StagingJob(tools, int(found.group(1)), expand(found.group(2)))
        finally:
            if held.stdin:
                held.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                held.wait(_process.GRACE)


def _until_held(held: subprocess.Popen[bytes], limit: float) -> str:
    """Read what is said until nodes are held, the program ends, or it takes too long."""
    said, end = b"", time.monotonic() + limit
    while held.stdout and not _HELD.search(said.decode(errors="replace")):
        ready = select.select([held.stdout], [], [], max(0.0, end - time.monotonic()))[0]
        piece = os.read(held.stdout.fileno(), 4096) if ready else b""
        if not piece:
            break
        said += piece
    return said.decode(errors="replace")


def _refusal(said: str, command: t.Sequence[str]) -> Exception:
    if _BUSY.search(said):
        return BusyError()
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines()
    if _REVOKED.search(said):
        told = next(line for line in said.splitlines() if _REVOKED.search(line))
        return RevokedError(f"Slurm gave it and took it back ({told}); look at the node and at slurmctld's log")
    return ImageError(f"Slurm gives no nodes: {' '.join(lines[-1:]) or 'no answer'} (tried: {' '.join(command[:-3])})")
