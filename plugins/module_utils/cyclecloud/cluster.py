# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster in CycleCloud: looked at, imported, started, awaited, removed. Private."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import parameters, rest, template, wish
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import (
    Cli,
    CliError,
    Json,
    told,
    unreached,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.here import Server
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.notes import (
    Notes,
    fingerprint,
    folder,
    same_secret,
    write,
)


class Found(t.NamedTuple):
    """``send`` means import; ``drift`` are parameters that somebody else changed."""

    there: bool
    started: bool
    exported: Json
    send: bool
    drift: list[str]
    pending: list[str]


class Cluster:
    """One cluster; ``want`` are the options of module cyclecloud_cluster."""

    def __init__(self, cli: Cli, want: Json, server: Server | None) -> None:
        self.cli, self.want, self._server = cli, want, server
        self.name: str = want["name"]
        self.folder = Path(want["state_dir"])
        self.notes = Notes(want["state_dir"], f"cluster-{self.name}")
        self.noted: Json = {}
        self.values: Json = {}
        self.secret: Json = want.get("secret_parameters") or {}

    @property
    def server(self) -> Server:
        if self._server is None:
            raise CliError("the server is not set up yet")
        return self._server

    def prepare(self) -> list[str]:
        """Make the parameters; return everything that is wrong, before anything is sent."""
        found = wish.problems(self.want)
        text = self.want["template"]
        if not self.want["builtin"] and len(template.clusters(text)) != 1:
            found.append(f"the template has {len(template.clusters(text))} clusters, it must have one")
        known = None if self.want["builtin"] else template.declared(text)
        theirs = {**self.want["parameters"], **self.secret}
        if found:
            return found + parameters.unknown(theirs, known)
        self.values = {**parameters.build(self.want), **theirs}
        return parameters.unknown(self.values, known) + parameters.lacking(self.values, known)

    def digest(self) -> str:
        what = [self.want["builtin"] or self.want["template"], json.dumps(self._plain(), sort_keys=True)]
        return hashlib.sha256("\0".join(what).encode()).hexdigest()

    def _plain(self) -> Json:
        return {key: value for key, value in self.values.items() if key not in self.secret}

    def look(self) -> Found:
        """Compare with the server and with what was sent before."""
        self.noted = self.notes.load()
        if not self.server.exists(self.name):
            return Found(False, False, {}, True, [], ["start"])
        exported = self._exported()
        drift = parameters.drifted(self.values, exported, self.secret)
        secrets = (
            same_secret(json.dumps(self.secret, sort_keys=True), self.noted.get("secrets")) if self.secret else True
        )
        changed = self.noted.get("digest") != self.digest() or not secrets
        started = self.server.started(self.name)
        return Found(True, started, exported, changed, [] if changed else drift, self.noted.get("pending", []))

    def _exported(self) -> Json:
        text = self.cli.read("export_parameters", self.name)
        try:
            found = json.loads(text)
        except ValueError as exc:
            raise CliError(f"'export_parameters {self.name}' did not print JSON: {text.strip()[:200]!r}") from exc
        return found if isinstance(found, dict) else {}

    def diff(self, found: Found) -> list[dict[str, str]]:
        """What changes, line by line."""
        after = self.want["builtin"] or self.want["template"]
        keys = set(self.values)
        diffs = [
            {
                "before_header": f"template of {self.name}",
                "after_header": f"template of {self.name}",
                "before": self.noted.get("template", "") if found.there else "",
                "after": after,
            },
            {
                "before_header": f"parameters of {self.name}",
                "after_header": f"parameters of {self.name}",
                "before": parameters.lines(found.exported, keys, self.secret),
                "after": parameters.lines(self.values, keys, self.secret),
            },
        ]
        return [one for one in diffs if one["before"] != one["after"]]

    def send(self, found: Found) -> None:
        """Import; what has to follow is noted before, so that a run that is killed here is made good."""
        pending = [*(["start"] if self.want["state"] == "started" else []), *(["scale"] if found.started else [])]
        folder(self.folder)
        self._note(pending=sorted({*found.pending, *pending}), digest="")
        text, values = self.folder / f"{self.name}.txt", self.folder / f"{self.name}.json"
        try:
            write(text, self.want["template"])
            write(values, json.dumps(self.values))
            force = ["--force"] if found.there else []
            if self.want["builtin"]:
                words = ["create_cluster", self.want["builtin"], self.name, "-p", str(values), *force]
            else:
                section = template.clusters(self.want["template"])[0]
                words = ["import_cluster", self.name, "-c", section, "-f", str(text), "-p", str(values), *force]
            self._do(words, lambda: not parameters.drifted(self.values, self._exported(), self.secret))
        finally:
            for one in (text, values):
                with contextlib.suppress(FileNotFoundError):
                    one.unlink()
        self._confirm()

    def _confirm(self) -> None:
        """The server has to have what was sent: it takes unknown parameters without a word."""
        wrong = parameters.drifted(self.values, self._exported(), self.secret)
        if wrong:
            raise CliError(f"cluster {self.name} was imported, but the server did not take {', '.join(wrong)}")
        template_text = self.want["builtin"] or self.want["template"]
        secrets = fingerprint(json.dumps(self.secret, sort_keys=True)) if self.secret else ""
        self._note(digest=self.digest(), template=template_text, secrets=secrets)

    def start(self) -> None:
        """Start, also one that runs already: node arrays that are new wait for it."""
        self._do(["start_cluster", self.name], lambda: self.server.started(self.name))
        self.done("start")

    def _do(self, words: list[str], happened: t.Callable[[], bool]) -> None:
        """Run a command that changes something; where nobody knows its outcome, look before saying that it failed."""
        done = self.cli.try_cyclecloud(*words, timeout=600)
        if not done.problem:
            return
        if unreached(done):
            time.sleep(2)
            with contextlib.suppress(CliError, rest.CycleCloudError):
                if self.server.exists(self.name) and happened():
                    return
        raise CliError(self._hidden(f"'{' '.join(words)}' failed: {told(done)}"))

    def _hidden(self, text: str) -> str:
        for value in self.secret.values():
            text = text.replace(str(value), "********") if str(value) else text
        return self.cli.hidden(text)

    def done(self, what: str) -> None:
        """Note that something that had to follow an import has been done."""
        self._note(pending=[one for one in self.noted.get("pending", []) if one != what])

    def _note(self, **values: t.Any) -> None:
        self.noted.update(values)
        self.notes.save(self.noted)
