# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a squashfs from where it comes from: enroot and a registry, a web server, a file. Private."""

from __future__ import annotations

import re
import shutil
import typing as t
from http.client import HTTPException
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch_argv import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import ImageError, create
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_source import (
    Asked,
    digest_of,
    reference,
)

Open = t.Callable[[str], t.BinaryIO]
_NO_SUCH = re.compile(r"Usage: enroot|Unknown|Invalid argument", re.IGNORECASE)


class Origin:
    """One source, asked by the programs of this host or of a compute node."""

    def __init__(self, asked: Asked, srun: t.Sequence[str], timeout: float, opened: Open) -> None:
        self.asked, self.srun, self.timeout, self.opened = asked, list(srun), timeout, opened

    def ask(self, *words: str) -> _command.Outcome:
        variables = {"ENROOT_SQUASH_OPTIONS": self.asked.squash_options} if self.asked.squash_options else {}
        return _command.run([*self.srun, "enroot", *words], self.timeout, environment=variables)

    def enroot(self) -> str:
        return self.ask("version").out.strip()

    def digest(self) -> str:
        """Return what the tag means now."""
        if self.asked.kind != "docker":
            return ""
        if self.asked.pinned:
            return self.asked.pinned
        outcome = self.ask("digest", self.asked.source)
        found = digest_of(outcome.out)
        if not found and not _NO_SUCH.search(outcome.err + outcome.out):
            raise ImageError(refusal(f"the digest of {self.asked.told} cannot be had", outcome))
        return found  # none from an enroot before 4.1, which has no such command

    def bring(self, aside: Path, digest: str) -> None:
        if self.asked.kind == "docker":
            outcome = self.ask("import", "--output", str(aside), reference(self.asked, digest))
            if outcome.rc != 0:
                raise ImageError(refusal(f"{self.asked.told} cannot be imported", outcome))
            return
        try:
            with self.read() as reader, create(aside) as writer:
                shutil.copyfileobj(reader, writer, 8 << 20)
        except (OSError, HTTPException) as exc:
            said = getattr(exc, "strerror", None) or exc
            raise ImageError(f"{self.asked.told} cannot be copied to {aside.parent}: {said}") from exc

    def read(self) -> t.BinaryIO:
        return Path(self.asked.source).open("rb") if self.asked.kind == "file" else self.opened(self.asked.source)


def refusal(what: str, outcome: _command.Outcome) -> str:
    """Say what enroot said, without its progress."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", f"{outcome.err}\n{outcome.out}")
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("[INFO]")]
    hint = {
        "Could not resolve|Failed to connect|Connection refused|timed out": "is the registry up and reachable?",
        "returned error code: 40[13]|unauthorized": "are the user's credentials in enroot's .credentials file?",
        "404|MANIFEST_UNKNOWN": "does the registry have this name and tag?",
        "No space left": "enroot unpacks to ENROOT_TEMP_PATH and ENROOT_CACHE_PATH: is there room?",
        "failed to set capabilities|Operation not permitted": "are enroot's file capabilities installed on that host?",
        "cannot be started|No such file|command not found": "is enroot installed there?",
    }
    found = next((text for pattern, text in hint.items() if re.search(pattern, said, re.IGNORECASE)), "")
    return f"{what}: {'; '.join(lines[-3:]) or outcome.problem}{f' ({found})' if found else ''}"


def on_a_node(srun: str, partition: str | None, options: t.Mapping[str, t.Any]) -> list[str]:
    """Return the srun command line that runs enroot on any one node."""
    defaults = {"job_name": "hpcai_images", "mpi": "none", "chdir": "/", "quiet": True, "partition": partition}
    return [srun, *flags({**defaults, **options, "nodes": 1, "ntasks": 1})]
