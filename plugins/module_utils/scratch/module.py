# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module nvme_scratch: its options, its run, its check record."""

from __future__ import annotations

import posixpath
import re
import socket
import time
import typing as t
from dataclasses import asdict, fields
from pathlib import PurePosixPath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
    validate_seconds,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply import ScratchRun, StepResult
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    FILESYSTEMS,
    Directory,
    ScratchMachine,
    ScratchPlan,
    ScratchRequest,
    kernel_name,
    plain_id,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan, remove

# The options, and the request that is made of them, checked before anything is read. Pure.


_TEXTS = {"type": "list", "elements": "str", "default": []}
_DIRECTORY: Json = {
    "path": {"type": "str", "required": True},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "mode": {"type": "str", "default": "1777"},
}
# The module's options; those with names of fields of ScratchRequest become the request.
SPEC: Json = {
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "destroy": {"type": "bool", "default": False},
    "mount": {"type": "path", "default": "/mnt/resource_nvme"},
    "name": {"type": "str", "default": "scratch"},
    "models": {**_TEXTS, "default": ["Microsoft NVMe Direct Disk", "Microsoft NVMe Direct Disk v2"]},
    "ids": _TEXTS,
    "unused": {"type": "bool", "default": False},
    "count": {"type": "int"},
    "fewer": {"type": "str", "default": "refuse", "choices": ["refuse", "allow"]},
    "wipe": _TEXTS,
    "rebuild": {"type": "bool", "default": False},
    "filesystem": {"type": "str", "default": "xfs", "choices": list(FILESYSTEMS)},
    "chunk": {"type": "int"},
    "options": {**_TEXTS, "default": ["noatime"]},
    "mode": {"type": "str", "default": "1777"},
    "directories": {"type": "list", "elements": "dict", "default": [], "options": _DIRECTORY},
    "adopt": {"type": "list", "elements": "path", "default": ["/nvme"]},
    "fallback": {"type": "path"},
    "wait": {"type": "float", "default": 0},
    "node": {"type": "str"},
    "expect": {"type": "list", "elements": "dict", "default": []},
    "profile": {"type": "str"},
    "run": {"type": "str"},
}
_NAME = re.compile(r"(?!md\d)[A-Za-z][A-Za-z0-9._-]{0,23}", re.ASCII)
_MODE = re.compile(r"[0-7]{3,4}", re.ASCII)
_OPTION = re.compile(r"[^\s,\\]+", re.ASCII)
_SYSTEM = set("bin boot dev etc lib lib64 proc sbin sys usr".split())
_WHOLE = set("/home /media /opt /root /run /srv /tmp /var /var/tmp /var/lib".split())
_NUMBERS: dict[str, tuple[t.Callable[[int], bool], str]] = {
    "count": (lambda disks: disks >= 0, "a whole number of disks"),
    "chunk": (lambda kib: 4 <= kib <= 65536 and kib & (kib - 1) == 0, "a power of two from 4 to 65536, in KiB"),
}
_LISTS = ("models", "ids", "wipe", "options", "adopt")


class ScratchRequestError(ValueError):
    """The request makes no sense; the text is fit for the user."""


def parse(settings: t.Mapping[str, t.Any]) -> ScratchRequest:
    """Return the request from a mapping by field names; fields that are left out or None have the options' defaults."""
    names = [field.name for field in fields(ScratchRequest)]
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise ScratchRequestError(f"unknown settings: {', '.join(unknown)}")
    values = _complete(settings, {name: SPEC[name] for name in names})
    for key in _LISTS:
        values[key] = tuple(_texts(key, values[key]))
    for key in ("ids", "wipe"):
        values[key] = tuple(_id(key, text) for text in values[key])
    values["directories"] = tuple(_directory(directory) for directory in values["directories"])
    values["fallback"] = values["fallback"] or ""
    request = ScratchRequest(**values)
    _check(request)
    return request


def _complete(settings: t.Mapping[str, t.Any], spec: Json) -> Json:
    """Return the settings with the defaults of the options that are left out or None."""
    return {
        **{name: option.get("default") for name, option in spec.items() if not option.get("required")},
        **{name: value for name, value in settings.items() if value is not None},
    }


def _texts(key: str, value: t.Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) and text.strip() for text in value):
        raise ScratchRequestError(f"{key}: a list of texts is needed, not {value!r}")
    return [text.strip() for text in value]


def _id(key: str, text: str) -> str:
    if kernel_name(text):
        raise ScratchRequestError(
            f"{key}: {text} is a name that the kernel gives anew at each boot; name the disk by its serial number, "
            "wwid or /dev/disk/by-id name (the findings of a run list them)"
        )
    return plain_id(text)


def _directory(options: t.Any) -> Directory:
    try:
        directory = Directory(**_complete(dict(options), _DIRECTORY))
    except (TypeError, ValueError) as exc:
        raise ScratchRequestError(
            f"directories: path, owner, group and mode are needed, not {options!r}: {exc}"
        ) from exc
    path = posixpath.normpath(directory.path)
    if path.startswith("/") or path.split("/")[0] in (".", ".."):
        raise ScratchRequestError(
            f"directories: {directory.path!r} is not a place below the mount; give a relative path"
        )
    if not directory.owner or not directory.group:
        raise ScratchRequestError(f"directories: {path} needs an owner and a group")
    return Directory(path, directory.owner, directory.group, _mode(directory.mode, f"directories: {path}"))


def _mode(text: str, option: str) -> str:
    if not isinstance(text, str) or not _MODE.fullmatch(text):
        raise ScratchRequestError(f'{option}: mode {text!r} is not one like "0755" (quote it)')
    return text.zfill(4)


def _check(request: ScratchRequest) -> None:
    _check_types(request)
    _check_numbers(request)
    _check_places(request)
    if not _NAME.fullmatch(request.name):
        raise ScratchRequestError(
            f"name: {request.name!r} cannot name an array: a letter, then at most 23 of A-Z a-z 0-9 . _ -"
        )
    if request.filesystem not in FILESYSTEMS:
        raise ScratchRequestError(f"filesystem: {request.filesystem!r} is not one of {', '.join(FILESYSTEMS)}")
    if request.fewer not in SPEC["fewer"]["choices"]:
        raise ScratchRequestError(f"fewer: {request.fewer!r} is not refuse or allow")
    wrong = [option for option in request.options if not _OPTION.fullmatch(option)]
    if wrong:
        raise ScratchRequestError(f"options: {wrong[0]!r} is not one mount option")
    if _mode(request.mode, "mode") != request.mode:
        raise ScratchRequestError(f'mode: {request.mode!r} needs four digits, like "1777"')
    paths = [directory.path for directory in request.directories]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise ScratchRequestError(f"directories: {twice[0]} is listed twice")


def _check_types(request: ScratchRequest) -> None:
    for key in ("name", "mount", "filesystem", "fewer", "mode", "fallback"):
        if not isinstance(getattr(request, key), str):
            raise ScratchRequestError(f"{key}: a text is needed, not {getattr(request, key)!r}")
    for key in ("unused", "rebuild"):
        if not isinstance(getattr(request, key), bool):
            raise ScratchRequestError(f"{key}: true or false is needed, not {getattr(request, key)!r}")


def _check_numbers(request: ScratchRequest) -> None:
    for key, (fits, accepted) in _NUMBERS.items():
        value = getattr(request, key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not fits(value):
            raise ScratchRequestError(f"{key}: {value!r} is not {accepted}")


def _check_places(request: ScratchRequest) -> None:
    fallback = {"fallback": request.fallback} if request.fallback else {}
    for key, path in {"mount": request.mount, **{f"adopt {p}": p for p in request.adopt}, **fallback}.items():
        if not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//") or " " in path:
            raise ScratchRequestError(f"{key}: {path!r} is not a plain absolute path")
    if request.mount == "/" or request.mount.split("/")[1] in _SYSTEM or request.mount in _WHOLE:
        raise ScratchRequestError(f"mount: {request.mount} belongs to the system; give scratch a directory of its own")
    # Beside it is the usual case: /mnt/resource_nvme, and Azure's resource disk at /mnt.
    bases = [f"{base}/{request.name}" for base in (request.fallback, *request.adopt) if base]
    around = [base for base in bases if f"{request.mount}/".startswith(f"{base}/")]
    if around:
        raise ScratchRequestError(f"mount: {request.mount} is inside {around[0]}, where scratch would show itself")
    if f"{request.fallback}/".startswith(f"{request.mount}/"):
        raise ScratchRequestError(
            f"fallback: {request.fallback} is in the mount itself; name the directory that stands in for it"
        )


# The check record of the NVMe scratch, for Ansible and for the boot alike. No I/O.


CHECK = "nvme_scratch"
_WORST_FIRST = ("error", "fail", "warn")


class RecordInputs(t.NamedTuple):
    """For whom a record is made: by whom it is asked for and how."""

    node: str
    expect: t.Sequence[Json] = ()
    profile: str | None = None
    run: str | None = None
    door: str = "module"


def measured(plan: ScratchPlan) -> list[Json]:
    """Return the metrics of a plan: disks, members, size."""
    return [
        metric("disks", len(plan.disks), "disks"),
        metric("members", plan.members, "disks"),
        metric("size", plan.size, "bytes"),
    ]


def conclude(plan: ScratchPlan, problem: tuple[str, str] | None, inputs: RecordInputs, begin: float) -> Json:
    """Return the record of a plan; ``problem`` is the class and the text of a step that failed.

    The planner's verdict stands, unless a step failed or the profile expects more than there is.
    """
    metrics = judge(CHECK, measured(plan), inputs.expect)
    verdict, blame, reason = plan.verdict, plan.blame, plan.reason
    if problem:
        blame, reason = problem
        verdict = "error" if blame == "infra" else "fail"
    expected = overall(metrics)
    if verdict != "skipped" and _rank(expected) < _rank(verdict):
        verdict, blame, reason = expected, "hardware", ""
    return record(
        CHECK,
        inputs.node,
        time=begin,
        seconds=time.time() - begin,
        verdict=verdict,
        metrics=metrics,
        blame=blame or "hardware",
        reason=reason,
        run=inputs.run,
        scope={"array": plan.array, "disks": list(plan.disks)} if plan.disks else {},
        evidence="\n".join(str(finding) for finding in plan.findings),
        context={
            "tool": "mdadm",
            "profile": inputs.profile,
            "door": inputs.door,
            "path": plan.path,
            "source": plan.source,
        },
    )


def _rank(verdict: str) -> int:
    return _WORST_FIRST.index(verdict) if verdict in _WORST_FIRST else len(_WORST_FIRST)


# The module's entry and result, without AnsibleModule.


def perform(params: t.Mapping[str, t.Any], dry: bool) -> Json:
    """Return the result of the module."""
    begin = time.time()
    for expectation in params["expect"]:
        validate_expectation(expectation)
    validate_seconds("wait", params["wait"], least=0)
    absent = params["state"] == "absent"
    if params["destroy"] and not absent:
        raise ScratchRequestError("destroy erases scratch for good and is only for state absent")
    request = parse({option.name: params[option.name] for option in fields(ScratchRequest) if option.name in params})

    def planner(machine: ScratchMachine, request_of_run: ScratchRequest, boot: bool) -> ScratchPlan:
        return remove(machine, request_of_run, params["destroy"]) if absent else plan(machine, request_of_run, boot)

    run = ScratchRun(request, wait=0.0 if absent else params["wait"], planner=planner)
    run_result = run.dry() if dry else run.bring()
    node = params["node"] or socket.gethostname().split(".")[0]
    inputs = RecordInputs(node, [] if absent else params["expect"], params["profile"], params["run"])
    settings = boot_settings(params, request, run_result.last.source)
    return result(run_result, inputs, settings, mount_units(request), begin)


def boot_settings(params: t.Mapping[str, t.Any], request: ScratchRequest, source: str) -> Json:
    """Return the settings with which the boot program makes the same request.

    It never wipes. Disks that somebody else mounts are not used for an array, even when they come back blank.
    """
    request_settings = {name: value for name, value in asdict(request).items() if name != "wipe"}
    about = {name: params[name] for name in ("wait", "expect", "profile")}
    return {"request": request_settings, "adopted": source == "adopted", **about}


def mount_units(request: ScratchRequest) -> list[str]:
    """Return the mount units of the paths above our mount and of the directories it may show; most do not exist.

    A filesystem that is mounted at /mnt later than scratch at /mnt/resource_nvme would hide it.
    """
    bases = [base for base in (request.fallback, *request.adopt) if base]
    paths = [
        *PurePosixPath(request.mount).parents,
        *(p for base in bases for p in (PurePosixPath(base), *PurePosixPath(base).parents)),
    ]
    return list(dict.fromkeys(f"{_escaped(str(path))}.mount" for path in paths if str(path) != "/"))


def _escaped(path: str) -> str:
    """Return a path as systemd-escape --path does."""
    plain = re.sub(
        r"[^A-Za-z0-9:_./]", lambda match: "".join(f"\\x{byte:02x}" for byte in match[0].encode()), path.strip("/")
    )
    return re.sub(r"^\.", r"\\x2e", plain).replace("/", "-")


def result(run_result: StepResult, inputs: RecordInputs, settings: Json, after: list[str], begin: float) -> Json:
    """Return the module's result. A failed step may have changed something, so ``changed`` counts its commands."""
    last = run_result.last
    return {
        "changed": bool(run_result.commands),
        "settled": not run_result.commands and not run_result.problem,
        "check": conclude(last, run_result.problem, inputs, begin),
        "path": last.path or None,
        "source": last.source,
        "disks": list(last.disks),
        "array": last.array,
        "findings": [asdict(finding) for finding in last.findings],
        "commands": run_result.commands,
        "settings": settings,
        "after": after,
        "diff": {"before": run_result.first.before, "after": run_result.after},
    }
