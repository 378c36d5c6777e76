# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google Cloud's command line: asked for JSON, never for a decision. Private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command

TIMEOUT = 600.0
_ABSENT = ("was not found", "could not be found", "not_found", "notfound", "does not exist", "unknown service account")


class GcloudError(ValueError):
    """gcloud refuses; the text is fit for the user."""


Run = t.Callable[..., _command.Outcome]


class Gcloud:
    """One project, by the account that gcloud is logged in with on this host."""

    def __init__(self, project: str, program: str = "gcloud", run: Run = _command.run) -> None:
        self.project, self.program, self._run = project, program, run

    def argv(self, words: t.Sequence[str], flags: t.Mapping[str, t.Any]) -> list[str]:
        """Return the command; flags that are true stand alone, those that are false or empty are left out."""
        return [self.program, *words, *spelt(flags), f"--project={self.project}", "--format=json", "--quiet"]

    def ask(self, words: t.Sequence[str], flags: t.Mapping[str, t.Any]) -> t.Any:
        """Run a command and return what it prints; nothing is None."""
        done = self._run(self.argv(words, flags), TIMEOUT)
        if done.problem:
            raise GcloudError(f"gcloud {' '.join(words)}: {said(done.err) or done.problem}")
        try:
            return json.loads(done.out) if done.out.strip() else None
        except ValueError as exc:
            raise GcloudError(f"gcloud {' '.join(words)} printed no JSON: {done.out[:200]!r}") from exc

    def find(self, words: t.Sequence[str], flags: t.Mapping[str, t.Any]) -> t.Any:
        """Ask for one thing; None says that there is none."""
        try:
            return self.ask(words, flags)
        except GcloudError as exc:
            if any(word in str(exc).lower() for word in _ABSENT):
                return None
            raise


def spelt(flags: t.Mapping[str, t.Any]) -> list[str]:
    """Write flags: lists with commas, dictionaries as key=value."""
    found = []
    for name, value in flags.items():
        if value is None or value is False or value in ("", [], {}):
            continue
        if isinstance(value, dict):
            value = ",".join(f"{key}={item}" for key, item in value.items())
        elif isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        found.append(f"--{name}" if value is True else f"--{name}={value}")
    return found


def said(text: str) -> str:
    """Return what gcloud complains of, without its own way of saying that it does."""
    lines = [line.strip() for line in text.splitlines()]
    start = next((index for index, line in enumerate(lines) if line.startswith("ERROR:")), None)
    if start is None:
        return ""
    return " ".join(line.lstrip("- ") for line in lines[start:] if line)[len("ERROR: ") :]
