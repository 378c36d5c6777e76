# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What backups there are, whether they are whole, and what of Slurm is here. Reads only."""

from __future__ import annotations

import json
import pwd
import re
import shutil
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.model import (
    CLUSTER,
    DAEMON,
    BackupError,
    Manifest,
    is_set,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.model import (
    next_job as next_job_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import database
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.state import state_directory

_LATE = 100_000
_VERSION = re.compile(r"(\d\d\.\d\d\.\d+\S*)")


def names(directory: Path, part: str) -> list[str]:
    """Return the backups of a part, oldest first."""
    return sorted(path.name for path in directory.glob(f"{part}-*") if is_set(path.name, part))


def manifests(directory: Path, part: str) -> list[Manifest]:
    """Return the manifests of all backups, in a directory that nobody but root can have filled."""
    if not directory.is_dir():
        return []
    trust(directory)
    listed = []
    for name in names(directory, part):
        path = directory / name / "manifest.json"
        try:
            listed.append({**json.loads(path.read_text(encoding="utf-8")), "name": name})
        except (OSError, ValueError) as exc:
            raise BackupError(f"{path} cannot be read: {exc}") from exc
    return listed


def trust(directory: Path) -> None:
    """Refuse a directory of backups in which somebody else could have put one."""
    problem = _trusted.distrust(str(directory), _trusted.trusted_users())
    if problem:
        raise BackupError(f"backups are root's alone: {problem}")


def damaged(directory: Path, manifest: Manifest) -> list[str]:
    """Say which files of a backup are not as they were made."""
    problems = []
    for name, digest in sorted(manifest["files"].items()):
        path = directory / manifest["name"] / name
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif sha256(path) != digest:
            problems.append(f"{path} has another SHA-256 than its manifest says")
    return problems


def installed(part: str) -> str:
    """Return the version of the installed daemon."""
    daemon = DAEMON[part]
    program = shutil.which(daemon, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/slurm/sbin")
    outcome = run([program or daemon, "-V"], 60)
    match = _VERSION.search(outcome.out)
    if outcome.problem or not match:
        raise BackupError(f"{daemon} -V does not tell its version: {outcome.problem or outcome.out.strip()}")
    return match.group(1)


def runs(part: str) -> bool:
    return run(["systemctl", "is-active", "--quiet", DAEMON[part]], 60).rc == 0


def state_place(config: Path) -> Path:
    return state_directory((config / "slurm.conf").read_text(encoding="utf-8", errors="replace"))


def cluster_name(config: Path) -> str:
    text = (config / "slurm.conf").read_text(encoding="utf-8", errors="replace")
    return dict(parse(text).settings).get("clustername", "")


def next_job(state: Path) -> int:
    """Return the number of the next job in slurmctld's state; 0 where there is none, or none that can be read."""
    try:
        return next_job_of((state / "job_state").read_bytes()[:64])
    except (FileNotFoundError, BackupError):
        return 0


class Accounting:
    """The accounting database as slurmdbd.conf names it; ``options`` is a file for the database's own client."""

    def __init__(self, config: Path, cluster: str, local: bool, data: str) -> None:
        if not CLUSTER.fullmatch(cluster):
            raise BackupError(f"cluster {cluster!r} is no name of a cluster")
        self.config, self.cluster, self.local, self.data = config / "slurmdbd.conf", cluster.lower(), local, data
        self.conf = database.settings(self.config.read_text(encoding="utf-8", errors="replace"))
        self.name = self.conf.get("storageloc", "slurm_acct_db")
        if not database.NAME.fullmatch(self.name):
            raise BackupError(f"StorageLoc {self.name!r} in {self.config} is not the name of a database")

    def client(self) -> str:
        return database.client(self.conf, self.local)

    def ask(self, options: str, sql: str, timeout: float = 300) -> str:
        """Run statements whose names were checked; return what they print."""
        program = database.program("mariadb", "mysql")
        argv = [program, f"--defaults-extra-file={options}", "--batch", "--skip-column-names", "--execute", sql]
        outcome = run(argv, timeout)
        if outcome.problem:
            raise BackupError(f"database {self.name} cannot be asked: {outcome.problem}")
        return outcome.out

    def tables(self, options: str, name: str = "") -> list[str]:
        sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{name or self.name}'"  # noqa: S608
        return sorted(self.ask(options, sql).split())

    def next_job(self, options: str) -> int:
        """Return the number after the highest of this cluster's late jobs; 0 where there is none.

        Not of all jobs: beyond MaxJobId Slurm begins again.
        """
        table = f"{self.cluster}_job_table"
        if table not in self.tables(options):
            return 0
        late = f"SELECT id_job FROM `{self.name}`.`{table}` ORDER BY job_db_inx DESC LIMIT {_LATE}"  # noqa: S608
        return int(self.ask(options, f"SELECT COALESCE(MAX(id_job) + 1, 0) FROM ({late}) AS late").strip() or 0)  # noqa: S608

    def bytes(self, options: str) -> int:
        outcome = run(database.size_argv(database.program("mariadb", "mysql"), options, self.name), 300)
        if outcome.problem:
            raise BackupError(f"database {self.name} cannot be asked: {outcome.problem}")
        return database.sizes(outcome.out, self.name)[0]


def owner(path: Path) -> tuple[int, int]:
    """Return who owns slurmctld's state: whoever owns it now, else the user slurm."""
    if path.exists():
        status = path.stat()
        return status.st_uid, status.st_gid
    try:
        user = pwd.getpwnam("slurm")
    except KeyError as exc:
        raise BackupError(f"{path} is missing, and so is the user slurm: run configure.yml first") from exc
    return user.pw_uid, user.pw_gid


def size(directory: Path) -> int:
    """Return the bytes of a tree whose files may go meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
