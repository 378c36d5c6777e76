# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accounting database across an upgrade: a dump that can be trusted, and the start that converts it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run, run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import accounting
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import state

# The dump: its commands, and whether it is complete.


COMPLETE = b"-- Dump completed"
_TAIL = 4096
# Without tablespaces: to list them takes a right that the owner of one database does not have.
_WHOLE = ["--single-transaction", "--quick", "--no-tablespaces", "--databases"]
NAME = re.compile(r"[A-Za-z0-9_$-]+")
_SAFE = re.compile(r"[^A-Za-z0-9._+~-]")


Record = t.Mapping[str, t.Any]


class DumpError(Exception):
    """No complete dump could be made; the text is fit for the user."""


def settings(text: str) -> dict[str, str]:
    """Read slurmdbd.conf; names in lower case."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip().lower(): value.strip().strip('"') for name, value in pairs}


def client(conf: t.Mapping[str, str], local: bool) -> str:
    """Return an option file for the database's own programs, which keeps the password off command lines."""
    if local:  # root is let in over the socket
        return "[client]\nuser=root\n"
    password = conf.get("storagepass", "").replace("\\", "\\\\").replace('"', '\\"')
    lines = [f"host={conf.get('storagehost', 'localhost')}", f"port={conf.get('storageport', '3306')}"]
    lines += _encryption(conf.get("storageparameters", ""))
    return "\n".join(["[client]", *lines, f"user={conf.get('storageuser', 'root')}", f'password="{password}"', ""])


def _encryption(parameters: str) -> list[str]:
    """Return the TLS settings of StorageParameters under the client's names; clouds' databases require TLS."""
    pairs = (word.partition("=") for word in parameters.split(","))
    return [
        f"{name.strip().lower().replace('_', '-')}={value}" for name, dummy, value in pairs if name.startswith("SSL_")
    ]


def dump_argv(program: str, options: str, database: str) -> list[str]:
    return [program, f"--defaults-extra-file={options}", *_WHOLE, database]


def size_argv(program: str, options: str, database: str) -> list[str]:
    """Return the command that prints bytes of all tables, bytes of the largest, and the number of tables."""
    if not NAME.fullmatch(database):
        raise DumpError(f"StorageLoc {database!r} in slurmdbd.conf is not the name of a database")
    sums = "COALESCE(SUM(data_length + index_length), 0), COALESCE(MAX(data_length + index_length), 0), COUNT(*)"
    query = f"SELECT {sums} FROM information_schema.tables WHERE table_schema = '{database}'"  # noqa: S608 - checked
    return [program, f"--defaults-extra-file={options}", "--batch", "--skip-column-names", "--execute", query]


def sizes(text: str, database: str) -> tuple[int, int]:
    """Return bytes of all tables and of the largest; a database without tables is refused."""
    words = text.split()
    if len(words) != 3 or not all(word.replace(".", "", 1).isdigit() for word in words):
        raise DumpError(f"the database did not tell how large {database} is; it said {text.strip()!r}")
    if int(words[2]) == 0:
        raise DumpError(f"database {database} has no tables: is StorageLoc in slurmdbd.conf right?")
    return int(float(words[0])), int(float(words[1]))


def room_problem(directory: str, free: int, needed: int, why: str) -> str:
    """Say that a file system is too full; empty when it is not."""
    if free >= needed:
        return ""
    return f"{directory} has {free / 1e9:.1f} GB free, and {why} needs about {needed / 1e9:.1f} GB"


def name(database: str, have: str, target: str, stamp: str) -> str:
    """Return the name of a copy, from its database, versions and time."""
    return _SAFE.sub("_", f"{database}-{have}-before-{target}-{stamp}")


def whole(path: Path) -> str:
    """Say why a dump is not complete, empty when it is: its last line is what the program writes on success."""
    size = path.stat().st_size
    with path.open("rb") as handle:
        handle.seek(max(0, size - _TAIL))
        lines = handle.read().rstrip().splitlines()
    if lines and lines[-1].startswith(COMPLETE):
        return ""
    return f"{path} does not end with '{COMPLETE.decode()}' (it has {size} bytes)"


def usable(records: t.Sequence[Record], have: str, target: str, since: float | None) -> Record | None:
    """Return the newest copy made for this upgrade of a database that the old slurmdbd has not changed since.

    ``since`` is when slurmdbd last stopped: None when it runs, 0 when it has not run since the machine booted. Where
    the new packages are there already, the copy was made right before them; what stopped since was the new slurmdbd.
    """
    copies = [record for record in records if record["target"] == target]
    if have != target:
        copies = [record for record in copies if since and record["time"] >= since]
    return max(copies, key=lambda record: record["time"], default=None)


def way_back(record: Record, packages: t.Sequence[str]) -> str:
    """Return the commands that bring the old database back, as one line for a shell that ends at the first failure.

    The new database is dropped only where the old packages are installed and the copy is the one that was made.
    """
    copy, conf = shlex.quote(record["path"]), shlex.quote(record["conf"])
    checked = shlex.quote(f"{record['sha256']}  {record['path']}")
    dropped = shlex.quote(f"DROP DATABASE `{record['database']}`")
    commands = [
        "systemctl stop slurmdbd",
        f"apt-get install --allow-downgrades {' '.join(map(shlex.quote, packages))}",
        f"echo {checked} | sha256sum --check",
        f"mariadb -e {dropped}",
        f"mariadb < {copy}",
        f"cp -p {conf} /etc/slurm/slurmdbd.conf",
        "systemctl start slurmdbd",
    ]
    return f"To go back: {' && '.join(commands)}\nWhat happened since the copy is lost then"


# The module slurm_database_dump: copy the database while this host's slurmdbd is stopped.


UNIT = "slurmdbd"
_BLOCK = 1 << 20
_SPARE = 1.2  # a dump is about as large as tables and indexes; a conversion rewrites one table at a time


class Dumper:
    """One copy; ``params`` are the module's."""

    def __init__(self, params: t.Mapping[str, t.Any]) -> None:
        self.params = params
        self.directory = Path(params["directory"])
        self.conf = settings(Path(params["config"]).read_text(encoding="utf-8", errors="replace"))
        self.database = self.conf.get("storageloc", "slurm_acct_db")

    def earlier(self) -> Record | None:
        """Return an earlier copy that is still current and has the right checksum."""
        since = None if self._active() else _stopped()
        records = [json.loads(path.read_text()) for path in sorted(self.directory.glob(f"{self.database}-*.json"))]
        record = usable(records, self.params["have"], self.params["target"], since)
        if record and digest(Path(record["path"])) == record["sha256"]:
            return record
        return None

    def check_room(self, options: str) -> None:
        outcome = run(size_argv(program("mariadb", "mysql"), options, self.database), 300)
        if outcome.problem:
            raise DumpError(f"database {self.database} cannot be asked: {outcome.problem}")
        total, largest = sizes(outcome.out, self.database)
        needs = [(self.directory, int(total * _SPARE) + _BLOCK, "a copy of the database")]
        if self.params["local"]:
            needs.append(
                (Path(self.params["data_directory"]), int(largest * _SPARE), "the conversion of its largest table")
            )
        texts = [room_problem(str(path), free(path), needed, why) for path, needed, why in needs]
        if any(texts):
            raise DumpError("; ".join(text for text in texts if text))

    def look(self) -> None:
        """Refuse what would not fit, and change nothing."""
        with options_file(client(self.conf, self.params["local"])) as options:
            self.check_room(options)

    def make(self) -> Record:
        """Stop slurmdbd, copy, check the copy; where that fails, a slurmdbd that ran is started again."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        with options_file(client(self.conf, self.params["local"])) as options:
            self.check_room(options)
            ran = self._active()
            _systemctl("stop")
            if self._active():
                raise DumpError("systemctl stop slurmdbd returned, and slurmdbd still runs; nothing was changed")
            try:
                return self._copy(options)
            except BaseException:
                if ran:
                    _systemctl("start")
                raise

    def _copy(self, options: str) -> Record:
        """Dump the database, with slurmdbd.conf beside it; the record, which is last, says that it is whole."""
        begin = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begin))
        base = self.directory / name(self.database, self.params["have"], self.params["target"], stamp)
        for leftover in self.directory.glob(f"{self.database}-*.partial"):  # a state's is a directory
            leftover.unlink()
        partial, path = Path(f"{base}.sql.partial"), Path(f"{base}.sql")
        partial.touch(mode=0o600)
        argv = dump_argv(program("mariadb-dump", "mysqldump"), options, self.database)
        outcome = run_to_file(argv, self.params["timeout"], partial)
        problem = outcome.problem or whole(partial)
        if problem:
            partial.unlink()
            raise DumpError(f"{argv[0]} of {self.database} failed: {problem}")
        _sync(partial)
        mark = digest(partial)
        os.link(partial, path)  # unlike a rename it never takes the place of another file
        partial.unlink()
        kept = Path(f"{base}.slurmdbd.conf")
        shutil.copy2(self.params["config"], kept)
        kept.chmod(0o600)
        record: dict[str, t.Any] = {"database": self.database, "path": str(path), "conf": str(kept), "sha256": mark}
        record.update(bytes=path.stat().st_size, have=self.params["have"], target=self.params["target"])
        record.update(time=time.time(), seconds=round(time.time() - begin, 1))
        note = Path(f"{base}.json.partial")
        note.write_text(json.dumps(record, indent=1) + "\n")
        note.chmod(0o600)
        _sync(note)
        note.rename(f"{base}.json")
        return record

    @staticmethod
    def _active() -> bool:
        return run(["systemctl", "is-active", "--quiet", UNIT], 60).rc == 0


def digest(path: Path) -> str:
    """Return the file's SHA-256, empty when it does not exist."""
    return sha256(path) if path.is_file() else ""


def _stopped() -> float:
    """Return when slurmdbd last stopped, in Unix time; 0 if it has not run since the machine booted."""
    text = run(["systemctl", "show", "--value", "--property=InactiveEnterTimestampMonotonic", UNIT], 60).out.strip()
    clock = int(text) / 1e6 if text.isdigit() else 0.0
    return time.time() - time.monotonic() + clock if clock else 0.0


def program(*names: str) -> str:
    """Return where the first of these programs is."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise DumpError(f"there is no {' or '.join(names)} here; install mariadb-client")


def _systemctl(verb: str) -> Outcome:
    outcome = run(["systemctl", verb, UNIT], 900)
    if outcome.problem:
        raise DumpError(f"systemctl {verb} {UNIT} failed: {outcome.problem}")
    return outcome


def free(path: Path) -> int:
    """Return the free bytes of the file system that a path is on, or will be."""
    existing = next(directory for directory in (path, *path.parents) if directory.exists())
    filesystem = os.statvfs(existing)
    return filesystem.f_bavail * filesystem.f_frsize


def _sync(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


@contextlib.contextmanager
def options_file(text: str) -> t.Iterator[str]:
    """Write an option file that only root can read, and remove it afterwards."""
    descriptor, name = tempfile.mkstemp(prefix="hpcai-client-", suffix=".cnf", dir="/run")
    try:
        with os.fdopen(descriptor, "w") as handle:
            handle.write(text)
        yield name
    finally:
        Path(name).unlink()


# The module slurm_database_start: start an upgraded slurmdbd and follow it while it converts its database.


_PAUSE = 1.0
_SHOWN = 3
_SHOW = ["systemctl", "show", "--property", "ActiveState,SubState,NRestarts,Result", UNIT]


class StartError(Exception):
    """slurmdbd does not run; the text is fit for the user."""


class Starter:
    """``params`` are the module's."""

    def __init__(self, params: t.Mapping[str, t.Any]) -> None:
        self.params = params
        conf = settings(Path(params["config"]).read_text(errors="replace"))
        self.log, self.port = Path(conf.get("logfile", "/dev/null")), conf.get("dbdport", "6819")
        self.clusters: list[str] = []

    def needed(self) -> str:
        """Return the verb for systemctl: start, restart, or none."""
        daemon = state.daemons(run([*state.SHOW, UNIT], 60).out).get(UNIT)
        if daemon is None or not daemon.active:
            return "start"
        return "" if daemon.runs in (self.params["version"], "") else "restart"  # it may be converting

    def run(self, verb: str) -> dict[str, t.Any]:
        """Start slurmdbd without waiting for systemd, whose timeout is shorter; poll until it answers or time is up."""
        begin, offset = time.monotonic(), self.log.stat().st_size if self.log.is_file() else 0
        if verb:
            run(["systemctl", "reset-failed", UNIT], 60)
            outcome = run(["systemctl", "--no-block", verb, UNIT], 60)
            if outcome.problem:
                raise StartError(f"systemctl {verb} {UNIT} failed: {outcome.problem}")
        end = begin + self.params["wait"]
        done = not verb and self._answers()  # what restarted it long ago is no failure of this upgrade
        while not done and time.monotonic() < end:
            time.sleep(_PAUSE if verb else 0)
            self._refuse_failure(offset)
            done = self._answers()
            verb = verb or "wait"
        progress = self._log_lines(0 if not offset else max(0, offset - 4096))[-_SHOWN:]
        seconds = round(time.monotonic() - begin, 1)
        return {"done": done, "seconds": seconds, "progress": progress, "clusters": self.clusters}

    def _answers(self) -> bool:
        """Ask for the clusters, whatever Slurm is configured here: a host of slurmdbd alone has no slurm.conf."""
        with accounting.client("nobody", self.port) as environment:
            outcome = run(["sacctmgr", "-nP", "show", "cluster", "format=cluster"], 30, environment=environment)
        self.clusters = [] if outcome.problem else outcome.out.split()
        return not outcome.problem

    def _refuse_failure(self, offset: int) -> None:
        unit = dict(line.split("=", 1) for line in run(_SHOW, 60).out.splitlines() if "=" in line)
        ended = unit.get("ActiveState") in ("failed", "inactive") or unit.get("SubState", "").startswith("auto-restart")
        if not ended and unit.get("NRestarts", "0") == "0":
            return
        run(["systemctl", "stop", UNIT], 600)  # systemd would start it again and again on a database half converted
        errors = [line for line in self._log_lines(offset) if "fatal" in line or "error" in line] or self._log_lines(
            offset
        )
        raise StartError(f"slurmdbd ended ({unit.get('Result')}). Its log says: {' / '.join(errors[-5:]) or 'nothing'}")

    def _log_lines(self, offset: int) -> list[str]:
        if not self.log.is_file():
            return []
        with self.log.open("rb") as handle:
            handle.seek(offset)
            return handle.read().decode(errors="replace").splitlines()
