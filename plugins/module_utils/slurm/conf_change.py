# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of slurm.conf and the files beside it means for the daemons and for jobs. No I/O; private."""

from __future__ import annotations

import hashlib
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import lines, parse

# "A restart of slurmctld (and slurmd) is required", slurm.conf(5) of 22.05 to 25.11, and what each daemon reads
# only when it starts: 22.05's slurmctld goes on asking slurmdbd's old port after a reconfigure. Node lines count too:
# up to 23.02 a reconfigure must not change them.
_RESTART = frozenset(
    [
        "accountingstoragebackuphost",
        "accountingstorageenforce",
        "accountingstoragehost",
        "accountingstorageport",
        "accountingstoragetres",
        "accountingstoragetype",
        "authalttypes",
        "authtype",
        "clustername",
        "communicationparameters",
        "corespecplugin",
        "credtype",
        "cryptotype",
        "gpufreqdef",
        "grestypes",
        "hashplugin",
        "jobacctgathertype",
        "jobcontainertype",
        "maxjobcount",
        "maxnodecount",
        "mcsplugin",
        "mpidefault",
        "mpiparams",
        "plugindir",
        "plugstackconfig",
        "powerplugin",
        "preempttype",
        "prioritytype",
        "proctracktype",
        "prologflags",
        "schedulerplugin",
        "schedulertype",
        "selecttype",
        "selecttypeparameters",
        "slurmctldhost",
        "slurmctldparameters",
        "slurmctldplugstack",
        "slurmctldport",
        "slurmdparameters",
        "slurmdport",
        "slurmdspooldir",
        "slurmuser",
        "statesavelocation",
        "switchparameters",
        "switchtype",
        "taskplugin",
        "taskpluginparam",
        "topologyparam",
        "topologyplugin",
        "tlstype",
    ]
)


def digest(files: t.Mapping[str, str]) -> str:
    """Hash what the daemons read only when they start: another digest asks for a restart.

    Anything else (partitions, timeouts, limits, programs) reaches them by ``scontrol reconfigure``. The files beside
    slurm.conf count in full: Slurm's releases do not agree on what a reconfigure reads again. Order counts wherever
    Slurm gives it a meaning: which SlurmctldHost is the primary, which line of gres.conf holds which type.
    """
    conf = parse(files.get("slurm.conf", ""))
    kept = sorted((pair for pair in conf.settings if pair[0] in _RESTART), key=lambda pair: pair[0])
    seen = [f"{key}={value}" for key, value in kept]
    for record in conf.records:
        if "partitionname" not in record:
            seen.append(" ".join(f"{key}={value}" for key, value in sorted(record.items())))
    for name in sorted(set(files) - {"slurm.conf"}):
        seen += [f"{name}: {line}" for line in lines(files[name])]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


def state_left_behind(before: str, after: str, written: t.Callable[[str], float]) -> str:
    """Say why the state directory must not change like this: slurmctld would start cold and end every running job.

    ``written`` tells when the state of jobs in a directory was written, 0 if it has none; a copy keeps that time.
    """
    old, new = (dict(parse(text).settings).get("statesavelocation", "").rstrip("/") for text in (before, after))
    if not old or old == new or int(written(old)) <= int(written(new)):
        return ""
    return (
        f"StateSaveLocation would change from {old}, which holds the state of the jobs, to {new}, which has none or an "
        f"older one: slurmctld would forget every job and end those that run. Run 'systemctl stop slurmctld' on all "
        f"controllers, then 'rsync -a {old}/ {new}/' on one, then this again"
    )


def lost(before: t.Mapping[str, str], after: t.Mapping[str, str]) -> str:
    """Say which plugins plugstack.conf would lose: those of a file that begins like ours are ours to remove."""
    name = "plugstack.conf"
    now, then = before.get(name, ""), after.get(name, "")
    if not now or not then or (_heading(now) and _heading(now) == _heading(then)):
        return ""
    gone = [line for line in lines(now) if line not in lines(then)]
    if not gone:
        return ""
    return (
        f"{name} was written by somebody else and has lines that would be lost: {'; '.join(map(repr, gone))}. Put them "
        "into slurm_plugstack, or into a file below /etc/slurm/plugstack.conf.d, or remove them"
    )


def _heading(text: str) -> list[str]:
    """The comment that a file begins with."""
    found = text.splitlines()
    count = next((at for at, line in enumerate(found) if not line.startswith("#")), len(found))
    return found[:count]
