# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's accounting database: reads it with ``sacctmgr -nP show`` and plans the calls that bring it to the request."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
import time
import typing as t
from concurrent import futures
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

Rows = t.List[t.Dict[str, str]]
_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?")


class AccountingError(ValueError):
    """The request or an answer of sacctmgr makes no sense; the text is fit for the user."""


class AccountingRequest(t.NamedTuple):
    """What the database shall hold. Names are in lower case, as Slurm stores them."""

    cluster: str
    qos: list[dict[str, t.Any]]
    accounts: list[dict[str, t.Any]]
    users: list[dict[str, t.Any]]


# In slurm.conf and among the arguments of sacctmgr: no blank, no quote, no line of its own.
_PLAIN = re.compile(r"[\w.@+-]+")
_NEEDED = {"qos": ("name",), "accounts": ("name",), "users": ("name", "account")}
_NAMES = ("name", "account", "parent")
_AT_ONCE = 100  # users that one call adds


def accounting_request(params: t.Mapping[str, t.Any]) -> AccountingRequest:
    """Return what the options ask for, names in lower case; raises AccountingError where an entry lacks a name.

    Slurm keeps clusters, QOS and accounts in lower case. Users too, unless PreserveCaseUser is set in slurmdbd.conf, so
    that theirs stay as they are here, and are looked up in both forms.
    """
    problems = [f"cluster {params['cluster']!r} is no name"] if not _PLAIN.fullmatch(params["cluster"]) else []
    for kind, needed in _NEEDED.items():
        for number, entry in enumerate(params[kind], 1):
            label = f"entry {number} of {kind}"
            lacking = [key for key in needed if entry.get(key) in (None, "")]
            problems += [f"{label} lacks {', '.join(lacking)}"] if lacking else []
            problems += [
                f"{label}: {key} {entry[key]!r} is no name"
                for key in _NAMES
                if entry.get(key) not in (None, "") and not _PLAIN.fullmatch(str(entry[key]))
            ]
            if not isinstance(entry.get("settings") or {}, dict):
                problems.append(f"{label}: settings are no dictionary")
    if problems:
        raise AccountingError("; ".join(problems))
    return AccountingRequest(
        params["cluster"].lower(),
        [_lower(entry, "name") for entry in params["qos"]],
        [_lower(entry, "name", "parent") for entry in params["accounts"]],
        [_lower({**entry, "name": str(entry["name"])}, "account") for entry in params["users"]],
    )


def _lower(entry: dict[str, t.Any], *keys: str) -> dict[str, t.Any]:
    return {key: str(value).lower() if key in keys and value is not None else value for key, value in entry.items()}


class AccountingStep(t.NamedTuple):
    """One call of sacctmgr and what it does, in words."""

    argv: list[str]
    text: str


def show_commands(request: AccountingRequest) -> dict[str, list[str]]:
    """Return the ``sacctmgr -nP show`` arguments; the last lists the fields in the order of the output's columns."""
    on_associations = _setting_names(request.accounts + request.users)
    return {
        "cluster": ["cluster", _format(["cluster"])],
        "qos": ["qos", _format(["name", "description", *_setting_names(request.qos)])],
        "account": ["account", _format(["account", "description", "organization"])],
        "user": ["user", _format(["user", "defaultaccount", "adminlevel"])],
        "association": [
            "association",
            f"cluster={request.cluster}",
            _format(["account", "user", "partition", "parentname", *on_associations]),
        ],
    }


def _format(fields: list[str]) -> str:
    return "format=" + ",".join(fields)


def _setting_names(entities: list[dict[str, t.Any]]) -> list[str]:
    return sorted({key.lower() for entity in entities for key in entity.get("settings") or {}})


def rows(text: str, query: list[str]) -> Rows:
    """Return what a query printed as records; a line with another number of columns is refused."""
    fields = query[-1].split("=", 1)[1].split(",")
    records = []
    for line in text.splitlines():
        columns = line.split("|")
        if len(columns) != len(fields):
            raise AccountingError(f"sacctmgr printed {line!r} where {len(fields)} columns were asked for")
        records.append(dict(zip(fields, columns)))
    return records


def plan(request: AccountingRequest, observed: t.Mapping[str, Rows]) -> list[AccountingStep]:
    """Return the calls that are left to make: cluster, QOS, accounts from the top down, users."""
    steps: list[AccountingStep] = []
    if request.cluster not in {row["cluster"] for row in observed["cluster"]}:
        steps.append(AccountingStep(["add", "cluster", request.cluster], f"add cluster {request.cluster}"))
    have_qos = {row["name"]: row for row in observed["qos"]}
    for qos in request.qos:
        steps += _entity("qos", qos["name"], _fields(qos, "description"), have_qos.get(qos["name"]), [])
    assocs = {(row["account"], row["user"]): row for row in observed["association"] if not row["partition"]}
    for account in _parents_first(request.accounts):
        steps += _account(request.cluster, account, {row["account"]: row for row in observed["account"]}, assocs)
    have_users = {row["user"]: row for row in observed["user"]}
    return steps + _together(
        [step for user in request.users for step in _user(request.cluster, user, have_users, assocs)]
    )


def _account(
    cluster: str, account: dict[str, t.Any], accounts: dict[str, t.Any], assocs: dict[t.Any, t.Any]
) -> list[AccountingStep]:
    name, known = account["name"], accounts.get(account["name"])
    described = _fields(account, "description", "organization", settings=False)
    limits = {**({"parent": account["parent"]} if account.get("parent") else {}), **_settings(account)}
    association = assocs.get((name, ""))
    if known is None or association is None:
        text = f"add account {name}"
        return [AccountingStep(["add", "account", name, f"cluster={cluster}", *_words({**described, **limits})], text)]
    steps = _entity("account", name, described, known, [])
    return steps + _entity(
        "account", name, limits, {**association, "parent": association["parentname"]}, [f"cluster={cluster}"]
    )


def _user(
    cluster: str, user: dict[str, t.Any], users: dict[str, t.Any], assocs: dict[t.Any, t.Any]
) -> list[AccountingStep]:
    name = user["name"] if user["name"] in users else user["name"].lower()
    account, known = user["account"], users.get(name)
    name = name if known else user["name"]
    steps = []
    where = [f"account={account}", f"cluster={cluster}"]
    own = _fields(user, "adminlevel", settings=False)
    if user.get("default") or known is None:
        own["defaultaccount"] = account
    if (account, name) not in assocs:
        arguments = _words({**({} if known else own), **_settings(user)})
        steps.append(AccountingStep(["add", "user", name, *where, *arguments], f"add user {name} to account {account}"))
    else:
        steps += _entity("user", name, _settings(user), assocs[(account, name)], where)
    return steps + (_entity("user", name, own, known, []) if known else [])


def _together(steps: list[AccountingStep]) -> list[AccountingStep]:
    """Have users that follow each other and are to become the same added by one call: any call takes half a second."""
    together: list[AccountingStep] = []
    for (verb, same), group in itertools.groupby(steps, lambda step: (step.argv[:2], step.argv[3:])):
        if verb != ["add", "user"]:
            together += group
            continue
        texts = {step.argv[2]: step.text for step in group}
        names = list(texts)
        for part in (names[first : first + _AT_ONCE] for first in range(0, len(names), _AT_ONCE)):
            text = f"add users {', '.join(part)} to {same[0].replace('=', ' ')}" if len(part) > 1 else texts[part[0]]
            together.append(AccountingStep([*verb, ",".join(part), *same], text))
    return together


def _entity(
    kind: str, name: str, settings: dict[str, str], observed: dict[str, str] | None, where: list[str]
) -> list[AccountingStep]:
    """Add an entity that does not exist, or modify the settings that differ."""
    if observed is None:
        return [AccountingStep(["add", kind, name, *where, *_words(settings)], f"add {kind} {name}")]
    differs = {key: text for key, text in settings.items() if normal(text) != normal(observed.get(key.lower(), ""))}
    if not differs:
        return []
    target = [name] if not where else [f"name={name}", *where]
    text = ", ".join(f"{key}={text}" for key, text in differs.items())
    return [AccountingStep(["modify", kind, *target, "set", *_words(differs)], f"set {text} of {kind} {name}")]


def _fields(entity: dict[str, t.Any], *names: str, settings: bool = True) -> dict[str, str]:
    own = {name: str(entity[name]) for name in names if entity.get(name) not in (None, "")}
    return {**own, **(_settings(entity) if settings else {})}


def _settings(entity: dict[str, t.Any]) -> dict[str, str]:
    settings = (entity.get("settings") or {}).items()
    return {key: ",".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in settings}


def _words(fields: dict[str, str]) -> list[str]:
    return [f"{key}={text}" for key, text in fields.items()]


def _parents_first(accounts: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    waiting, done, order = list(accounts), {"root", ""}, []
    mine = {account["name"] for account in accounts}
    while waiting:
        ready = [
            account for account in waiting if (account.get("parent") or "") in done or account.get("parent") not in mine
        ]
        if not ready:
            raise AccountingError(
                f"accounts {', '.join(account['name'] for account in waiting)} are each other's parents"
            )
        order += ready
        done |= {account["name"] for account in ready}
        waiting = [account for account in waiting if account not in ready]
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


_PAUSE = 0.1  # at least: as long as it took to ask, which on a slow processor is work that slurmdbd needs to start
_CONF = """ClusterName={cluster}
SlurmctldHost=localhost
AccountingStorageType=accounting_storage/slurmdbd
AccountingStoragePort={port}
"""


@contextlib.contextmanager
def client(cluster: str, port: int | str, directory: str | None = None) -> t.Iterator[dict[str, str]]:
    """Yield the variables with which Slurm's commands ask the slurmdbd of this host, which need have no slurm.conf."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        conf = Path(folder) / "slurm.conf"
        conf.write_text(_CONF.format(cluster=cluster, port=port), encoding="utf-8")
        yield {"SLURM_CONF": str(conf)}


def read(
    sacctmgr: str, environment: t.Mapping[str, str], request: AccountingRequest, timeout: float, forgiving: bool
) -> dict[str, Rows]:
    """Query the database once slurmdbd answers, all at the same time: each query is 0.4 s of waiting for its packets.

    With ``forgiving`` a query that fails counts as an empty database, as check mode needs before the first run.
    """
    queries = show_commands(request)
    asked = time.monotonic()
    end = asked + timeout

    def ask(kind: str) -> Outcome:
        return run([sacctmgr, "-nP", "show", *queries[kind]], timeout, environment=environment)

    with futures.ThreadPoolExecutor() as pool:
        answers = dict(zip(queries, pool.map(ask, queries)))
        while answers["cluster"].problem and (now := time.monotonic()) < end and not forgiving:
            time.sleep(max(_PAUSE, now - asked))
            asked = time.monotonic()
            answers["cluster"] = ask("cluster")
        if not answers["cluster"].problem and not forgiving:
            again = [kind for kind in queries if answers[kind].problem]  # slurmdbd did not answer yet
            answers.update(zip(again, pool.map(ask, again)))
    for kind, answer in answers.items():
        if answer.problem and not forgiving:
            argv = " ".join([sacctmgr, "-nP", "show", *queries[kind]])
            raise AccountingError(f"{argv} failed, is slurmdbd running? It said: {answer.problem}")
    return {kind: rows("" if answer.problem else answer.out, queries[kind]) for kind, answer in answers.items()}


def carry_out(
    sacctmgr: str, environment: t.Mapping[str, str], steps: t.Sequence[AccountingStep], timeout: float
) -> None:
    """Make the calls, those of the cluster beside those of the QOS: each is some 0.4 s of waiting."""

    def make(chain: list[AccountingStep]) -> None:
        for step in chain:
            argv = [sacctmgr, "-i", "-Q", *step.argv]
            outcome = run(argv, timeout, environment=environment)
            if outcome.rc != 0:
                heard = outcome.err.strip() or outcome.out.strip()
                raise AccountingError(f"cannot {step.text}: {' '.join(argv)} said: {heard}")

    by_kind: dict[str, list[AccountingStep]] = {"cluster": [], "qos": [], "": []}
    for step in steps:
        by_kind[step.argv[1] if step.argv[1] in by_kind else ""].append(step)
    with futures.ThreadPoolExecutor() as pool:
        list(pool.map(make, (by_kind["cluster"], by_kind["qos"])))
    make(by_kind[""])
