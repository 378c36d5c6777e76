# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs by which Slurm creates and removes nodes: ResumeProgram, SuspendProgram, ResumeFailProgram."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import (
    STOPPED,
    STOPPING,
    CloudInstance,
    CloudNode,
    PowerError,
    PowerSlurm,
    Provider,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT

# Where cloud and Slurm differ, and what to do about it. No I/O.


PREFIX = "hpcai:power:"
LATE = "ResumeTimeout reached"
# Slurm's own reasons of a node that does not answer; with the instance gone, a new one is worth a try.
_SLURM_REASONS = (LATE, "Not responding")
_LENGTH = 160
_OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"}
_ON_ITS_WAY = {"POWERING_UP", "POWER_UP", "RESUME", "REBOOT_ISSUED", "REBOOT_REQUESTED"}

Record = t.Mapping[str, t.Any]


class PowerDecision(t.NamedTuple):
    """``stray``: instances that nobody wants. ``gone``: nodes whose instance is no more, with what the cloud says.

    ``off``: nodes that failed and that Slurm still counts as switched on. ``back``: nodes to be tried again.
    ``copies``: instances that nobody wants and that do not prove that they are this cluster's, each with why.
    """

    stray: list[str]
    gone: dict[str, str]
    off: list[str]
    back: list[str]
    copies: dict[str, str]


def reason_for(cause: str) -> str:
    """Return a cause as the reason of a node: marked as ours, one short line, of characters that Slurm keeps."""
    text = " ".join(re.sub(r"[^\x20-\x7e]|[\[\]\"'`\\]", " ", cause).split())
    return f"{PREFIX}{text if len(text) <= _LENGTH else text[: _LENGTH - 3] + '...'}"


def ours(node: Record) -> bool:
    """Say whether we set the node's reason; a person's reason, or a drain, is never touched."""
    return str(node["reason"] or "").startswith(PREFIX) and not node["drained"]


def _worth_a_try(node: Record, now: float) -> bool:
    """Say whether a node that failed is switched off and has waited long enough."""
    unclaimed = ours(node) or (node["reason"] in _SLURM_REASONS and not node["drained"])
    return unclaimed and "POWERED_DOWN" in _flags(node) and node.get("retry", 0.0) <= now


def decide(
    nodes: t.Sequence[Record], instances: t.Mapping[str, CloudInstance], mine: t.Container[str], now: float
) -> PowerDecision:
    """Return what to do; ``mine`` are the nodes that we may create, ``retry`` of a node is when to try it again."""
    every = {node["name"]: node for node in nodes}
    known = {name: node for name, node in every.items() if name in mine}
    # A node that left the configuration may have a job still.
    unwanted = {
        name: instance
        for name, instance in instances.items()
        if instance.state != STOPPING and _unwanted(every.get(name), now)
    }
    stray = [name for name, instance in unwanted.items() if not instance.unproven]
    gone = {
        name: f"its instance is {_state(instances, name)}"
        for name, node in known.items()
        if _counted_on(node) and _state(instances, name) in ("gone", STOPPED, STOPPING)
    }
    down = [node for node in known.values() if node["state"] == "DOWN"]
    off = [node["name"] for node in down if ours(node) and not _flags(node) & _OFF]
    back = [node["name"] for node in down if _worth_a_try(node, now)]
    copies = {name: instance.unproven for name, instance in unwanted.items() if instance.unproven}
    return PowerDecision(sorted(stray), gone, off, back, copies)


def _state(instances: t.Mapping[str, CloudInstance], name: str) -> str:
    return instances[name].state if name in instances else "gone"


def _flags(node: Record) -> set[str]:
    return set(node["flags"])


def _unwanted(node: Record | None, now: float) -> bool:
    """Say whether Slurm has no use for an instance: no node of that name, or one that counts as switched off."""
    if node is None:
        return True
    if node["reason"] == LATE and node.get("retry", 0.0) > now:
        return False  # ResumeFailProgram has it in hand, and looks at the instance first
    return bool(_flags(node) & {"POWERED_DOWN"}) and not _flags(node) & _ON_ITS_WAY


def _counted_on(node: Record) -> bool:
    """Say whether Slurm believes that the node's instance runs; a drained one is left to its administrator."""
    return not _flags(node) & (_OFF | _ON_ITS_WAY) and not ours(node) and not node["drained"]


# The settings of the power programs, read from a file and checked as a whole.


_KEYS = {
    "cluster": str,
    "settings": dict,
    "groups": list,
    "state_dir": str,
    "retry_after": int,
    "stray_after": int,
    "log": str,
}
_GROUP = {"nodes", "machine", "user_data"}


class PowerConfig(t.NamedTuple):
    """The configuration of the programs; ``nodes`` holds every node that they may create."""

    cluster: str
    settings: dict[str, t.Any]
    nodes: dict[str, CloudNode]
    state_dir: str
    retry_after: int
    stray_after: int
    log: str


def load(path: str, provider: type[Provider]) -> PowerConfig:
    """Return the configuration in a file; raises PowerError."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as exc:
        raise PowerError(f"{path} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise PowerError(f"{path} is no JSON: {exc}") from exc
    return read(document, path, provider)


def read(document: t.Any, path: str, provider: type[Provider]) -> PowerConfig:
    """Return the configuration in a document; raises PowerError with everything that is wrong."""
    if not isinstance(document, dict):
        raise PowerError(f"{path} holds no dictionary")
    wrong = [f"{key} is not {kind.__name__}" for key, kind in _KEYS.items() if not isinstance(document.get(key), kind)]
    wrong += [f"{key} is unknown" for key in sorted(set(document) - set(_KEYS))]
    if not wrong:
        wrong += names("settings", document["settings"], provider.SETTINGS)
    nodes, faults = ({}, []) if wrong else _nodes(document["groups"], provider)
    wrong += faults
    if wrong:
        raise PowerError(f"{path}: {'; '.join(wrong)}")
    return PowerConfig(nodes=nodes, **{key: document[key] for key in _KEYS if key != "groups"})


def names(where: str, given: t.Mapping[str, t.Any], known: t.Mapping[str, bool]) -> list[str]:
    """Return what is wrong with the names in a dictionary; true in ``known`` means that a name is needed."""
    absent = [name for name, needed in known.items() if needed and given.get(name) in (None, "")]
    strange = sorted(set(given) - set(known))
    problems = [f"{where} lacks {', '.join(absent)}"] if absent else []
    return (
        [*problems, f"{where} has {', '.join(strange)}; accepted: {', '.join(sorted(known))}"] if strange else problems
    )


def _nodes(groups: t.Sequence[t.Any], provider: type[Provider]) -> tuple[dict[str, CloudNode], list[str]]:
    nodes: dict[str, CloudNode] = {}
    wrong: list[str] = []
    for number, group in enumerate(groups, 1):
        where = f"group {number}"
        if not isinstance(group, dict) or set(group) != _GROUP or not isinstance(group["machine"], dict):
            wrong.append(f"{where} is no dictionary of {', '.join(sorted(_GROUP))}")
            continue
        wrong += names(f"machine of {where}", group["machine"], provider.MACHINE)
        try:
            members = expand(str(group["nodes"]))
        except HostlistError as exc:
            wrong.append(f"{where}: {exc}")
            continue
        wrong += [f"{name} is in two groups" for name in members if name in nodes]
        nodes.update({name: CloudNode(name, group["machine"], str(group["user_data"])) for name in members})
    return nodes, wrong


# The power programs: create, remove, report failures, and put right what differs.


Say = t.Callable[[str], None]


class Actions:
    """One run of a program; every step writes to the log what it did."""

    def __init__(self, config: PowerConfig, provider: Provider, slurm: PowerSlurm, say: Say) -> None:
        self.config, self.provider, self.slurm, self.say = config, provider, slurm, say

    def resume(self, names: t.Sequence[str]) -> bool:
        """Create the nodes; one that the cloud refuses is set DOWN, so that its job returns to the queue."""
        strange = {name: "no group of the configuration holds it" for name in names if name not in self.config.nodes}
        nodes = [self.config.nodes[name] for name in names if name not in strange]
        try:
            answer = self.provider.create(nodes) if nodes else {}
        except PowerError as exc:
            answer = {node.name: str(exc) for node in nodes}
        failed = {**strange, **{name: error for name, error in answer.items() if error}}
        made = [name for name in names if name not in failed]
        if made:
            self.say(f"created {' '.join(made)}")
        for error in sorted(set(failed.values())):
            self.fail([name for name in failed if failed[name] == error], f"not created: {error}")
        return not failed

    def fail(self, names: t.Sequence[str], cause: str) -> None:
        """Take nodes out of service, and have Slurm count them as switched off."""
        self.say(f"{' '.join(names)} {cause}")
        self.slurm.down(names, reason_for(cause))
        self.slurm.power_down(names)

    def suspend(self, names: t.Sequence[str]) -> bool:
        """Remove the instances of nodes; their reasons and drains are left as they are."""
        mine = [name for name in names if name in self.config.nodes]
        answer = self.provider.delete(mine) if mine else {}
        done = [name for name in mine if not answer.get(name)]
        if done:
            self.say(f"removed {' '.join(done)}")
        for name, error in answer.items():
            if error:
                self.say(f"{name} not removed (the next sweep looks at it again): {error}")
        return len(done) == len(mine)

    def resume_fail(self, names: t.Sequence[str]) -> bool:
        """Set why nodes were not ready in time, and remove their instances; their jobs are in the queue again."""
        try:
            instances = self.provider.instances()
        except PowerError as exc:
            instances = dict.fromkeys(names, CloudInstance(f"unknown ({exc})"))
        nodes = {node["name"]: node for node in self.slurm.nodes()}
        for name in names:
            cause = f"not ready within ResumeTimeout, its instance was {_state(instances, name)}"
            self.say(f"{name} {cause}")
            if name in nodes and not nodes[name]["drained"] and (nodes[name]["reason"] or LATE) == LATE:
                self.slurm.update([name], f"reason={reason_for(cause)}")
        return self.suspend(names)

    def sweep(self, now: float) -> bool:
        """Put right what differs between the cloud and Slurm."""
        instances = self.provider.instances()  # before Slurm, which may want one by then
        nodes = [{**node, "retry": self._retry(node)} for node in self.slurm.nodes()]
        decision = decide(nodes, instances, self.config.nodes, now)
        stray = self._long_stray(decision, instances, now)
        if stray:
            self.say(f"nobody wants {' '.join(stray)}")
            self._delete(stray)
        for name in self._twice(decision.gone):
            self.fail([name], decision.gone[name])
        self.slurm.power_down(decision.off)
        if decision.back:
            self.say(f"tries {' '.join(decision.back)} again")
            self.slurm.resume(decision.back)
        return True

    def _delete(self, names: t.Sequence[str]) -> None:
        for name, error in self.provider.delete(names).items():
            self.say(f"{name} {f'not removed: {error}' if error else 'removed'}")

    def _long_stray(self, decision: PowerDecision, instances: t.Mapping[str, CloudInstance], now: float) -> list[str]:
        """Return the instances that an earlier sweep found stray as well, long enough ago; tell of each copy once."""
        path = Path(self.config.state_dir) / "stray.json"
        noted = _noted(path)
        since = {
            name: min(noted.get(name, {}).get(instances[name].identity, now), now)
            for name in [*decision.stray, *decision.copies]
        }
        document = {name: {instances[name].identity: first} for name, first in since.items()}
        path.write_text(json.dumps(document), encoding="utf-8")
        known = {name for name in since if instances[name].identity in noted.get(name, {})}
        for name in sorted(set(decision.copies) - known):
            self.say(f"nobody wants {name}, and it is left: {decision.copies[name]}")
        return [name for name in decision.stray if name in known and now - since[name] >= self.config.stray_after]

    def _twice(self, gone: t.Mapping[str, str]) -> list[str]:
        """Return the nodes that the last sweep missed as well: one wrong answer of a cloud must cost no job."""
        path = Path(self.config.state_dir) / "gone.json"
        try:
            before = set(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            before = set()
        path.write_text(json.dumps(sorted(gone)), encoding="utf-8")
        return sorted(before & set(gone))

    def _retry(self, node: t.Mapping[str, t.Any]) -> float:
        """Return when a node that failed may be tried again."""
        try:
            failed = time.mktime(time.strptime(node["reason_time"] or "", TIME_FORMAT))
        except ValueError:
            return 0.0
        return failed + self.config.retry_after


def _noted(path: Path) -> dict[str, dict[str, float]]:
    """Return since when instances are known as stray, by name and identity; what cannot be read starts anew."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): {str(identity): float(first) for identity, first in entry.items()}
            for name, entry in document.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


# The program that Slurm calls to create and remove nodes (ResumeProgram, SuspendProgram, ResumeFailProgram).


_USAGE = "usage: hpcai-power resume|suspend|resume-fail HOSTLIST, or hpcai-power sweep|status\n"
_ON_NODES = ("resume", "suspend", "resume-fail")


def main(argv: t.Sequence[str], provider: type[Provider]) -> int:
    """Run one command; the configuration's path is the last argument."""
    *words, path = argv or [""]
    verb, hosts = [*words, "", ""][:2]
    if verb not in (*_ON_NODES, "sweep", "status") or len(words) != 1 + (verb in _ON_NODES):
        sys.stderr.write(_USAGE)
        return 2
    try:
        config = load(path, provider)
        names = expand(hosts)
    except (PowerError, HostlistError) as exc:
        sys.stderr.write(f"hpcai-power {verb}: {exc}\n")
        return 1
    say = _log(config.log, verb)
    actions = Actions(config, provider(config.settings, config.cluster), PowerSlurm(), say)
    try:
        with _lock(Path(config.state_dir) / "lock", alone=verb == "sweep"):
            return 0 if _run(actions, verb, names) else 1
    except (PowerError, OSError) as exc:
        say(f"failed: {exc}")
        return 1


def _run(actions: Actions, verb: str, names: list[str]) -> bool:
    if verb == "sweep":
        return actions.sweep(time.time())
    if verb == "status":
        for name, instance in sorted(actions.provider.instances().items()):
            copy = f" (never deleted: {instance.unproven})" if instance.unproven else ""
            sys.stdout.write(f"{name} {instance.state}{copy}\n")
        return True
    act: dict[str, t.Callable[[t.Sequence[str]], bool]] = {
        "resume": actions.resume,
        "suspend": actions.suspend,
        "resume-fail": actions.resume_fail,
    }
    return act[verb](names)


def _log(path: str, verb: str) -> t.Callable[[str], None]:
    """Write lines to the log and, for whoever runs the program by hand, to standard error; Slurm gives it none."""

    def say(text: str) -> None:
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {verb}: {text}\n"
        with contextlib.suppress(OSError), Path(path).open("a", encoding="utf-8") as file:
            file.write(line)
        with contextlib.suppress(OSError, AttributeError):
            sys.stderr.write(line)

    return say


@contextlib.contextmanager
def _lock(path: Path, alone: bool) -> t.Iterator[None]:
    """Calls of Slurm run beside each other; a sweep, which compares, runs alone."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
