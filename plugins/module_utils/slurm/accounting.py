# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's accounting database: what is wanted against what ``sacctmgr -nP show`` prints."""

from __future__ import annotations

import re
import time
import typing as t
from concurrent import futures

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

# Slurm's accounting database: what is wanted against what ``sacctmgr -nP show`` prints. No I/O; private.


Rows = t.List[t.Dict[str, str]]
_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?")


class AccountingError(ValueError):
    """The wish or the answer makes no sense; the text is fit for the user."""


class WantedAccounting(t.NamedTuple):
    """Names are what Slurm makes of them: lower case."""

    cluster: str
    qos: list[dict[str, t.Any]]
    accounts: list[dict[str, t.Any]]
    users: list[dict[str, t.Any]]


class AccountingStep(t.NamedTuple):
    """One call of sacctmgr and what it does, in words."""

    argv: list[str]
    text: str


def show_commands(wanted: WantedAccounting) -> dict[str, list[str]]:
    """The ``sacctmgr -nP show`` arguments; their last word lists the fields, in the order of the answer's columns."""
    on_associations = _setting_names(wanted.accounts + wanted.users)
    return {
        "cluster": ["cluster", _format(["cluster"])],
        "qos": ["qos", _format(["name", "description", *_setting_names(wanted.qos)])],
        "account": ["account", _format(["account", "description", "organization"])],
        "user": ["user", _format(["user", "defaultaccount", "adminlevel"])],
        "association": [
            "association",
            f"cluster={wanted.cluster}",
            _format(["account", "user", "partition", "parentname", *on_associations]),
        ],
    }


def _format(fields: list[str]) -> str:
    return "format=" + ",".join(fields)


def _setting_names(items: list[dict[str, t.Any]]) -> list[str]:
    return sorted({key.lower() for item in items for key in item.get("settings") or {}})


def rows(text: str, query: list[str]) -> Rows:
    """Read an answer; a line with another number of columns is refused."""
    fields = query[-1].split("=", 1)[1].split(",")
    found = []
    for line in text.splitlines():
        columns = line.split("|")
        if len(columns) != len(fields):
            raise AccountingError(f"sacctmgr printed {line!r} where {len(fields)} columns were asked for")
        found.append(dict(zip(fields, columns)))
    return found


def plan(wanted: WantedAccounting, now: t.Mapping[str, Rows]) -> list[AccountingStep]:
    """The calls that are left to make: cluster, QOS, accounts from the top down, users."""
    steps: list[AccountingStep] = []
    if wanted.cluster not in {row["cluster"] for row in now["cluster"]}:
        steps.append(AccountingStep(["add", "cluster", wanted.cluster], f"add cluster {wanted.cluster}"))
    have_qos = {row["name"]: row for row in now["qos"]}
    for qos in wanted.qos:
        steps += _entity("qos", qos["name"], _fields(qos, "description"), have_qos.get(qos["name"]), [])
    assocs = {(row["account"], row["user"]): row for row in now["association"] if not row["partition"]}
    for account in _parents_first(wanted.accounts):
        steps += _account(wanted.cluster, account, {row["account"]: row for row in now["account"]}, assocs)
    for user in wanted.users:
        steps += _user(wanted.cluster, user, {row["user"]: row for row in now["user"]}, assocs)
    return steps


def _account(
    cluster: str, item: dict[str, t.Any], accounts: dict[str, t.Any], assocs: dict[t.Any, t.Any]
) -> list[AccountingStep]:
    name, known = item["name"], accounts.get(item["name"])
    described = _fields(item, "description", "organization", settings=False)
    limits = {**({"parent": item["parent"]} if item.get("parent") else {}), **_settings(item)}
    here = assocs.get((name, ""))
    if known is None or here is None:
        text = f"add account {name}"
        return [AccountingStep(["add", "account", name, f"cluster={cluster}", *_words({**described, **limits})], text)]
    steps = _entity("account", name, described, known, [])
    return steps + _entity("account", name, limits, {**here, "parent": here["parentname"]}, [f"cluster={cluster}"])


def _user(
    cluster: str, item: dict[str, t.Any], users: dict[str, t.Any], assocs: dict[t.Any, t.Any]
) -> list[AccountingStep]:
    name, account, known = item["name"], item["account"], users.get(item["name"])
    steps = []
    where = [f"account={account}", f"cluster={cluster}"]
    own = _fields(item, "adminlevel", settings=False)
    if item.get("default") or known is None:
        own["defaultaccount"] = account
    if (account, name) not in assocs:
        words = _words({**({} if known else own), **_settings(item)})
        steps.append(AccountingStep(["add", "user", name, *where, *words], f"add user {name} to account {account}"))
    else:
        steps += _entity("user", name, _settings(item), assocs[(account, name)], where)
    return steps + (_entity("user", name, own, known, []) if known else [])


def _entity(
    kind: str, name: str, want: dict[str, str], have: dict[str, str] | None, where: list[str]
) -> list[AccountingStep]:
    """Add what is not there, modify what differs."""
    if have is None:
        return [AccountingStep(["add", kind, name, *where, *_words(want)], f"add {kind} {name}")]
    differs = {key: text for key, text in want.items() if normal(text) != normal(have.get(key.lower(), ""))}
    if not differs:
        return []
    target = [name] if not where else [f"name={name}", *where]
    text = ", ".join(f"{key}={text}" for key, text in differs.items())
    return [AccountingStep(["modify", kind, *target, "set", *_words(differs)], f"set {text} of {kind} {name}")]


def _fields(item: dict[str, t.Any], *names: str, settings: bool = True) -> dict[str, str]:
    own = {name: str(item[name]) for name in names if item.get(name) not in (None, "")}
    return {**own, **(_settings(item) if settings else {})}


def _settings(item: dict[str, t.Any]) -> dict[str, str]:
    given = (item.get("settings") or {}).items()
    return {key: ",".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in given}


def _words(fields: dict[str, str]) -> list[str]:
    return [f"{key}={text}" for key, text in fields.items()]


def _parents_first(accounts: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    waiting, done, order = list(accounts), {"root", ""}, []
    mine = {item["name"] for item in accounts}
    while waiting:
        ready = [item for item in waiting if (item.get("parent") or "") in done or item.get("parent") not in mine]
        if not ready:
            raise AccountingError(f"accounts {', '.join(item['name'] for item in waiting)} are each other's parents")
        order += ready
        done |= {item["name"] for item in ready}
        waiting = [item for item in waiting if item not in ready]
    return order


def normal(text: str) -> t.Any:
    """Bring a value to the form in which two spellings of it are equal: 1:00:00 and 01:00:00, a=1,b=2 and b=2,a=1."""
    plain = text.strip().lower()
    if plain == "-1":  # how a limit is taken away
        return ""
    match = _TIME.fullmatch(plain)
    if match:
        days, first, second, third = (int(part) if part else None for part in match.groups())
        if third is None and days is None:  # mm:ss
            return (first or 0) * 60 + (second or 0)
        return (days or 0) * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    return sorted(plain.split(",")) if "," in plain else plain


# Ask sacctmgr what is in the accounting database, for the module slurm_accounting.


_PAUSE = 0.5


def read(
    sacctmgr: str, environment: t.Mapping[str, str], wanted: WantedAccounting, timeout: float, forgiving: bool
) -> dict[str, Rows]:
    """Ask everything: the first question waits for slurmdbd, the others then go side by side.

    ``forgiving`` takes no answer for an empty database, as check mode must before the first run.
    """
    queries = show_commands(wanted)
    end = time.monotonic() + timeout

    def ask(kind: str) -> Rows:
        argv = [sacctmgr, "-nP", "show", *queries[kind]]
        answer = run(argv, timeout, environment=environment)
        while answer.problem and kind == "cluster" and time.monotonic() < end and not forgiving:
            time.sleep(_PAUSE)
            answer = run(argv, timeout, environment=environment)
        if answer.problem and not forgiving:
            raise AccountingError(f"{' '.join(argv)} failed, is slurmdbd running? It said: {answer.problem}")
        return rows("" if answer.problem else answer.out, queries[kind])

    found = {"cluster": ask("cluster")}
    others = [kind for kind in queries if kind not in found]
    with futures.ThreadPoolExecutor() as pool:
        return {**found, **dict(zip(others, pool.map(ask, others)))}
