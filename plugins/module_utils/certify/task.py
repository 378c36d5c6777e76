# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module certification without Ansible: find or make the run, lead it, and write what came out. Private."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._replace import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import history, slurm_fleet
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as journals
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import request as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import Campaign
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.compiled import compiled
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.coordinator import Coordinator
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.history import CERTIFICATE, RECORDS, REQUEST
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.request import RequestError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm_jobs import Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

# Above this Ansible is told of what is not well, and the rest stays in the run's directory.
MOST_RECORDS = 5000


class Result(t.NamedTuple):
    """What a certification came to; without a certificate it was only planned."""

    run: str
    folder: str
    plan: Json
    certificate: Json | None = None
    records: t.Sequence[Json] = ()
    changed: bool = False
    resumed: bool = False
    removed: t.Sequence[str] = ()


def perform(params: Json, slurm: Slurm, check_mode: bool) -> Result:
    """Plan and, unless in check mode, certify; a run that was begun is finished, one that is done is returned."""
    asked.validate(params)
    base = Path(params["dir"])
    request = _request(params, slurm, base, check_mode)
    folder = base / request["run"]
    done = journals.load(folder / CERTIFICATE)
    if done is not None:
        found = journals.records((folder / RECORDS).read_text())
        return Result(request["run"], str(folder), done.get("plan") or {}, done, found)
    campaign = Campaign(request["fleet"], request["options"])
    resumed = (folder / REQUEST).exists()
    if check_mode:
        result = Result(request["run"], str(folder), campaign.plan())
    else:
        result = _lead(request, folder, Path(params["agent"]), slurm, campaign)
    removed = _clear(base, request["run"], int(params["keep"]), slurm, check_mode)
    return result._replace(resumed=resumed, removed=removed)


def _request(params: Json, slurm: Slurm, base: Path, check_mode: bool) -> Json:
    """Return the request of the run that this is: the named one, one that was cut short, or a new one."""
    agent = Path(params["agent"])
    if not agent.is_file() and not check_mode:
        raise RequestError(f"agent {agent} is no file on this machine")
    told = asked.how(params, slurm.array_size())
    partition = slurm_fleet.partition_of(slurm.partitions(), params["partition"])
    # A job that asks for more than the partition allows would wait for ever.
    told["longest"] = partition["max_time"] if partition else None
    if params["run"]:
        there = journals.load(base / params["run"] / REQUEST)
        if there is not None:
            if there.get("fingerprint") != asked.fingerprint(params, told):
                raise RequestError(
                    f"run {params['run']} was begun with other options; name another one, or remove"
                    f" {base / params['run']}"
                )
            if not (history.recent(base / params["run"]) or (base / params["run"] / CERTIFICATE).exists()):
                raise RequestError(
                    f"run {params['run']} was begun more than {history.RESUMABLE / 3600:g} hours ago and never ended:"
                    f" what its nodes said then is no proof of today. Name another one, or remove"
                    f" {base / params['run']}"
                )
            return dict(there)
    else:
        there = history.unfinished(base, asked.fingerprint(params, told))
        if there:
            return there
    taken = {path.name for path in base.iterdir()} if base.is_dir() else set()
    named = {**params, "run": params["run"] or asked.new_name(time.time(), taken)}
    told["agent_path"] = str(base / named["run"] / "agent.pyz")
    digests = {"profile_sha256": asked.digest(params["profile"])}
    return asked.build(named, *_fleet(params, slurm, base), told, digests)


def _fleet(params: Json, slurm: Slurm, base: Path) -> tuple[Json, list[str]]:
    """Return the fleet, and all other nodes that Slurm might give instead."""
    nodes = slurm.nodes()
    partition = slurm_fleet.partition_of(slurm.partitions(), params["partition"])
    wanted = slurm_fleet.wanted(nodes, params["hosts"], partition)
    suspicion = slurm_fleet.history(history.earlier(base))
    listed = slurm_fleet.fleet(wanted, slurm_fleet.places(slurm.topology()), suspicion, bool(params["reservation"]))
    names = {node["name"] for node in wanted}
    others = [node["name"] for node in nodes if node["name"] not in names]
    return {"cluster": params["cluster"], "profile": params["profile"], "nodes": listed}, others


def _lead(request: Json, folder: Path, agent: Path, slurm: Slurm, campaign: Campaign) -> Result:
    """Do what is left of a run; one at a time, or two would submit the same jobs."""
    journal = journals.Journal(folder)
    journal.create()
    with _lock.lock(folder / "lock"):
        if not (folder / REQUEST).exists() and journal.answered():
            raise RequestError(f"{folder} holds results, and nothing says of what run; name another one, or remove it")
        request, plan = journals.load(folder / REQUEST) or _begin(request, folder, agent), campaign.plan()
        replace(folder / "plan.json", json.dumps(plan, sort_keys=True))
        coordinator = Coordinator(journal, request, slurm)
        coordinator.run(campaign)
        lines = [json.dumps(one, sort_keys=True) for one in coordinator.records]
        order = sorted(range(len(lines)), key=lines.__getitem__)
        records = [coordinator.records[n] for n in order]
        replace(folder / RECORDS, "".join(f"{lines[n]}\n" for n in order), 0o644)
        digests = {**request["digests"], "records_sha256": sha256(folder / RECORDS)}
        certificate = campaign.certificate(**digests)
        replace(folder / CERTIFICATE, json.dumps(certificate, indent=1, sort_keys=True), 0o644)
    # Whoever fetches them need not be root: as root Ansible takes a whole file into memory, twice.
    folder.chmod(0o755)
    return Result(request["run"], str(folder), plan, certificate, records, True)


def _begin(request: Json, folder: Path, agent: Path) -> Json:
    """Put the agent that the nodes run into the folder; the certificate names it, and the file that it was made of."""
    plain = agent.read_bytes()
    ran = compiled(plain)
    replace(folder / "agent.pyz", ran)
    made = {"agent_sha256": hashlib.sha256(ran).hexdigest(), "agent_source_sha256": hashlib.sha256(plain).hexdigest()}
    told = {**request, "digests": {**request["digests"], **made}}
    replace(folder / REQUEST, json.dumps(told, sort_keys=True))
    return told


def _clear(base: Path, run: str, keep: int, slurm: Slurm, check_mode: bool) -> list[str]:
    """Remove runs of which more are there than are kept, and return their names; a new one is worth more than that."""
    found: list[str] = []
    with contextlib.suppress(OSError, SlurmError):
        for folder in history.old(base, keep, run, lambda: history.reasons(slurm.nodes())):
            if not check_mode:
                history.remove(folder)
            found.append(folder.name)
    return found


def told(records: t.Sequence[Json]) -> list[Json]:
    """Return the records that Ansible is told of."""
    if len(records) <= MOST_RECORDS:
        return list(records)
    return [one for one in records if one["verdict"] not in ("pass", "skipped", "unjudged")][:MOST_RECORDS]


def refused(certificate: Json) -> list[Json]:
    """Return what somebody may not want to accept: nodes by their status, findings, stages that measured nothing."""
    found = [
        {"status": one["status"], "text": f"{name} is not certified: {one['status']}: {one['reason']}"}
        for name, one in sorted(certificate["nodes"].items())
        if one["status"] != "cleared"
    ]
    found += [{"status": "finding", "text": f"{one['kind']}: {one['text']}"} for one in certificate["findings"]]
    for stage in ("pair", "ladder"):
        tests = [test for part in certificate["rounds"] if part["stage"] == stage for test in part["tests"]]
        if tests and all(test["verdict"] in (None, "error") for test in tests):
            text = f"none of the {len(tests)} tests of stage {stage} gave a result: nothing is known between the nodes"
            found.append({"status": "error", "text": text})
    return found


def drains(certificate: Json) -> list[Json]:
    """Return what a drain of those that may be drained takes: one call for each class of fault."""
    groups: dict[str, list[str]] = {}
    for name in certificate["drains"]:
        groups.setdefault(str(certificate["nodes"][name]["class"] or "hardware"), []).append(name)
    reason = "hpcai:certification:{} fault, run {}"
    return [
        {"name": compress(names, sort=True), "reason": reason.format(blame, certificate["run"])}
        for blame, names in sorted(groups.items())
    ]
