# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A requested cluster: node arrays, parameters, and the template that carries them. No I/O."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.project import spec_value

# What is wrong with a request, and what the built-in template can take.


_ARRAY = re.compile(r"[a-z][a-z0-9]{0,19}")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PIN = re.compile(r"[^:/]+:[^:/]+:[^:/]+:\d[\w.]*")
_ID = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/([^/]+)/providers/Microsoft.Network/virtualNetworks/([^/]+)/subnets/([^/]+)",
    re.I,
)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_DATABASE = re.compile(r"\w{1,64}")
_SIZE = re.compile(r"(Standard|Basic)_\w+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# Parameters of the built-in template for each of its node arrays.
BUILTIN_ARRAYS = {
    "hpc": (
        "HPCMachineType",
        "HPCImageName",
        "MaxHPCExecuteNodeCount",
        "",
        "HPCAvailabilityZone",
        "HPCClusterInitSpecs",
    ),
    "htc": (
        "HTCMachineType",
        "HTCImageName",
        "MaxHTCExecuteNodeCount",
        "HTCUseLowPrio",
        "HTCAvailabilityZone",
        "HTCClusterInitSpecs",
    ),
    "gpu": (
        "GPUMachineType",
        "GPUImageName",
        "MaxGPUExecuteNodeCount",
        "GPUUseLowPrio",
        "GPUAvailabilityZone",
        "GPUClusterInitSpecs",
    ),
}


def subnet(value: str) -> str:
    """CycleCloud writes a subnet as ``group/network/subnet``."""
    match = _ID.fullmatch(value)
    return "/".join(match.groups()) if match else value


def name_problems(name: str) -> list[str]:
    """A name that begins with a dash would be an option, and an empty one no cluster."""
    if _CLUSTER_NAME.fullmatch(name):
        return []
    return [f"cluster name {name!r}: letters, digits and _ . -, beginning with a letter or digit"]


def problems(request: t.Mapping[str, t.Any]) -> list[str]:
    """Return everything that is wrong with the request itself."""
    faults = name_problems(request["name"])
    if subnet(request["subnet_id"]).count("/") != 2 or subnet(request["subnet_id"]).startswith("/"):
        faults.append(
            f"subnet {request['subnet_id']!r} is neither group/network/subnet nor the resource ID of a subnet"
        )
    names = [str(array.get("name", "")) for array in request["node_arrays"]]
    faults += [
        f"node array {name} is there {names.count(name)} times" for name in sorted(set(names)) if names.count(name) > 1
    ]
    if not names:
        faults.append("there is no node array: name at least one")
    if sum(bool(array.get("default")) for array in request["node_arrays"]) > 1:
        faults.append("more than one node array is the default partition")
    for array in request["node_arrays"]:
        faults += _array_problems(array, request["builtin"])
    faults += _accounting_problems(request)
    for role in ("scheduler", "login"):
        image = request[role].get("image")
        faults += [f"{role}: {text}" for text in _image_problems(image)] if image else []
    return faults


def _array_problems(array: t.Mapping[str, t.Any], builtin: str) -> list[str]:
    name = str(array.get("name", ""))
    faults = []
    if builtin and name not in BUILTIN_ARRAYS:
        faults.append("the built-in template has only hpc, htc and gpu; use the shipped one for others")
    elif not _ARRAY.fullmatch(name):
        faults.append("its name must be up to 20 small letters and digits, beginning with a letter")
    if name in ("login", "scheduler", "defaults"):
        faults.append("this name is taken by the template")
    if not _SIZE.fullmatch(str(array.get("machine_type", ""))):
        faults.append(f"machine_type {array.get('machine_type')!r} is no VM size such as Standard_ND96asr_v4")
    if not str(array.get("max_nodes", "")).isdigit() or int(array["max_nodes"]) < 1:
        faults.append(f"max_nodes is {array.get('max_nodes')!r}, 1 or more is needed")
    if builtin and name == "hpc" and array.get("spot"):
        faults.append("the built-in template has no spot instances in hpc")
    faults += _image_problems(str(array.get("image", "")))
    return [f"node array {name or '?'}: {text}" for text in faults]


def _accounting_problems(request: t.Mapping[str, t.Any]) -> list[str]:
    """CycleCloud's project takes what is missing as root at localhost, where it installs no database."""
    accounting, password = request.get("accounting") or {}, request.get("accounting_password") or ""
    unknown = sorted(set(accounting) - {"url", "user", "database", "certificate"})
    faults = [f"accounting has {name}; it takes url, user, database and certificate" for name in unknown]
    if not any(accounting.values()) and not password:
        return faults
    faults += [f"accounting.{name} is needed" for name in ("url", "user") if not accounting.get(name)]
    if not password:
        faults.append("accounting_password is needed with accounting")
    if accounting.get("url") and not _HOST.fullmatch(str(accounting["url"])):
        faults.append(f"accounting.url {accounting['url']!r} is no host name, such as train.mysql.database.azure.com")
    if accounting.get("database") and not _DATABASE.fullmatch(str(accounting["database"])):
        faults.append(f"accounting.database {accounting['database']!r}: letters, digits and _ are allowed")
    if any(sign in password for sign in "#\n\r") or password != password.strip():
        faults.append("accounting_password has #, a line break or spaces at its ends, which slurmdbd.conf cuts off")
    return faults


def _image_problems(image: str) -> list[str]:
    if image.startswith("/subscriptions/") or _PIN.fullmatch(image):
        return []
    return [
        f"image {image!r} is not pinned: give publisher:offer:sku:version with a version of numbers, as"
        " azure_compute_preflight returns it, or a resource ID. Nodes with different drivers in one partition cost days"
    ]


# What a cluster template declares.


_PARAMETER = re.compile(r"\s*\[\[\[\s*parameter\s+(\w+)\s*\]\]\]\s*(?:#.*)?$")
_SECTION = re.compile(r"\s*\[")
_SETTING = re.compile(r"\s*([\w.]+)\s*:?=\s*(.*?)\s*$")
_CLUSTER_SECTION = re.compile(r"^\s*\[cluster\s+([^\]]+?)\s*\]", re.MULTILINE)
_QUOTES = "'''"
# Words of the expression language that are not parameters, and what every cluster has.
_WORDS = {"true", "false", "undefined", "is", "isnt", "ClusterName"}


class TemplateParameter(t.NamedTuple):
    """One parameter; ``default`` is the text of the template, None without one."""

    kind: str
    default: str | None
    required: bool


def _lines(text: str) -> t.Iterator[str]:
    """Settings and sections without comments; a value in triple quotes counts as one line."""
    inside = False
    for line in text.splitlines():
        if inside:
            inside = _QUOTES not in line
        elif line.strip() and not line.lstrip().startswith("#"):
            inside = line.count(_QUOTES) == 1
            yield line


def declared_parameters(text: str) -> dict[str, TemplateParameter]:
    """Return every ``[[[parameter X]]]`` of a template with its type, default and whether it is required."""
    parameters: dict[str, TemplateParameter] = {}
    name = ""
    for line in _lines(text):
        match = _PARAMETER.match(line)
        if match:
            name = match.group(1)
            parameters[name] = TemplateParameter("", None, False)
        elif _SECTION.match(line):
            name = ""
        elif name:
            parameters[name] = _with_setting(parameters[name], line)
    return parameters


def _with_setting(parameter: TemplateParameter, line: str) -> TemplateParameter:
    match = _SETTING.match(line)
    key, value = match.groups() if match else ("", "")
    if key == "ParameterType":
        return parameter._replace(kind=value)
    if key == "DefaultValue":
        return parameter._replace(default=value)
    if key == "Required":
        return parameter._replace(required=value.lower() == "true")
    return parameter


def used_parameters(text: str) -> set[str]:
    """Return every parameter that a template reads, as ``$Name`` or inside ``${…}``."""
    names: set[str] = set()
    for line in _lines(text):
        dummy, dummy, value = line.partition("=")
        for expression in re.findall(r"\$\{(.*)\}", value):
            bare = re.sub(r'"[^"]*"', "", expression)
            names |= {word for word in re.findall(r"[A-Za-z_]\w*(?!\w|\s*\()", bare) if word not in _WORDS}
        names |= set(re.findall(r"\$([A-Za-z_]\w*)", value))
    return names


def clusters(text: str) -> list[str]:
    """Return the names of the clusters in a template."""
    return _CLUSTER_SECTION.findall(text)


# From a request to the parameters of a template.


Json = t.Dict[str, t.Any]


def build(request: t.Mapping[str, t.Any]) -> Json:
    """Return the template's parameters for a request, without those that the user adds."""
    arrays, scheduler, login = request["node_arrays"], request["scheduler"], request["login"]
    image = scheduler.get("image") or arrays[0]["image"]
    shared, slurm = request["shared"], request["slurm"]
    parameters: Json = {
        "Region": request["region"],
        "SubnetId": subnet(request["subnet_id"]),
        "Credentials": request["credentials"],
        "Autoscale": request["autoscale"],
        "NodeTags": request["tags"],
        "ManagedIdentity": request["node_identity"],
        "SchedulerMachineType": scheduler["machine_type"],
        "SchedulerImageName": image,
        "LoginImageName": login.get("image") or image,
        "NumberLoginNodes": int(login.get("count", 0)),
        "FilesystemSize": int(shared["size_gb"]),
        "SchedFilesystemSize": int(shared["sched_size_gb"]),
        "UseBuiltinShared": not shared.get("nfs_address"),
        "NFSAddress": shared.get("nfs_address", ""),
        "NFSSharedExportPath": shared.get("nfs_export", ""),
        "configuration_slurm_version": str(slurm["version"]),
        "NodeNamePrefix": slurm["node_prefix"],
        "BootDiskSize": int(scheduler.get("disk_gb", 0)),
        "SchedulerClusterInitSpecs": _specs(request, "scheduler"),
        "LoginClusterInitSpecs": _specs(request, "login"),
    }
    machine = login.get("machine_type") or scheduler["machine_type"]
    if request["builtin"]:
        parameters["loginMachineType"] = machine
        parameters["HPCMaxScalesetSize"] = request["max_scaleset_size"]
        # Without it the template ignores the zones of its node arrays.
        parameters["DefineNodesAvailabilityZone"] = any(array.get("zone") for array in arrays)
    else:
        parameters["LoginMachineType"] = machine
        parameters["SchedulerHostName"] = scheduler_host_name(request["name"])
        parameters["MaxScalesetSize"] = request["max_scaleset_size"]
    for array in arrays:
        parameters.update(_array(array, request))
    return {**parameters, **_accounting(request)}


# The project gathers nothing of a job's steps, so that sacct would know no memory and no CPU time.
GATHERED = "JobAcctGatherType=jobacct_gather/cgroup"


def _accounting(request: t.Mapping[str, t.Any]) -> Json:
    """Return the parameters of Slurm's accounting, but for the password."""
    accounting = request.get("accounting") or {}
    if not accounting.get("url"):
        return {}
    prefix = "configuration_slurm_accounting"
    certificate = str(accounting.get("certificate") or "")
    own: Json = {f"{prefix}_custom_certificate": certificate} if certificate else {}
    if certificate and request["builtin"]:
        own[f"{prefix}_custom_certificate_enabled"] = True
    return {
        f"{prefix}_enabled": True,
        f"{prefix}_url": accounting["url"],
        f"{prefix}_user": accounting["user"],
        f"{prefix}_storageloc": str(accounting.get("database") or ""),
        "additional_slurm_config": GATHERED,
        **own,
    }


def scheduler_host_name(cluster: str) -> str:
    """Return ``<cluster>-scheduler``, as CycleCloud's own template calls it; Azure takes 64 characters."""
    return f"{re.sub('[^a-z0-9-]', '-', cluster.lower())[:54]}-scheduler"


def _array(array: t.Mapping[str, t.Any], request: t.Mapping[str, t.Any]) -> Json:
    name = array["name"]
    zone = str(array.get("zone") or "")
    suffixes = ("MachineType", "ImageName", "MaxNodes", "Spot", "Zone", "ClusterInitSpecs")
    keys = BUILTIN_ARRAYS[name] if request["builtin"] else tuple(f"{name}{end}" for end in suffixes)
    values = (
        array["machine_type"],
        array["image"],
        int(array["max_nodes"]),
        bool(array.get("spot")),
        [zone] if zone and request["builtin"] else zone,  # a list of zones there, over which nodes are spread
        _specs(request, "compute"),
    )
    return {key: value for key, value in zip(keys, values) if key and not (key.endswith("Zone") and not value)}


def _specs(request: t.Mapping[str, t.Any], role: str) -> Json:
    """Return the specs of a role: on compute nodes our own project first, then others in their order."""
    own = request["project"]
    own_specs = (
        [{"project": own["name"], "spec": own["spec"], "version": own["version"]}]
        if own.get("name") and role == "compute"
        else []
    )
    other_specs = [spec for spec in request["specs"] if role in (spec.get("nodes") or ["compute"])]
    return spec_value([*own_specs, *({"spec": "default", **spec} for spec in other_specs)], request["locker"])


def unknown(values: t.Mapping[str, t.Any], known: t.Mapping[str, TemplateParameter] | None) -> list[str]:
    """Say which parameters the template does not declare; CycleCloud would drop them without an error."""
    if known is None:  # the server does not list them
        return []
    names = set(known)
    return [
        f"parameter {name} is not declared by the template{_like(name, names)}" for name in sorted(set(values) - names)
    ]


def lacking(values: t.Mapping[str, t.Any], known: t.Mapping[str, TemplateParameter] | None) -> list[str]:
    """Say which required parameters have no value."""
    return [
        f"parameter {name} is required by the template and not given"
        for name, parameter in sorted((known or {}).items())
        if parameter.required and parameter.default in (None, "") and values.get(name) in (None, "", {})
    ]


def _like(name: str, names: t.Iterable[str]) -> str:
    matches = [candidate for candidate in sorted(names) if candidate.lower() == name.lower()]
    return f"; it has {matches[0]}" if matches else ""


def same(requested: t.Any, observed: t.Any) -> bool:
    """Compare leniently: exported values may be texts (of a number 4, 4.0), and all empty values are equal."""
    if requested in (None, "", {}) and observed in (None, "", {}):
        return True
    if isinstance(requested, (int, float)) and isinstance(observed, str) and _NUMBER.fullmatch(observed.strip()):
        return float(observed) == requested
    return requested == observed or _plain(requested) == _plain(observed)


def _plain(value: t.Any) -> str:
    if isinstance(value, str):
        return value.strip() if value.strip().lower() not in ("true", "false") else value.strip().lower()
    return json.dumps(value, sort_keys=True) if isinstance(value, (dict, list)) else str(value).lower()


def drifted(requested: Json, exported: t.Mapping[str, t.Any], secret: t.Container[str]) -> list[str]:
    """Return which of our parameters differ on the server; secrets are not exported, so they are left out."""
    return [key for key in sorted(requested) if key not in secret and not same(requested[key], exported.get(key))]


def lines(values: t.Mapping[str, t.Any], keys: t.Iterable[str], secret: t.Container[str]) -> str:
    """Return parameters as lines for a diff, secrets hidden."""
    shown = {
        key: "(hidden)" if key in secret else json.dumps(values[key], sort_keys=True)
        for key in sorted(keys)
        if key in values
    }
    return "".join(f"{key} = {value}\n" for key, value in shown.items())
