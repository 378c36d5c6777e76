# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module certification without Ansible: its options, find or make the run, lead it, and write the certificate."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import marshal
import re
import time
import typing as t
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    validate_expectation,
    validate_seconds,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import environment
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import coordinator
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as certify_journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import CampaignOptions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import (
    ALLOCATION,
    ARRAY,
    OWN_OPTIONS,
    CampaignSlurm,
    fleet,
    history,
    read_places,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import leaves
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand

# The options, validated and read once, and the request that a run is continued with.


SCHEMA = 1
SPEC: dict[str, Json] = {
    "dir": {"type": "path", "required": True},
    "run": {"type": "str", "default": ""},
    "agent": {"type": "path", "required": True},
    "cluster": {"type": "str", "default": ""},
    "profile": {"type": "dict", "default": {}},
    "hosts": {"type": "str", "default": ""},
    "topology": {"type": "list", "elements": "dict", "default": []},
    "partition": {"type": "str", "default": ""},
    "reservation": {"type": "str", "default": ""},
    "nodes_at_once": {"type": "int", "default": 0},
    "options": {"type": "dict", "default": {}},
    "suite": {"type": "str", "default": "full", "choices": ["full", "boot", "periodic"]},
    "node": {"type": "dict", "default": {}},
    "tool": {"type": "str", "default": "auto", "choices": ["auto", "nccl", "torch"]},
    "gpus": {"type": "int"},
    "infiniband": {"type": "bool"},
    "nccl": {"type": "dict", "default": {}},
    "torch": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}},
    "step_options": {"type": "dict", "default": {}},
    "sbatch_options": {"type": "dict", "default": {}},
    "interpreter": {"type": "path", "default": "/usr/bin/python3"},
    "timeout": {"type": "float", "default": 600.0},
    "suite_timeout": {"type": "float", "default": 1800.0},
    "wait": {"type": "float", "default": 120.0},
    "patience": {"type": "float", "default": 10.0},
    "hold": {"type": "float", "default": 20.0},
    "poll": {"type": "float", "default": 2.0},
    "keep": {"type": "int", "default": 0},
}
TORCH: Json = {"python": "python3", "backend": "gloo", "ranks_per_node": 1, "max_size": 67108864}
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OF_TESTS = (
    "sbatch_options",
    "step_options",
    "interpreter",
    "suite",
    "timeout",
    "suite_timeout",
    "wait",
    "patience",
    "hold",
    "poll",
)
_AS_GIVEN = ("run", "keep", "cluster", "profile", "partition", "reservation", "options")


class CampaignRequestError(ValueError):
    """The certification cannot be done as requested; the text is fit for the user."""


@dataclass(frozen=True)
class CertificationRequest:
    """What is certified and where its run is kept; ``tests`` is how tests are run, as the files of jobs have it."""

    base: Path
    agent: Path
    run: str
    keep: int
    cluster: str
    profile: Json
    hosts: t.Sequence[str]
    leaves: t.Mapping[str, t.Mapping[str, str]]
    partition: str
    reservation: str
    options: Json
    tests: Json

    def settings(self, array_size: int, longest: t.Any = None) -> Json:
        """Return how tests are run within Slurm's limits: tasks of an array, seconds of a job in its partition."""
        limits = {"array": min(self.tests["array"], array_size), "longest": longest}
        return {**self.tests, **limits}

    def fingerprint(self, settings: Json) -> str:
        """Return a digest that two requests for the same run share; the nodes' state and the agent are no part of it.

        A run keeps the agent that it began with.
        """
        same = {key: value for key, value in settings.items() if key not in ("agent_path", "poll", "array")}
        about = {
            "cluster": self.cluster,
            "hosts": list(self.hosts),
            "partition": self.partition,
            "options": self.options,
        }
        return _digest({**about, "how": same})

    def saved(self, settings: Json) -> Json:
        """Return what a run's directory keeps of the request, for each process that continues the run."""
        options = {"gpus_per_node": settings["gpus"], **self.options}
        measured = (settings["nccl"].get("tests") or {}).get("collectives")
        if measured:
            options.setdefault("collectives", measured)
        return {
            "schema": SCHEMA,
            "fleet": {"cluster": self.cluster, "profile": self.profile},
            "options": options,
            "how": settings,
            "digests": {"profile_sha256": _digest(self.profile)},
            "fingerprint": self.fingerprint(settings),
        }


def _digest(value: t.Any) -> str:
    """Return the SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def read_request(params: t.Mapping[str, t.Any]) -> CertificationRequest:
    """Return the request; what makes no sense is refused before anything runs."""
    tests = _tests(params)
    _validate(params)
    hosts, variables = expand(params["hosts"]), environment(params["environment"])
    if params["hosts"] and not hosts:
        raise CampaignRequestError(f"hosts {params['hosts']!r} names no node")
    if not all(isinstance(switch.get("name"), str) for switch in params["topology"]):
        raise CampaignRequestError("topology has a switch without a name")
    return CertificationRequest(
        base=Path(params["dir"]),
        agent=Path(params["agent"]),
        hosts=hosts,
        leaves=leaves(params["topology"]),
        tests={**tests, "environment": variables},
        **{name: params[name] for name in _AS_GIVEN},
    )


def _validate(params: t.Mapping[str, t.Any]) -> None:
    """Refuse options that make no sense by themselves."""
    if params["run"] and not _RUN.fullmatch(params["run"]):
        raise CampaignRequestError(
            f"run {params['run']!r}: letters, digits, dots, dashes and underscores are accepted, up to 64"
        )
    for name in ("timeout", "suite_timeout", "wait", "patience", "poll"):
        validate_seconds(name, params[name])
    validate_seconds("hold", params["hold"], 0)
    if params["nodes_at_once"] < 0 or (params["gpus"] or 0) < 0 or params["keep"] < 0:
        raise CampaignRequestError("nodes_at_once, gpus and keep must not be negative")
    for expectation in params["profile"].get("expect") or []:
        validate_expectation(expectation)
    for name, known in (("torch", TORCH), ("options", CampaignOptions._fields)):
        unknown = sorted(set(params[name]) - set(known))
        if unknown:
            raise CampaignRequestError(f"{name} has {', '.join(unknown)}; accepted are {', '.join(sorted(known))}")
    for key in params["sbatch_options"]:
        name = str(key).replace("_", "-")
        if name in OWN_OPTIONS or not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise CampaignRequestError(
                f"sbatch_options has {key!r}, which is no long option of sbatch or is set by this module"
            )


def _tests(params: t.Mapping[str, t.Any]) -> Json:
    """Return how tests are run, whatever Slurm allows; the variables of their environment come to it."""
    profile = params["profile"]
    gpus = int(_given(params["gpus"], (profile.get("gpu") or {}).get("count") or 0))
    ports = int((profile.get("infiniband") or {}).get("count") or 0)
    most = int(params["nodes_at_once"])
    tool = params["tool"] if params["tool"] != "auto" else "nccl" if gpus else "torch"
    # The suite expects as many GPUs as the tests use: none, where the request says so.
    node_profile = {**profile, "gpu": {**(profile.get("gpu") or {}), "count": gpus}} if profile else {}
    return {
        **{name: params[name] for name in _OF_TESTS},
        "agent": {**params["node"], "profile": node_profile},
        "profile": profile.get("profile"),
        "expect": profile.get("expect") or [],
        "tool": tool,
        "gpus": gpus,
        "infiniband": bool(_given(params["infiniband"], ports > 0)),
        "nccl": {**(profile.get("nccl") or {}), **params["nccl"]},
        "torch": {**TORCH, **params["torch"]},
        "partition": params["partition"],
        "reservation": params["reservation"],
        "at_once": most,
        "array": min(ARRAY, most or ARRAY),
        "allocation": min(ALLOCATION, most or ALLOCATION),
    }


def _given(value: t.Any, default: t.Any) -> t.Any:
    return default if value is None else value


# The run.


# Of more than so many Ansible gets those that are not well; the rest stays in the run's directory.
MOST_RECORDS = 5000


class CampaignResult(t.NamedTuple):
    """The result of a certification; without a certificate it was only planned."""

    run: str
    folder: str
    plan: Json
    certificate: Json | None = None
    records: t.Sequence[Json] = ()
    changed: bool = False
    resumed: bool = False
    removed: t.Sequence[str] = ()

    def facts(self) -> Json:
        """Return it as the module does; the certificate without its rounds, which are in the run's directory."""
        facts: Json = {
            "changed": self.changed,
            "run": self.run,
            "directory": self.folder,
            "resumed": self.resumed,
            "removed": list(self.removed),
            "plan": self.plan,
        }
        if self.certificate is None:
            return facts
        return {
            **facts,
            "certificate": {key: value for key, value in self.certificate.items() if key != "rounds"},
            "checks": reportable(self.records),
            "drains": drains(self.certificate),
            "refused": refused(self.certificate),
        }


def perform(params: t.Mapping[str, t.Any], slurm: CampaignSlurm, check_mode: bool) -> CampaignResult:
    """Plan and, unless in check mode, certify; a run that was begun is finished, one that is done is returned."""
    request = read_request(params)
    if not check_mode and not request.agent.is_file():
        raise CampaignRequestError(f"agent {request.agent} is no file on this machine")
    array_size, partition = slurm.array_size(), slurm.partition(request.partition)
    with certify_journal.alone(request.base, request.agent, request.run, check_mode):
        run = find_run(request, slurm, array_size, partition)
        journal = certify_journal.Journal(request.base / run["run"])
        folder, resumed, done = str(journal.folder), journal.is_begun(), journal.certificate()
        if done is not None:
            return CampaignResult(run["run"], folder, done.get("plan") or {}, done, journal.records())
        if not check_mode:
            journal.create()
            if not resumed:
                plain = request.agent.read_bytes()
                run = journal.begin(run, plain, compiled(plain))
    campaign = CampaignPlan(run["fleet"], run["options"])
    if check_mode:
        result = CampaignResult(run["run"], folder, campaign.plan())
    else:
        result = CampaignResult(run["run"], folder, *coordinator.lead(journal, run, slurm, campaign), changed=True)
    removed = certify_journal.clear(request.base, request.keep, run["run"], slurm.nodes, check_mode)
    return result._replace(resumed=resumed, removed=removed)


def find_run(request: CertificationRequest, slurm: CampaignSlurm, array_size: int, partition: Json | None) -> Json:
    """Return the saved request of the run that this is: the named one, one that was cut short, or a new one."""
    # A job that asks for more than the partition allows would wait for ever.
    saved = request.saved(request.settings(array_size, partition["max_time"] if partition else None))
    begun = certify_journal.begun(request.base, request.run, saved["fingerprint"])
    if begun is not None:
        return begun
    name = request.run or certify_journal.new_name(request.base, time.time())
    certificates = certify_journal.earlier(request.base)
    where, suspicion = read_places(slurm, request.leaves), history(certificates)
    observed = fleet(slurm.nodes(), request.hosts, partition, where, suspicion, bool(request.reservation))
    return {
        **saved,
        "run": name,
        "fleet": {**saved["fleet"], "nodes": observed.nodes},
        "options": {**saved["options"], "run": name},
        "others": observed.others,
        "how": {**saved["how"], "agent_path": str(request.base / name / "agent.pyz")},
    }


def reportable(records: t.Sequence[Json]) -> list[Json]:
    """Return the records that the module returns to Ansible."""
    if len(records) <= MOST_RECORDS:
        return list(records)
    return [record for record in records if record["verdict"] not in ("pass", "skipped", "unjudged")][:MOST_RECORDS]


# Whether a node that ought to be drained is so is for whoever asked for the certificate.
_OUTCOMES = {"watched": "watched", "drained": "to be drained", "untested": "untested"}


def refused(certificate: Json) -> list[Json]:
    """Return why a certificate may be refused: nodes by their status, findings, what measured nothing."""
    refusals = [
        {"status": node["status"], "text": f"{name} is not certified: {_OUTCOMES[node['status']]}: {node['reason']}"}
        for name, node in sorted(certificate["nodes"].items())
        if node["status"] != "cleared"
    ]
    if refusals and all(node["status"] == "untested" for node in certificate["nodes"].values()):
        name, node = min(certificate["nodes"].items())
        text = f"no node was tested: nothing is known of any of the {len(refusals)}; {name}: {node['reason']}"
        refusals.append({"status": "error", "text": text})
    refusals += [
        {"status": "finding", "text": f"{finding['kind']}: {finding['text']}"} for finding in certificate["findings"]
    ]
    for stage in ("pair", "ladder"):
        tests = [test for part in certificate["rounds"] if part["stage"] == stage for test in part["tests"]]
        if tests and all(test["verdict"] in (None, "error") for test in tests):
            text = f"none of the {len(tests)} tests of stage {stage} gave a result: nothing is known between the nodes"
            refusals.append({"status": "error", "text": text})
    return refusals


def drains(certificate: Json) -> list[Json]:
    """Return the calls of slurm_node that drain the nodes that may be drained, one for each class of fault."""
    groups: dict[str, list[str]] = {}
    for name in certificate["drains"]:
        groups.setdefault(str(certificate["nodes"][name]["class"] or "hardware"), []).append(name)
    reason = "hpcai:certification:{} fault, run {}"
    return [
        {"name": compress(names, sort=True), "reason": reason.format(blame, certificate["run"])}
        for blame, names in sorted(groups.items())
    ]


# The agent with its modules compiled: hundreds of nodes that start it at once need not each do that.


# A digest of the source instead of its time, and it is not compared: both are in one file.
_UNCHECKED = (1).to_bytes(4, "little")


def compiled(data: bytes) -> bytes:
    """Return a zipapp with bytecode beside its sources; what is no zipapp comes back as it is."""
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as given, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as made:
            for entry in given.infolist():
                _add(made, entry, given.read(entry))
    except (zipfile.BadZipFile, SyntaxError):
        return data
    return out.getvalue()


def _add(made: zipfile.ZipFile, entry: zipfile.ZipInfo, text: bytes) -> None:
    made.writestr(entry, text)
    if not entry.filename.endswith(".py"):
        return
    code: t.Any = compile(text, entry.filename, "exec", dont_inherit=True)
    beside = zipfile.ZipInfo(f"{entry.filename}c", entry.date_time)
    beside.create_system, beside.external_attr = entry.create_system, entry.external_attr
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(text)
    made.writestr(beside, header + marshal.dumps(code))
