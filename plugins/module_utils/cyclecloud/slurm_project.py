# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CycleCloud's own Slurm project: which versions a server has, and what its template declares."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cluster_request import TemplateParameter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    Cli,
    CliError,
    Json,
    quoted,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.site import WatchedFolder

NAME = "slurm"
BUILTIN = "slurm_template"
# The parameter whose default is the version of Slurm that a project installs.
_SLURM_VERSION = "configuration_slurm_version"
_SPEC = re.compile(
    r"^(?P<head>\s*\[\[\[\s*cluster-init\s+cyclecloud/(?P<project>[\w.-]+):(?P<spec>[\w.-]+))"
    r"(?::(?P<version>[\w.-]+))?(?P<tail>\s*\]\]\])",
    re.MULTILINE,
)
_VERSION = re.compile(r"\d+(\.\d+)*")
_URL = re.compile(r"https://[^\s\"']+")


class SlurmProject(t.NamedTuple):
    """The project of one cluster; ``declared`` is None where the server lists no parameters of its template."""

    version: str = ""
    slurm: str = ""
    declared: t.Mapping[str, TemplateParameter] | None = None
    record: t.Mapping[str, t.Any] = {}
    warnings: t.Sequence[str] = ()


def specs(text: str) -> list[tuple[str, str]]:
    """Return project and version of every spec of CycleCloud's own projects; no version is an empty one."""
    return [(match["project"], match["version"] or "") for match in _SPEC.finditer(text)]


def with_version(text: str, version: str) -> str:
    """Return a template whose specs of the Slurm project have a version; one that stands there stays."""

    def written(match: re.Match[str]) -> str:
        own = match["version"] or (version if match["project"] == NAME else "")
        return f"{match['head']}{f':{own}' if own else ''}{match['tail']}"

    return _SPEC.sub(written, text)


def projects(rows: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, list[str]]:
    """Return the versions of each project, the newest first; names in small letters, as comparisons ignore case."""
    offered: dict[str, set[str]] = {}
    for row in rows:
        if row.get("Name") and _VERSION.fullmatch(str(row.get("Version", ""))):
            offered.setdefault(str(row["Name"]).lower(), set()).add(str(row["Version"]))
    return {name: sorted(versions, key=_order, reverse=True) for name, versions in offered.items()}


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def needed(request: t.Mapping[str, t.Any]) -> bool:
    """Whether the cluster is one of CycleCloud's Slurm project; a template of the user may be another's."""
    return bool(request["builtin"]) or any(project == NAME for project, dummy in specs(request["template"]))


def resolve(cli: Cli, request: t.Mapping[str, t.Any], noted: t.Mapping[str, t.Any]) -> SlurmProject:
    """Choose the project: the one that is asked for, else that of the cluster so far, else the server's newest.

    A cluster does not move to another project because the server was upgraded: nodes of one partition would boot with
    another Slurm.
    """
    if not needed(request):
        return SlurmProject()
    slurm = request["slurm"]
    have = projects(cli.query("select Name, Version from Cloud.Project"))
    offered = have.get(NAME, [])
    named = [version for project, version in specs(request["template"]) if project == NAME and version]
    pinned = str(slurm.get("project") or _of_builtin(request["builtin"]) or (named[0] if named else ""))
    version = pinned or str(noted.get("project") or "") or (offered[0] if offered else "")
    others = sorted({name for name in named if name != version})
    if others:
        raise CliError(
            f"the template names Slurm project {', '.join(others)} beside {version}: leave the versions out of its"
            " cluster-init specs"
        )
    record = _record(version, str(slurm.get("project_url") or ""), offered, bool(pinned))
    missing = sorted({name for name, dummy in specs(request["template"]) if name != NAME and have and name not in have})
    if missing:
        raise CliError(
            f"the template uses CycleCloud's project {', '.join(missing)}, of which the server has no record: it has"
            f" {', '.join(sorted(have))}"
        )
    declared = None if record else _declared(cli, version)
    if record and request["builtin"]:
        raise CliError(f"the server has no template of Slurm project {version}: use the shipped template with it")
    warnings = []
    if request["builtin"] and declared is None:
        warnings.append(
            f"CycleCloud lists no parameters of {BUILTIN}_{version}: nobody checked that it has those that are set"
        )
    if not pinned and offered and version != offered[0]:
        warnings.append(
            f"the cluster stays with Slurm project {version}; the server has {offered[0]}, which slurm.project chooses"
        )
    default = (declared or {}).get(_SLURM_VERSION)
    fresh = version != noted.get("project")
    chosen = str(
        slurm.get("version") or ("" if fresh else noted.get("slurm") or "") or (default and default.default) or ""
    )
    if not chosen:
        raise CliError(
            f"slurm.version is needed: the server does not say which version of Slurm project {version} installs"
        )
    return SlurmProject(version, chosen.strip("\"'"), declared, record, warnings)


def _of_builtin(name: str) -> str:
    return name[len(BUILTIN) + 1 :] if name.startswith(f"{BUILTIN}_") else ""


def _record(version: str, url: str, offered: t.Sequence[str], pinned: bool) -> Json:
    """Return the record that the server lacks, or refuse a version that it has not."""
    if version in offered and version:
        return {}
    has = f"the server has Slurm project {', '.join(offered)}" if offered else "the server has no Slurm project"
    if not version or not url:
        unfit = f", not {version}" if version else ""
        why = "" if pinned or not version else ", with which the cluster was made"
        raise CliError(
            f"{has} in Cloud.Project{unfit}{why}: set slurm.project to one that it has, or give slurm.project_url, such"
            f" as https://github.com/Azure/cyclecloud-slurm/releases/{version or '<version>'}, from where CycleCloud"
            " stages it"
        )
    if not _URL.fullmatch(url) or not _VERSION.fullmatch(version):
        raise CliError(f"slurm.project {version!r} from {url!r}: a version of numbers and an https address are needed")
    fields = {"Name": NAME, "Version": version, "ProjectType": "scheduler", "Url": url, "AutoUpgrade": False}
    return {"AdType": "Cloud.Project", **fields}


def _declared(cli: Cli, version: str) -> dict[str, TemplateParameter] | None:
    """Read the declarations of the project's own template."""
    where = quoted(f"{BUILTIN}_{version}")
    rows = cli.query(f"select * from Cloud.ClusterParameter where ClusterName == {where}")  # noqa: S608 - no SQL, and quoted
    declared = {}
    for row in rows:
        if row.get("Name"):
            default = row.get("DefaultValue", row.get("Value"))
            declared[str(row["Name"])] = TemplateParameter(
                str(row.get("ParameterType") or ""),
                None if default is None else str(default),
                row.get("Required") is True,
            )
    return declared or None


def stage(cli: Cli, project: SlurmProject, timeout: float = 360) -> None:
    """Give the server the record of a project that it does not have."""
    if project.record:
        WatchedFolder(cli).put([dict(project.record)], timeout)
