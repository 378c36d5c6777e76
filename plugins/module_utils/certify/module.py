# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module certification without Ansible: find or make the run, lead it, and write the certificate."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as certify_journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.coordinator import Coordinator
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import CERTIFICATE, RECORDS, REQUEST
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.node import compiled
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.request import (
    CampaignRequestError,
    CertificationRequest,
    read_request,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import CampaignSlurm, read_fleet
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

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


def new_name(moment: float, taken: t.Container[str]) -> str:
    """Return a name for a run by its time; two in one second are told apart."""
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    return next(candidate for candidate in (name, *(f"{name}-{n}" for n in range(1, 1000))) if candidate not in taken)


def perform(params: t.Mapping[str, t.Any], slurm: CampaignSlurm, check_mode: bool) -> CampaignResult:
    """Plan and, unless in check mode, certify; a run that was begun is finished, one that is done is returned."""
    request = read_request(params)
    certify_journal.refuse_others(request.base, request.agent, request.run)
    if not request.agent.is_file() and not check_mode:
        raise CampaignRequestError(f"agent {request.agent} is no file on this machine")
    with contextlib.nullcontext() if check_mode else _alone(request.base):
        run = _run(request, slurm)
        folder = request.base / run["run"]
        done = certify_journal.load(folder / CERTIFICATE)
        resumed = (folder / REQUEST).exists()
        if done is None and not check_mode:
            run = _begin(run, folder, request.agent)
    if done is not None:
        records = certify_journal.records((folder / RECORDS).read_text())
        return CampaignResult(run["run"], str(folder), done.get("plan") or {}, done, records)
    campaign = CampaignPlan(run["fleet"], run["options"])
    if check_mode:
        result = CampaignResult(run["run"], str(folder), campaign.plan())
    else:
        result = _lead(run, folder, slurm, campaign)
    removed = _clear(request.base, run["run"], request.keep, slurm, check_mode)
    return result._replace(resumed=resumed, removed=removed)


@contextlib.contextmanager
def _alone(base: Path) -> t.Iterator[None]:
    """Find or begin a run while nobody else does: two would want the same nodes for themselves.

    A task whose connection was lost may still run when it is begun again.
    """
    certify_journal.make(base)
    lock = base / ".lock"
    # What was in the directory before it was ours may still be somebody else's, a link to a file of root's among it.
    if os.path.lexists(lock) and (foreign := _trusted.distrust(str(lock), _trusted.trusted_users())):
        raise certify_journal.JournalError(f"runs cannot be kept in {base}: {foreign}")
    with _files.lock(lock):
        yield


def _run(request: CertificationRequest, slurm: CampaignSlurm) -> Json:
    """Return the saved request of the run that this is: the named one, one that was cut short, or a new one."""
    array_size, partition = slurm.array_size(), slurm.partition(request.partition)
    # A job that asks for more than the partition allows would wait for ever.
    settings = request.settings(array_size, partition["max_time"] if partition else None)
    begun = certify_journal.begun(request.base, request.run, request.fingerprint(settings))
    if begun is not None:
        return begun
    name = request.run or new_name(time.time(), certify_journal.names(request.base))
    nodes, others = read_fleet(slurm, request, partition, certify_journal.earlier(request.base))
    return request.saved(name, nodes, others, settings)


def _lead(run: Json, folder: Path, slurm: CampaignSlurm, campaign: CampaignPlan) -> CampaignResult:
    """Run the rest of a campaign; under a lock, as two coordinators would submit the same jobs."""
    journal = certify_journal.Journal(folder)
    with _files.lock(folder / "lock"):
        plan = campaign.plan()
        replace(folder / "plan.json", json.dumps(plan, sort_keys=True))
        coordinator = Coordinator(journal, run, slurm)
        coordinator.run(campaign)
        lines = [json.dumps(record, sort_keys=True) for record in coordinator.records]
        order = sorted(range(len(lines)), key=lines.__getitem__)
        records = [coordinator.records[n] for n in order]
        replace(folder / RECORDS, "".join(f"{lines[n]}\n" for n in order), 0o644)
        digests = {**run["digests"], "records_sha256": sha256(folder / RECORDS)}
        certificate = campaign.certificate(**digests)
        replace(folder / CERTIFICATE, json.dumps(certificate, indent=1, sort_keys=True), 0o644)
    # Others may fetch them: as root Ansible reads a whole file into memory, twice.
    folder.chmod(0o755)
    return CampaignResult(run["run"], str(folder), plan, certificate, records, True)


def _begin(run: Json, folder: Path, agent: Path) -> Json:
    """Return the saved request of a run, which is saved where there is none, beside the agent that the nodes run.

    The certificate names the agent, and the file that it was made of.
    """
    journal = certify_journal.Journal(folder)
    journal.create()
    saved = certify_journal.load(folder / REQUEST)
    if saved is not None:
        return dict(saved)
    if journal.answered():
        raise CampaignRequestError(
            f"{folder} holds results, and nothing says of what run; name another one, or remove it"
        )
    plain = agent.read_bytes()
    ran = compiled(plain)
    replace(folder / "agent.pyz", ran)
    made = {"agent_sha256": hashlib.sha256(ran).hexdigest(), "agent_source_sha256": hashlib.sha256(plain).hexdigest()}
    complete = {**run, "digests": {**run["digests"], **made}}
    replace(folder / REQUEST, json.dumps(complete, sort_keys=True))
    return complete


def _clear(base: Path, run: str, keep: int, slurm: CampaignSlurm, check_mode: bool) -> list[str]:
    """Remove the runs beyond those that are kept, and return their names; a failure here does not fail the new run."""
    removed: list[str] = []
    with contextlib.suppress(OSError, SlurmError):
        for folder in certify_journal.old(base, keep, run, lambda: certify_journal.reasons(slurm.nodes())):
            if not check_mode:
                certify_journal.remove(folder)
            removed.append(folder.name)
    return removed


def reportable(records: t.Sequence[Json]) -> list[Json]:
    """Return the records that the module returns to Ansible."""
    if len(records) <= MOST_RECORDS:
        return list(records)
    return [record for record in records if record["verdict"] not in ("pass", "skipped", "unjudged")][:MOST_RECORDS]


def refused(certificate: Json) -> list[Json]:
    """Return why a certificate may be refused: nodes by their status, findings, stages that measured nothing."""
    refusals = [
        {"status": node["status"], "text": f"{name} is not certified: {node['status']}: {node['reason']}"}
        for name, node in sorted(certificate["nodes"].items())
        if node["status"] != "cleared"
    ]
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
