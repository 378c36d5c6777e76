# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module node_tuning does with its options. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import Module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import Change, Finding, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning import host, units, values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.files import (
    KERNEL,
    RDMA,
    SettingError,
    Settings,
    files,
)

_IMAGE_NAMES = "azure_persistent_rdma_naming.service"
_FIELDS = set(Settings._fields)


class Work(t.NamedTuple):
    """All that differs between the host and what it shall be."""

    changes: list[Change]
    values: values.Plan
    units: units.Steps
    record: Json
    findings: list[Finding]


def settings(params: t.Mapping[str, t.Any]) -> Settings:
    """Return what the host shall have; with state absent, nothing of ours."""
    if params["state"] == "absent":
        return Settings()
    given = {key: params[key] for key in _FIELDS}
    for key in ("limits", "sysctl", "rdma_names"):
        given[key] = {name: str(value) for name, value in (given[key] or {}).items() if value not in (None, "")}
    for key in ("nfs_readahead_kb", "sunrpc_slots"):
        if given[key] < 0:
            raise SettingError(f"{key} is {given[key]}; 0 leaves it, any other number has to be positive")
    return Settings(**given)


def survey(params: t.Mapping[str, t.Any], record: t.Mapping[str, t.Any]) -> Work:
    """Look at the host and decide; nothing is changed."""
    wanted, inside = settings(params), host.container()
    text, findings = files(wanted), []
    if wanted.rdma_names and host.unit_exists(_IMAGE_NAMES):
        text[RDMA] = None
        findings.append(Finding("info", _IMAGE_NAMES, "names the adapters on this image; the role leaves it to that"))
    elif not inside:
        findings += host.misnamed(wanted.rdma_names)
    if inside:
        text.update(dict.fromkeys(KERNEL))
        findings.append(_spared(inside, wanted, params))
    changes, others = owned.plan(text)
    if inside:
        none = values.Plan([], dict(record.get("values", {})), [])
        return Work(changes, none, units.Steps([], [], [], [], [], []), dict(record), findings + others)
    kernel = _values(wanted, record)
    services = params["services"] if params["state"] == "present" else []
    steps = units.plan(services, wanted.kernel_modules, record.get("enabled", []))
    new = {**record, "values": kernel.record, "enabled": steps.enabled}
    return Work(changes, kernel, steps, new, findings + others + kernel.findings + steps.findings)


def _spared(kind: str, wanted: Settings, params: t.Mapping[str, t.Any]) -> Finding:
    """The kernel under a container is its host's, and with it all that runs on other people's account."""
    names = [one.name for one in values.values(wanted, ["-"])]
    names += [*wanted.kernel_modules, *(params["services"] if params["state"] == "present" else [])]
    text = "the kernel is its host's, only limits are set"
    return Finding("info", f"container ({kind})", f"{text}; left alone: {', '.join(names) or 'nothing'}")


def _values(wanted: Settings, record: t.Mapping[str, t.Any]) -> values.Plan:
    nfs = host.nfs_devices()
    lost, findings = values.outranked(host.later_sysctl(), wanted.sysctl)
    ours = {name: value for name, value in wanted.sysctl.items() if name not in lost}
    every = values.values(wanted._replace(sysctl=ours), nfs)
    # Devices of NFS mounts have other numbers after every mount, so those of an earlier run mean nothing.
    earlier = {
        name: {**one, "paths": nfs} if name == values.NFS else one for name, one in record.get("values", {}).items()
    }
    paths = [path for one in every for path in one.paths] + [path for one in earlier.values() for path in one["paths"]]
    plan = values.plan(every, host.read(paths), earlier)
    return plan._replace(findings=findings + plan.findings)


def perform(module: Module, params: t.Mapping[str, t.Any]) -> Json:
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
    """What an earlier run noted stays noted until it is given back: the kernel may refuse a value before that."""
    kept = {key: earlier.get(key) or {} for key in ("values", "enabled")}
    enabled = sorted({*kept["enabled"], *(work.record.get("enabled") or [])})
    return {**work.record, "enabled": enabled, "values": {**work.record.get("values", {}), **kept["values"]}}


def _write(work: Work, path: str, pending: Json) -> None:
    new = work.record.get("values", {})
    try:
        for one in work.values.writes:
            host.write([one])
            pending["values"].pop(one.name, None)
            pending["values"].update({one.name: new[one.name]} if one.name in new else {})
    finally:
        owned.save(path, pending)


def _apply(module: Module, work: Work, params: t.Mapping[str, t.Any], pending: Json) -> list[Finding]:
    owned.save(params["record"], pending)
    owned.apply(module, work.changes, work.record, {})
    if any(one.path.startswith("/etc/systemd/") for one in work.changes):
        run(["systemctl", "daemon-reload"], 120)
    if any(one.path.startswith("/etc/udev/") for one in work.changes):
        run(["udevadm", "control", "--reload"], 30)
    _write(work, params["record"], pending)
    return units.apply(work.units, units.Patience(params["retries"], params["delay"]))


def result(work: Work, findings: t.Sequence[Finding]) -> Json:
    """Show files, values of the kernel and units as they were and are (in check mode: would be)."""
    diffs = owned.differences(work.changes)
    writes, lines = work.values.writes, work.units.lines()
    if writes or lines:
        header = {"before_header": "running system", "after_header": "running system"}
        before = "".join(f"{one.path} = {one.before}\n" for one in writes)
        after = "".join([*(f"{one.path} = {one.after}\n" for one in writes), *(f"{line}\n" for line in lines)])
        diffs.append({**header, "before": before, "after": after})
    return {
        "changed": bool(work.changes or writes or lines),
        "findings": owned.told(findings),
        "files": [one.path for one in work.changes],
        "values": [one._asdict() for one in writes],
        "units": lines,
        "diff": diffs,
    }
