# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules nvidia_driver and nvidia_driver_info: options, request, result."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.apply import AptTool, DnfTool, PackageTool
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import (
    OPEN,
    DriverError,
    DriverRequest,
    DriverState,
    Json,
    branch,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.read import DriverReader

RECORD = "/var/lib/hpcai/nvidia_driver.json"
# Where modules of this collection note which packages they hold.
HOLDS = [
    "/var/lib/hpcai/nvidia_driver_hold.json",
    "/var/lib/hpcai/package_hold.json",
    "/var/lib/hpcai/node_tuning.json",
]
_REQUEST: dict[str, t.Any] = {
    "version": {"type": "str", "required": True},
    "flavour": {"type": "str", "choices": ["auto", "open", "proprietary"], "default": "auto"},
    "fabric_manager": {"type": "bool", "default": False},
    "take_over": {"type": "list", "elements": "str", "choices": list(plan.TAKEN_OVER), "default": []},
    "mok_enrolled": {"type": "bool", "default": False},
    "record": {"type": "path", "default": RECORD},
    "hold_records": {"type": "list", "elements": "path", "default": HOLDS},
    "root": {"type": "path", "default": "/"},
}
INFO_SPEC: dict[str, t.Any] = {**_REQUEST, "proof": {"type": "bool", "default": False}}
_ALTERNATIVES = {"type": "list", "elements": "list", "default": []}
SPEC: dict[str, t.Any] = {
    **_REQUEST,
    "state": {"type": "str", "choices": ["planned", "downloaded", "present"], "default": "present"},
    "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
    "catalog": {
        "type": "dict",
        "required": True,
        "options": {
            "open": {"type": "list", "elements": "list", "required": True},
            "proprietary": {"type": "list", "elements": "list", "required": True},
            "common": _ALTERNATIVES,
            "optional": _ALTERNATIVES,
            "fabric_manager": _ALTERNATIVES,
            "headers": {"type": "list", "elements": "str", "default": []},
            "streams": {"type": "dict", "default": {}},
        },
    },
    "lists_max_age": {"type": "int", "default": 86400},
    "timeout": {"type": "float", "default": 3600},
}


def request(params: t.Mapping[str, t.Any]) -> DriverRequest:
    branch(params["version"])  # refuses what is none
    names = ("version", "flavour", "fabric_manager", "mok_enrolled")
    return DriverRequest(take_over=tuple(params["take_over"]), **{name: params[name] for name in names})


def read(params: t.Mapping[str, t.Any]) -> tuple[DriverReader, DriverState]:
    """Read the node; holds that modules of ours noted are ours."""
    reader = DriverReader(params["root"], record=params["record"], held_by_us=_holds(params["hold_records"]))
    return reader, reader.read()


def _holds(paths: t.Iterable[str]) -> list[str]:
    return [name.partition(":")[0] for path in paths for name in _owned_files.load(path).get("held", [])]


def facts(state: DriverState) -> Json:
    """Return what was read, for people and playbooks."""
    reasons = plan.reboot_reasons(state)
    return {
        "gpus": [{"address": gpu.address, "device": gpu.device, "generation": gpu.generation} for gpu in state.gpus],
        "nvswitches": state.switches,
        "kernel": state.kernel,
        "loaded": {"version": state.loaded, "flavour": state.loaded_flavour},
        "on_disk": {"version": state.on_disk, "flavour": state.on_disk_flavour, "owner": state.module_owner},
        "library": state.library,
        "fabric_manager": state.fabric_manager,
        "packages": {package.name: package.version for package in state.packages},
        "held": [package.name for package in state.packages if package.held],
        "users": [{"pid": user.pid, "program": user.program} for user in state.users],
        "reboot_required": bool(reasons),
        "reboot_reasons": reasons,
    }


def inform(params: t.Mapping[str, t.Any]) -> Json:
    """Return what is there, why it is not to be touched, and with ``proof`` what disagrees."""
    wanted, (dummy, state) = request(params), read(params)
    refusals, kind = plan.refusals(state, wanted), ""
    try:
        kind = plan.flavour(state, wanted)
    except DriverError as exc:
        refusals.append(str(exc))
    faults = plan.faults(state, wanted, wanted.fabric_manager) if params["proof"] else []
    return {"changed": False, "flavour": kind, "refusals": refusals, "faults": faults, **facts(state)}


def tool(params: t.Mapping[str, t.Any], kind: str) -> PackageTool:
    if params["manager"] == "apt":
        return AptTool(params["root"], params["timeout"])
    stream = str(params["catalog"]["streams"].get(kind, "")).replace("{branch}", str(branch(params["version"])))
    return DnfTool(stream, params["timeout"])


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Return the result; with state ``planned`` what stands in the way is a result as well."""
    result: Json = {
        "changed": False,
        "problem": "",
        "version": "",
        "flavour": "",
        "install": [],
        "moved": [],
        "removed": [],
    }
    try:
        _bring(params, check_mode, result)
    except (DriverError, OSError) as exc:
        if params["state"] != "planned":
            raise DriverError(str(exc)) from exc
        result["problem"] = str(exc)
    return result


def _bring(params: t.Mapping[str, t.Any], check_mode: bool, result: Json) -> None:
    """Have the driver in the chosen version, and fill the result; a refusal raises before a package moves."""
    wanted, (reader, state) = request(params), read(params)
    result.update(facts(state))
    refused = plan.refusals(state, wanted)
    if refused:
        raise DriverError("; ".join(refused))
    kind = result["flavour"] = plan.flavour(state, wanted)
    worker, table = tool(params, kind), _table(params["catalog"], kind, wanted)
    if not check_mode:
        worker.refresh(params["lists_max_age"])
    optional = params["catalog"]["optional"]
    every = sorted({name for part in plan.names([*table, *optional], wanted.version) for name in part})
    todo = plan.choose(wanted.version, table, worker.offers(every), worker.installed(every), optional)
    words = [*todo.words(worker.mark), *_headers(params["catalog"], state)]
    result.update(version=todo.version, install=words, changes=todo.changes)
    if not todo.changes:
        result["changed"] = _lock(worker, params, state, check_mode, again=False)
        return
    with worker.pinned(todo.version):
        result["moved"], result["removed"] = worker.effect(words)
        result["diff"] = difference(result["moved"], result["removed"])
        strange = plan.foreign_removals(result["removed"])
        if strange:
            raise DriverError(
                f"driver {todo.version} would remove {', '.join(strange)}, which is no part of the driver"
            )
        if params["state"] == "downloaded" and not check_mode:
            worker.download(words)
        if params["state"] != "present":
            return
        used = plan.in_use(state)
        if used:
            raise DriverError(f"driver {todo.version} was not installed: {used}")
        result["changed"] = True
        if not check_mode:
            _note(params["record"], kind, todo, state)
            worker.install(words)
    if check_mode:
        loaded = state.loaded and f"the kernel has driver {state.loaded} loaded, and {todo.version} would be installed"
        nouveau = state.nouveau and "nouveau drives the GPUs, and leaves them with a reboot only"
        reasons = [reason for reason in (loaded, nouveau) if reason]
        result.update(reboot_required=bool(reasons), reboot_reasons=reasons)
        return
    after = reader.read()
    result.update(facts(after))
    prove(after, kind, todo, wanted)
    _lock(worker, params, after, check_mode, again=True)


def difference(moved: t.Sequence[t.Mapping[str, str]], removed: t.Sequence[str]) -> dict[str, str]:
    """Return a line per package, for Ansible."""
    before = [f"{package['name']} {package['before']}\n" for package in moved if package["before"]] + [
        f"{name}\n" for name in removed
    ]
    after = [f"{package['name']} {package['after']}\n" for package in moved]
    return {"before_header": "packages", "after_header": "packages", "before": "".join(before), "after": "".join(after)}


def _table(catalog: t.Mapping[str, t.Any], kind: str, wanted: DriverRequest) -> list[list[str]]:
    parts = [*catalog["open" if kind == OPEN else "proprietary"], *catalog["common"]]
    if not wanted.fabric_manager:
        return parts
    if not catalog["fabric_manager"]:
        raise DriverError(
            "the repository has no fabric manager, which GPUs on NVSwitches need: take NVIDIA's (nvidia_driver_source:"
            " nvidia)"
        )
    return [*parts, *catalog["fabric_manager"]]


def _headers(catalog: t.Mapping[str, t.Any], state: DriverState) -> list[str]:
    """DKMS builds for the running kernel only where its headers are."""
    return [] if state.headers else [name.replace("{kernel}", state.kernel) for name in catalog["headers"]]


def _note(path: str, kind: str, todo: plan.PackagePlan, state: DriverState) -> None:
    """Note it before the packages change: after a run that was killed they are ours all the same."""
    before = {package.name: package.version for package in state.packages}
    record = {"version": todo.version, "flavour": kind, "packages": todo.install, "before": before}
    _owned_files.save(path, {**_owned_files.load(path), **record})


def _lock(
    worker: PackageTool, params: t.Mapping[str, t.Any], state: DriverState, check_mode: bool, again: bool
) -> bool:
    """Lock the packages that are not locked, or all of them again; return whether that changes something.

    It is noted before: in the next run these locks are ours and no administrator's.
    """
    held = [package.name for package in state.packages if package.held and again]
    names = [package.name for package in state.packages if again or not package.held]
    if params["state"] != "present" or not worker.locks or not names:
        return False
    if not check_mode:
        record = _owned_files.load(params["record"])
        noted = sorted({*record.get("locked", []), *names})
        _owned_files.save(params["record"], {**record, "locked": noted})
        worker.lock(names, held)
    return True


def prove(state: DriverState, kind: str, todo: plan.PackagePlan, wanted: DriverRequest) -> None:
    """The package manager may succeed although no module was built for the running kernel.

    Ubuntu's packages of the fabric manager for some branches are empty and bring the program of another one.
    """
    if state.on_disk != todo.version or state.on_disk_flavour != kind:
        have = f"{state.on_disk_flavour} modules of {state.on_disk}" if state.on_disk else "no module"
        raise DriverError(
            f"the packages of driver {todo.version} are installed, but the kernel {state.kernel} has {have} instead of"
            f" the {kind} modules of {todo.version}. Look at 'dkms status', at"
            f" /var/lib/dkms/nvidia/{todo.version}/build/make.log and for the headers of this kernel"
        )
    if wanted.fabric_manager and state.fabric_manager != todo.version:
        raise DriverError(
            f"driver {todo.version} is installed, but nv-fabricmanager says that it is"
            f" {state.fabric_manager or 'nothing'}, and would refuse to start. Name a version of the driver whose"
            f" fabric manager the repository really has, or take NVIDIA's repository"
        )
