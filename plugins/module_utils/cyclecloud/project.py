# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster-init project in the locker, with a version that follows from its content."""

from __future__ import annotations

import configparser
import hashlib
import re
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    Cli,
    CliError,
    Json,
    Notes,
    folder,
    write,
)

NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_VERSION = re.compile(r"^version\s*=.*$", re.MULTILINE)
_SHIPPED = ("specs", "blobs")


class Project(t.NamedTuple):
    """What goes to the locker: everything below specs and blobs."""

    name: str
    specs: list[str]
    files: dict[str, Path]
    ini: str
    digest: str

    @property
    def version(self) -> str:
        """Another content has another version, 1.<31 bits of its digest>.<31 more>.

        Nothing documented says how long a number of a version may be, so each fits into a signed integer of 32 bits.
        """
        parts = (int(self.digest[start : start + 8], 16) & 0x7FFFFFFF for start in (0, 8))
        return ".".join(("1", *map(str, parts)))


def collect(source: str) -> Project:
    """Read a project: its settings, specs and blobs."""
    root = Path(source)
    reader = configparser.ConfigParser(interpolation=None)
    try:
        ini = (root / "project.ini").read_text(encoding="utf-8")
        reader.read_string(ini)
        name = reader["project"]["name"]
    except (OSError, KeyError, configparser.Error) as exc:
        raise CliError(f"{source} is no project: project.ini cannot be read ({exc})") from exc
    files = {
        str(path.relative_to(root)): path
        for part in _SHIPPED
        for path in sorted((root / part).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    specs = sorted({Path(entry).parts[1] for entry in files if re.match(r"specs/[^/]+/cluster-init/scripts/", entry)})
    if not specs:
        raise CliError(f"{source} has no specs/<spec>/cluster-init/scripts: a spec without scripts would do nothing")
    wrong = [entry for entry in (name, *specs) if not NAME.fullmatch(entry)]
    if wrong:
        raise CliError(f"{', '.join(wrong)}: names of projects and specs are small letters, digits and dashes")
    return Project(name, specs, files, ini, _digest(_VERSION.sub("", ini), files))


def _digest(ini: str, files: t.Mapping[str, Path]) -> str:
    total = hashlib.sha256(f"{ini}\0".encode())
    for relative, path in sorted(files.items()):
        total.update(f"{relative}\0{_sha256(path)}\0".encode())
    return total.hexdigest()


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()


def spec_value(projects: t.Iterable[t.Mapping[str, t.Any]], locker: str) -> Json:
    """Return the value of a ClusterInitSpecs parameter; specs of users start at order 10000."""
    specs = {}
    for number, spec in enumerate(projects):
        specs[f"{spec['project']}:{spec['spec']}:{spec['version']}"] = {
            "Order": 10000 + 100 * number,
            "Name": f"{spec['project']}:{spec['spec']}:{spec['version']}",
            "Project": spec["project"],
            "Spec": spec["spec"],
            "Version": spec["version"],
            "Locker": locker,
        }
    return specs


class ProjectUpload:
    """The upload of one project to one locker."""

    def __init__(self, cli: Cli, state_dir: str, project: Project, locker: str) -> None:
        self.cli, self.project, self.locker = cli, project, locker
        self.directory = Path(state_dir) / "projects" / project.name
        self.notes = Notes(state_dir, f"project-{project.name}")

        self.before = ""

    def needed(self) -> bool:
        noted = self.notes.load()
        self.before = str(noted.get("version", ""))
        return (noted.get("digest"), noted.get("locker")) != (self.project.digest, self.locker)

    def build(self) -> None:
        """Write the project with its version to an empty directory, so that no file of an earlier one is uploaded."""
        shutil.rmtree(self.directory, ignore_errors=True)
        folder(self.directory.parent)
        for name, path in self.project.files.items():
            target = self.directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o755 if "/scripts/" in name else 0o644)
        head = f"version = {self.project.version}"
        ini = _VERSION.sub(head, self.project.ini)
        if head not in ini:
            ini = ini.replace("[project]", f"[project]\n{head}", 1)
        write(self.directory / "project.ini", ini, mode=0o644)

    def send(self, tries: int = 3) -> None:
        """Build and upload the project; uploading the same files again changes nothing."""
        self.build()
        arguments = ("project", "upload", self.locker)
        self.cli.read(*arguments, tries=tries, folder=str(self.directory), timeout=1800)
        self.notes.save({"digest": self.project.digest, "locker": self.locker, "version": self.project.version})
