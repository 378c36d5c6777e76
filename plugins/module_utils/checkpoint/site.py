# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a site uploads: settings, credentials, and how fast one storage account takes files."""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import TrustError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

# How fast files may be sent to one storage account, and by how many connections. No I/O.


LIMIT_SHARE = 92  # percent
CORE_SHARE = 90  # percent
LEAST_MBPS = 100


class PlanError(ValueError):
    """These files cannot be sent at once without being throttled; the text is fit for the user."""


class TransferPlan(t.NamedTuple):
    """The rate and connections of each copy; `total_mbps` is the rate of all of them together."""

    cap_mbps: int
    concurrency: int
    copies_per_node: int
    nodes: int
    total_mbps: int


def plan(
    ingress_gbps: float,
    files_per_node: int,
    nodes: int,
    cores: int,
    *,
    node_gbps: float | None = None,
    cap_mbps: int | None = None,
    least_mbps: int = LEAST_MBPS,
) -> TransferPlan:
    """Divide the ingress of an account among copies that run at the same time, one for each file."""
    _check(ingress_gbps, node_gbps, cap_mbps)
    for name, count in (("files", files_per_node), ("nodes", nodes), ("cores", cores), ("least", least_mbps)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise PlanError(f"{name} is {count!r}; a whole number from 1 is needed")
    budget = math.floor(ingress_gbps * 1000) * LIMIT_SHARE // 100
    most = budget // (files_per_node * nodes)
    if node_gbps is not None:
        most = min(most, math.floor(node_gbps * 1000) * LIMIT_SHARE // 100 // files_per_node)
    cap = most if cap_mbps is None else cap_mbps
    if cap > most:
        raise PlanError(_over(cap, most, files_per_node, nodes, ingress_gbps, node_gbps))
    if cap < least_mbps:
        raise PlanError(_slow(cap, files_per_node, nodes, budget, least_mbps, ingress_gbps))
    concurrency = max(1, cores * CORE_SHARE // 100 // files_per_node)
    return TransferPlan(cap, concurrency, files_per_node, nodes, cap * files_per_node * nodes)


def _check(ingress: float, node: float | None, cap: int | None) -> None:
    for name, value in (("limit", ingress), ("node_limit", node)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise PlanError(f"{name} is {value!r}; Gb/s above 0 are needed")
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
        raise PlanError(f"cap is {cap!r}; whole Mb/s from 1 are needed")


def _over(cap: int, most: int, files: int, nodes: int, ingress: float, node: float | None) -> str:
    beside = "" if node is None else f", and each node sends at most {node:g} Gb/s"
    return (
        f"{nodes} nodes x {files} files x {cap} Mb/s are {nodes * files * cap} Mb/s, and the account takes"
        f" {ingress:g} Gb/s{beside}: it would throttle. At most {most} Mb/s can be the cap of each file"
    )


def _slow(cap: int, files: int, nodes: int, budget: int, least: int, ingress: float) -> str:
    at_once = budget // least
    return (
        f"{nodes} nodes x {files} files share {ingress:g} Gb/s, which leaves each {cap} Mb/s, less than {least}: it"
        f" would throttle. Send at most {at_once} files at a time (fewer files of each node at once, or from fewer"
        " nodes), divide them among several accounts, or have Azure support raise the account's ingress limit"
    )


# How a site uploads: its settings, and credentials that no command line and no message shows.


LOGIN = {"managed_identity": "MSI", "service_principal": "SPN", "workload_identity": "WORKLOAD", "sas": ""}
_NUMBERS: dict[str, type] = {
    **dict.fromkeys(("ingress_gbps", "node_gbps", "settle", "answer_timeout", "copy_timeout"), float),
    **dict.fromkeys(("copies", "cores", "least_mbps"), int),
}
_SECRET = re.compile(r"(AZCOPY_(SPA|MSI)_[A-Z_]+|AZCOPY_(TENANT_ID|ACTIVE_DIRECTORY_ENDPOINT)|AZURE_[A-Z_]+|SAS)")


class Site(t.NamedTuple):
    """Settings of all uploads of a cluster; the role's README says what they mean."""

    azcopy: str
    destination: str
    ingress_gbps: float
    state_dir: str
    node_gbps: float | None = None
    copies: int = 8
    cores: int | None = None
    least_mbps: int = LEAST_MBPS
    layout: str = "shared"
    identity: str = "managed_identity"
    credentials: str = ""
    sas_on_command_line: bool = False
    environment: t.Mapping[str, str] = {}
    settle: float = 60
    verify: str = "properties"
    answer_timeout: float = 60
    copy_timeout: float = 86400


def site(document: t.Any) -> Site:
    """Return the checked settings of a document; raises CheckpointError with the name of a wrong one."""
    if not isinstance(document, dict):
        raise CheckpointError("the settings are no dictionary")
    unknown = sorted(set(document) - set(Site._fields))
    missing = sorted({"azcopy", "destination", "ingress_gbps", "state_dir"} - set(document))
    if unknown or missing:
        raise CheckpointError(f"the settings have unknown names {unknown} and lack {missing}")
    settings = Site(**{**document, **_numbers(document)})
    for name, value, known in (
        ("identity", settings.identity, tuple(LOGIN)),
        ("layout", settings.layout, ("shared", "local")),
        ("verify", settings.verify, ("properties", "content")),
    ):
        if value not in known:
            raise CheckpointError(f"{name} is {value!r}, accepted are {', '.join(known)}")
    if settings.identity == "sas" and not settings.sas_on_command_line:
        raise CheckpointError(
            "azcopy takes a SAS only on its command line, where every user of the node can read it"
            " (azure-storage-azcopy issue 2138): use an identity, or allow it with sas_on_command_line"
        )
    if settings.identity in ("service_principal", "sas") and not settings.credentials:
        raise CheckpointError(f"identity {settings.identity} needs credentials, a file that only its owner can read")
    return settings


def _numbers(document: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the settings that are numbers; ansible-core before 2.19 makes texts of those in a template."""
    numbers = {}
    for name, kind in _NUMBERS.items():
        value = document.get(name)
        if isinstance(value, str):
            try:
                numbers[name] = None if not value and name in ("node_gbps", "cores") else kind(value)
            except ValueError as exc:
                raise CheckpointError(f"{name} is {value!r}; a number is needed") from exc
    return numbers


def credentials(path: str, user: int) -> dict[str, str]:
    """Return the values in a file of C(NAME=value) lines; refuses one that others can read or could have written."""
    if not path:
        return {}
    try:
        with Path(path).open(encoding="utf-8") as file:
            known = os.fstat(file.fileno())  # of the very file that is read
            text = file.read()
    except (OSError, ValueError) as exc:
        raise CheckpointError(
            f"the credentials {path} cannot be read: {getattr(exc, 'strerror', None) or exc}"
        ) from exc
    if known.st_uid != user or stat.S_IMODE(known.st_mode) & 0o177:
        raise CheckpointError(
            f"the credentials {path} must belong to the user who uploads (uid {user}) and have mode 0600; they belong"
            f" to uid {known.st_uid} with mode {stat.S_IMODE(known.st_mode):04o}"
        )
    secrets = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.strip().partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not _SECRET.fullmatch(name):
            # The line itself may be the secret.
            raise CheckpointError(f"line {number} of the credentials {path} is no NAME=value that azcopy or we know")
        secrets[name] = value
    return secrets


def variables(settings: Site, secrets: t.Mapping[str, str], scratch: str, concurrency: int) -> dict[str, str]:
    """Return the environment of azcopy; its logs and plans are in a directory of its own."""
    login = LOGIN[settings.identity]
    return {
        **{name: str(value) for name, value in settings.environment.items()},
        **{name: value for name, value in secrets.items() if name != "SAS"},
        **({"AZCOPY_AUTO_LOGIN_TYPE": login} if login else {}),
        "AZCOPY_CONCURRENCY_VALUE": str(concurrency),
        "AZCOPY_LOG_LOCATION": scratch,
        "AZCOPY_JOB_PLAN_LOCATION": scratch,
        "AZCOPY_DISABLE_SYSLOG": "true",
        "HOME": scratch,
    }


def private(base: Path, user: int, trusted: t.AbstractSet[int]) -> tuple[Path, str]:
    """Return the user's own directory below one that all users share, and what the user should know about it.

    Anybody can take the name that it usually has. Then it is one with a name that nobody could guess, which is found
    again by its owner.
    """
    usual = base / f"user-{user}"
    try:
        with _trusted.opened(str(base), trusted, for_entries=True):
            pass
        with contextlib.suppress(FileExistsError):
            usual.mkdir(mode=0o700)
        if usual.lstat().st_uid == user:
            return own(usual, base, user), ""
        others = sorted(path for path in base.glob(f"{usual.name}-*") if _is_own(path, user))
        path = others[0] if others else Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=base))
    except TrustError as exc:
        raise CheckpointError(f"no state of uploads can be kept in {base}: {exc}") from exc
    except OSError as exc:
        raise CheckpointError(f"{usual} cannot be made: {exc.strerror or exc}") from exc
    owner = usual.lstat().st_uid
    return path, f"{usual} belongs to uid {owner}, so {path} is used instead. Uid {owner} or root can remove the former"


def trusted_users() -> frozenset[int]:
    """Return root, this user, and who installed this program, which could do all that this user can."""
    program = Path(sys.argv[0])
    return _trusted.trusted_users(*([program.stat().st_uid] if program.is_file() else []))


def own(path: Path, base: Path, user: int) -> Path:
    """Return a directory below one that all users share; raises CheckpointError when it is not this user's alone."""
    named = path.parent == base and re.fullmatch(rf"user-{user}(-.+)?", path.name)
    if not named or not _is_own(path, user):
        raise CheckpointError(f"{path} is not a directory of uid {user} alone; remove it or give it back")
    return path


def _is_own(path: Path, user: int) -> bool:
    try:
        known = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(known.st_mode) and known.st_uid == user and not stat.S_IMODE(known.st_mode) & 0o077


def usable_cores() -> int:
    """Return how many CPUs this process may use: a job's share of a node."""
    return len(os.sched_getaffinity(0))
