# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module node_tuning: its options, services and kernel modules, and its result."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import (
    FileChange,
    FileModule,
    ForeignFile,
    Json,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._systemd import parse_show
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning import settings as tuned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.settings import (
    KERNEL,
    LOGIND,
    RDMA,
    SettingError,
    TuningSettings,
    files,
)

# Services that have to run and kernel modules that have to be loaded on a machine type.


_SHOW = ["systemctl", "show", "--property", "LoadState,ActiveState,UnitFileState"]
_OFF = ("disabled", "indirect")
_TIMEOUT = 120.0
_PRETENDED = "a machine that only claims to be of this type takes it out of the list"
Runner = t.Callable[[t.Sequence[str]], Outcome]


class Patience(t.NamedTuple):
    """How often a service is started again, and the seconds between."""

    retries: int = 5
    delay: float = 5.0


class Steps(t.NamedTuple):
    """What is done, in this order; ``enabled`` are all services that were disabled before the role enabled them."""

    enable: list[str]
    start: list[str]
    load: list[str]
    disable: list[str]
    enabled: list[str]
    findings: list[ForeignFile]

    def lines(self) -> list[str]:
        """Return one line per change for the diff."""
        groups = (("enabled", self.enable), ("active", self.start), ("loaded", self.load), ("disabled", self.disable))
        return [f"{name}: {state}" for state, names in groups for name in names]


def command(argv: t.Sequence[str]) -> Outcome:
    return run(argv, _TIMEOUT)


def loaded(module: str) -> bool:
    """Return whether a kernel module is loaded; sysfs has every name with underscores."""
    return Path("/sys/module", module.replace("-", "_")).is_dir()


def plan(
    services: t.Sequence[str],
    modules: t.Sequence[str],
    earlier: t.Sequence[str],
    *,
    runner: Runner = command,
    is_loaded: t.Callable[[str], bool] = loaded,
) -> Steps:
    """Return the steps that services and modules need; ``earlier`` are the services that an earlier run enabled."""
    steps = Steps([], [], [module for module in modules if not is_loaded(module)], [], [], [])
    for name in services:
        unit = parse_show(runner([*_SHOW, name]).out)
        if unit.get("LoadState") != "loaded":
            steps.findings.append(_unusable(name, unit.get("LoadState", "unknown to systemd")))
            steps.enabled.extend([name] if name in earlier else [])
            continue
        off = unit.get("UnitFileState") in _OFF
        steps.enable.extend([name] if off else [])
        steps.enabled.extend([name] if off or name in earlier else [])
        steps.start.extend([] if unit.get("ActiveState") == "active" else [name])
    for name in earlier:
        if name not in services and parse_show(runner([*_SHOW, name]).out).get("UnitFileState") == "enabled":
            steps.disable.append(name)
    return steps


def _unusable(name: str, state: str) -> ForeignFile:
    if state == "masked":
        return ForeignFile("error", name, f"is masked, and this machine type needs it: systemctl unmask {name}")
    text = f"this machine type needs it, but its unit is {state}: install it in the driver's version; {_PRETENDED}"
    return ForeignFile("error", name, text)


def apply(
    steps: Steps, patience: Patience, *, runner: Runner = command, sleep: t.Callable[[float], None] = time.sleep
) -> list[ForeignFile]:
    """Carry out the steps; a service that does not start and a module that does not load are findings."""
    findings = []
    for verb, names in (("disable", steps.disable), ("enable", steps.enable)):
        for name in names:
            findings += _failure(name, f"systemctl {verb}", runner(["systemctl", verb, name]))
    for name in steps.start:
        findings += _start(name, patience, runner, sleep)
    for name in steps.load:
        findings += _failure(name, "modprobe", runner(["modprobe", name]), f"; {_PRETENDED}")
    return findings


def _failure(name: str, tried: str, outcome: Outcome, advice: str = "") -> list[ForeignFile]:
    return [ForeignFile("error", name, f"{tried} said: {outcome.problem}{advice}")] if outcome.problem else []


def _start(name: str, patience: Patience, runner: Runner, sleep: t.Callable[[float], None]) -> list[ForeignFile]:
    """Start a service, again where it fails: fabric manager refuses while the driver still initializes the GPUs."""
    for attempt in range(patience.retries + 1):
        if attempt:
            sleep(patience.delay)
        if runner(["systemctl", "is-active", "--quiet", name]).rc == 0:
            return []
        runner(["systemctl", "reset-failed", name])
        runner(["systemctl", "start", name])
    if runner(["systemctl", "is-active", "--quiet", name]).rc == 0:
        return []
    journal = runner(["journalctl", "-u", name, "-n", "5", "-o", "cat", "--no-pager"]).out.strip()
    text = f"is not active after {patience.retries + 1} starts; its journal ends with: {journal or 'nothing'}"
    return [ForeignFile("error", name, text)]


# From the options to a result.


_IMAGE_NAMES = "azure_persistent_rdma_naming.service"
_FIELDS = set(TuningSettings._fields)


class Work(t.NamedTuple):
    """All that differs between the host and the request."""

    changes: list[FileChange]
    values: tuned.TuningPlan
    units: Steps
    record: Json
    findings: list[ForeignFile]


def settings(params: t.Mapping[str, t.Any]) -> TuningSettings:
    """Return the requested settings; with state absent, none."""
    if params["state"] == "absent":
        return TuningSettings()
    fields = {key: params[key] for key in _FIELDS}
    for key in ("limits", "sysctl", "rdma_names"):
        fields[key] = {name: str(value) for name, value in (fields[key] or {}).items() if value not in (None, "")}
    for key in ("nfs_readahead_kb", "sunrpc_slots"):
        if fields[key] < 0:
            raise SettingError(f"{key} is {fields[key]}; 0 leaves it, any other number has to be positive")
    return TuningSettings(**fields)


def survey(params: t.Mapping[str, t.Any], record: t.Mapping[str, t.Any]) -> Work:
    """Read the host and plan; nothing is changed."""
    request, inside = settings(params), tuned.container()
    text, findings = files(request), []
    if request.rdma_names and tuned.unit_exists(_IMAGE_NAMES):
        text[RDMA] = None
        findings.append(
            ForeignFile("info", _IMAGE_NAMES, "names the adapters on this image; the role leaves it to that")
        )
    elif not inside:
        findings += tuned.misnamed(request.rdma_names)
    if inside:
        text.update(dict.fromkeys(KERNEL))
        findings.append(_spared(inside, request, params))
    other = tuned.ipc_of_others() if request.keep_ipc else None
    if other:
        text[LOGIND] = None
        findings += [] if other[1] else [_removed(other[0])]
    changes, foreign = owned.plan(text)
    if inside:
        none = tuned.TuningPlan([], dict(record.get("values", {})), [])
        return Work(changes, none, Steps([], [], [], [], [], []), dict(record), findings + foreign)
    kernel = _values(request, record)
    services = params["services"] if params["state"] == "present" else []
    steps = plan(services, request.kernel_modules, record.get("enabled", []))
    new = {**record, "values": kernel.record, "enabled": steps.enabled}
    return Work(changes, kernel, steps, new, findings + foreign + kernel.findings + steps.findings)


def _removed(path: str) -> ForeignFile:
    text = f"{path} has logind remove what a user's jobs share in /dev/shm when that user logs out; it is left so"
    return ForeignFile("warn", "RemoveIPC", text)


def _spared(kind: str, request: TuningSettings, params: t.Mapping[str, t.Any]) -> ForeignFile:
    """Return the finding about settings that are left alone in a container, whose kernel is its host's."""
    names = [value.name for value in tuned.values(request, ["-"])]
    names += [*request.kernel_modules, *(params["services"] if params["state"] == "present" else [])]
    text = "the kernel is its host's, only limits are set"
    return ForeignFile("info", f"container ({kind})", f"{text}; left alone: {', '.join(names) or 'nothing'}")


def _values(request: TuningSettings, record: t.Mapping[str, t.Any]) -> tuned.TuningPlan:
    nfs = tuned.nfs_devices()
    lost, findings = tuned.outranked(tuned.later_sysctl(), request.sysctl)
    ours = {name: value for name, value in request.sysctl.items() if name not in lost}
    every = tuned.values(request._replace(sysctl=ours), nfs)
    # Devices of NFS mounts have other numbers after every mount, so those of an earlier run mean nothing.
    earlier = {
        name: {**entry, "paths": nfs} if name == tuned.NFS else entry
        for name, entry in record.get("values", {}).items()
    }
    paths = [path for entry in every for path in entry.paths] + [
        path for entry in earlier.values() for path in entry["paths"]
    ]
    plan = tuned.plan(every, tuned.read(paths), earlier)
    return plan._replace(findings=findings + plan.findings)


def perform(module: FileModule, params: t.Mapping[str, t.Any]) -> Json:
    """Return the result of the module."""
    record = owned.load(params["record"])
    work = survey(params, record)
    findings = list(work.findings)
    if not module.check_mode:
        owned.note_directories(work.changes, work.record)
        findings += _apply(module, work, params, _pending(work, record))
        owned.save(params["record"], work.record)
    return result(work, findings)


def _pending(work: Work, earlier: t.Mapping[str, t.Any]) -> Json:
    """Return the record with the notes of an earlier run, which stay until each value is restored."""
    noted = {key: earlier.get(key) or {} for key in ("values", "enabled")}
    enabled = sorted({*noted["enabled"], *(work.record.get("enabled") or [])})
    return {**work.record, "enabled": enabled, "values": {**work.record.get("values", {}), **noted["values"]}}


def _write(work: Work, path: str, pending: Json) -> None:
    new = work.record.get("values", {})
    try:
        for write in work.values.writes:
            tuned.write([write])
            pending["values"].pop(write.name, None)
            pending["values"].update({write.name: new[write.name]} if write.name in new else {})
    finally:
        owned.save(path, pending)


def _apply(module: FileModule, work: Work, params: t.Mapping[str, t.Any], pending: Json) -> list[ForeignFile]:
    owned.save(params["record"], pending)
    owned.apply(module, work.changes, work.record, {})
    if any(change.path.startswith("/etc/systemd/") for change in work.changes):
        run(["systemctl", "daemon-reload"], 120)
    if any(change.path.startswith("/etc/udev/") for change in work.changes):
        run(["udevadm", "control", "--reload"], 30)
    if any(change.path == LOGIND for change in work.changes):  # where it does not run, it reads the file when it starts
        run(["systemctl", "kill", "--signal=HUP", "systemd-logind.service"], 30)
    _write(work, params["record"], pending)
    return apply(work.units, Patience(params["retries"], params["delay"]))


def result(work: Work, findings: t.Sequence[ForeignFile]) -> Json:
    """Return the module's result: files, kernel values and units before and after (in check mode: as planned)."""
    diffs = owned.differences(work.changes)
    writes, lines = work.values.writes, work.units.lines()
    if writes or lines:
        header = {"before_header": "running system", "after_header": "running system"}
        before = "".join(f"{entry.path} = {entry.before}\n" for entry in writes)
        after = "".join([*(f"{entry.path} = {entry.after}\n" for entry in writes), *(f"{line}\n" for line in lines)])
        diffs.append({**header, "before": before, "after": after})
    return {
        "changed": bool(work.changes or writes or lines),
        "findings": owned.facts(findings),
        "files": [entry.path for entry in work.changes],
        "values": [entry._asdict() for entry in writes],
        "units": lines,
        "diff": diffs,
    }
