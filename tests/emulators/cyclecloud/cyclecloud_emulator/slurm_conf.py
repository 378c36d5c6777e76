# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Slurm project 4.0.x makes of a cluster's settings: the files of /etc/slurm on its scheduler.

Facts from azure-slurm-install of Azure/cyclecloud-slurm (project 4.0.9), in our own words: which setting of the
template goes to which line, what stands there without it, and what the lines are that no setting changes.
"""

from __future__ import annotations

import re
import typing as t

from .limits import types
from .store import Json

CERTIFICATES = "AzureCA_4.0.9.pem"  # of Azure Database for MySQL, brought by the project
OWN_CERTIFICATES = "CustomCA.pem"
# Lines that no setting changes.
FIXED = {
    "MpiDefault": "none",
    "ProctrackType": "proctrack/cgroup",
    "ReturnToService": "2",
    "PropagateResourceLimits": "ALL",
    "SlurmctldPidFile": "/var/run/slurmctld.pid",
    "SlurmdPidFile": "/var/run/slurmd.pid",
    "SlurmdSpoolDir": "/var/spool/slurmd",
    "SlurmUser": "slurm",
    "SwitchType": "switch/none",
    "TaskPlugin": "task/affinity,task/cgroup",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "GresTypes": "gpu",
    "SelectTypeParameters": "CR_Core_Memory",
    "JobAcctGatherType": "jobacct_gather/none",
    "SlurmctldDebug": "debug",
    "SlurmctldLogFile": "/var/log/slurmctld/slurmctld.log",
    "SlurmctldParameters": "idle_on_node_suspend",
    "SlurmdDebug": "debug",
    "SlurmdLogFile": "/var/log/slurmd/slurmd.log",
    "DisableRootJobs": "No",
    "PrivateData": "cloud",
    "PrologSlurmctld": "/opt/azurehpc/slurm/prolog.sh",
    "Prolog": "/etc/slurm/prolog.d/*",
    "Epilog": "/etc/slurm/epilog.d/*",
    "PrologFlags": "alloc",
    "TreeWidth": "16",
    "ReconfigFlags": "KeepPowerSaveSettings",
    "ResumeTimeout": "1800",
    "SuspendTimeout": "600",
    "SuspendTime": "300",
    "SlurmctldTimeout": "30",
    "ResumeProgram": "/opt/azurehpc/slurm/resume_program.sh",
    "ResumeFailProgram": "/opt/azurehpc/slurm/resume_fail_program.sh",
    "SuspendProgram": "/opt/azurehpc/slurm/suspend_program.sh",
    "SchedulerParameters": "max_switch_wait=24:00:00",
    "HealthCheckNodeState": "ANY",
}
INCLUDED = ("azure.conf", "accounting.conf", "keep_alive.conf", "site_specific.conf")


class Head(t.NamedTuple):
    """The machine that the scheduler is."""

    cluster: str
    host: str
    address: str
    healthagent: bool = True


def files(scheduler: Json, arrays: Json, head: Head, machine: t.Callable[[str], Json]) -> dict[str, str]:
    """Return the files by name, of what template.nodes() made: the scheduler and the node arrays."""
    settings: Json = scheduler["configuration"].get("slurm") or {}
    cluster = escaped(head.cluster)
    accounting = settings.get("accounting") or {}
    made = {
        "slurm.conf": _conf(settings, cluster, head),
        "accounting.conf": _storage(accounting, head),
        "azure.conf": "".join(_partition(name, array, machine) for name, array in arrays.items()),
        "gres.conf": "".join(_gres(name, array, machine) for name, array in arrays.items()),
        "keep_alive.conf": "# written by azslurmd\n",
        "site_specific.conf": "# for the site\n",
        "plugstack.conf": "include /etc/slurm/plugstack.conf.d/*\n",
        "topology.conf": "",
        "cgroup.conf": "ConstrainCores=yes\nConstrainRamSpace=yes\nConstrainDevices=yes\n",
    }
    if accounting.get("enabled") is True:
        made["slurmdbd.conf"] = _database(accounting, cluster, head)
        if accounting.get("certificate"):
            made[OWN_CERTIFICATES] = f"{accounting['certificate']}\n"
    return made


def escaped(name: str) -> str:
    """Cluster and node names: small letters, digits and dashes."""
    return re.sub(r"[^a-zA-Z0-9-]", "-", name).lower()


def _text(value: t.Any) -> str:
    """A setting that is undefined is not there, so its line is empty behind the sign."""
    return "" if value is None else str(value)


def _conf(settings: Json, cluster: str, head: Head) -> str:
    health = head.healthagent and settings.get("enable_healthchecks", True) is True
    lines = {
        **FIXED,
        "StateSaveLocation": f"/sched/{cluster}/spool/slurmctld",
        "ClusterName": cluster,
        "LaunchParameters": _text(settings.get("launch_parameters", "")),
        "MaxNodeCount": _text(settings.get("max_node_count", 10000)),
        "HealthCheckInterval": "60" if health else "0",
        "HealthCheckProgram": f"/sched/{cluster}/health.sh" if health else '""',
    }
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    text += "".join(f"Include {name}\n" for name in INCLUDED)
    text += f"SlurmCtldHost={head.host}({head.address})"
    more = _text((settings.get("additional") or {}).get("config"))
    return f"{text}\n# Additional config\n{more}\n" if more else f"{text}\n"


def _storage(accounting: Json, head: Head) -> str:
    if accounting.get("enabled") is not True:
        return "AccountingStorageType=accounting_storage/none\n"
    lines = ("AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={head.host}")
    return "\n".join((*lines, "AccountingStorageTRES=gres/gpu", ""))


def _database(accounting: Json, cluster: str, head: Head) -> str:
    """slurmdbd speaks TLS to the database, always: StorageParameters names a file of certificates in any case."""
    own = accounting.get("certificate")
    lines = {
        "AuthType": "auth/munge",
        "DbdHost": head.host,
        "SlurmUser": "slurm",
        "DebugLevel": "verbose",
        "LogFile": "/var/log/slurmctld/slurmdbd.log",
        "PidFile": "/var/run/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": _text(accounting.get("url")) or "localhost",
        "StorageLoc": _text(accounting.get("storageloc")) or f"{cluster.replace('-', '_')}_acct_db",
        "StorageUser": _text(accounting.get("user")) or "root",
        "StorageParameters": f"SSL_CA=/etc/slurm/{OWN_CERTIFICATES if own else CERTIFICATES}",
    }
    if accounting.get("password"):
        lines["StoragePass"] = str(accounting["password"])
    return "".join(f"{name}={value}\n" for name, value in lines.items())


# Node lines, as `azslurm scale` writes them.


def _nodes(name: str, array: Json) -> str:
    prefix = escaped(_text((array["configuration"].get("slurm") or {}).get("node_prefix")))
    count = int(array["attributes"].get("MaxCount") or 1)
    return f"{prefix}{name}-[1-{count}]" if count > 1 else f"{prefix}{name}-1"


def _autoscaled(array: Json) -> Json | None:
    settings = array["configuration"].get("slurm") or {}
    return settings if settings.get("role") == "execute" and settings.get("autoscale") is True else None


def _partition(name: str, array: Json, machine: t.Callable[[str], Json]) -> str:
    settings = _autoscaled(array)
    if settings is None:
        return ""
    about = machine((types(array) or [""])[0])
    memory = int(about.get("memory", 1)) * 1024
    memory -= max(1024, memory // 20)
    gres = f" Gres=gpu:{about['gpuCount']}" if about.get("gpuCount") else ""
    default = "YES" if settings.get("default_partition") is True else "NO"
    cores = about.get("pcpuCount", 1) if settings.get("use_pcpu", True) else about.get("vcpuCount", 1)
    return (
        f"PartitionName={settings.get('partition', name)} Nodes={_nodes(name, array)} Default={default}"
        f" DefMemPerCPU={memory // max(1, cores)} MaxTime=INFINITE State=UP\n"
        f"Nodename={_nodes(name, array)} Feature=cloud STATE=CLOUD CPUs={cores} ThreadsPerCore=1"
        f" RealMemory={memory}{gres}\n"
    )


def _gres(name: str, array: Json, machine: t.Callable[[str], Json]) -> str:
    count = machine((types(array) or [""])[0]).get("gpuCount") if _autoscaled(array) else 0
    files = f"/dev/nvidia[0-{count - 1}]" if count and count > 1 else "/dev/nvidia0"
    return f"Nodename={_nodes(name, array)} Name=gpu Count={count} File={files}\n" if count else ""
