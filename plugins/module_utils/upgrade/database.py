# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accounting database across an upgrade: a dump that can be trusted, and the start that converts it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run, run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import state

# A copy of the accounting database that can be trusted: what to run, and whether what came is whole.


COMPLETE = b"-- Dump completed"
_TAIL = 4096
# Without tablespaces, which to list takes a right that the owner of one database does not have.
_WHOLE = ["--single-transaction", "--quick", "--no-tablespaces", "--databases"]
_NAME = re.compile(r"[A-Za-z0-9_$-]+")
_SAFE = re.compile(r"[^A-Za-z0-9._+~-]")


Record = t.Mapping[str, t.Any]


class DumpError(Exception):
    """There is no copy that could bring the database back; the text is fit for the user."""


def settings(text: str) -> dict[str, str]:
    """Read slurmdbd.conf; names in lower case."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip().lower(): value.strip().strip('"') for name, value in pairs}


def client(conf: t.Mapping[str, str], local: bool) -> str:
    """An option file for the database's own programs; that is where a password belongs, not on a command line."""
    if local:  # root is let in over the socket
        return "[client]\nuser=root\n"
    password = conf.get("storagepass", "").replace("\\", "\\\\").replace('"', '\\"')
    lines = [f"host={conf.get('storagehost', 'localhost')}", f"port={conf.get('storageport', '3306')}"]
    lines += _encryption(conf.get("storageparameters", ""))
    return "\n".join(["[client]", *lines, f"user={conf.get('storageuser', 'root')}", f'password="{password}"', ""])


def _encryption(parameters: str) -> list[str]:
    """What StorageParameters says of TLS, in the names of the client; a database of a cloud takes nothing else."""
    pairs = (word.partition("=") for word in parameters.split(","))
    return [
        f"{name.strip().lower().replace('_', '-')}={value}" for name, dummy, value in pairs if name.startswith("SSL_")
    ]


def dump_argv(program: str, options: str, database: str) -> list[str]:
    return [program, f"--defaults-extra-file={options}", *_WHOLE, database]


def size_argv(program: str, options: str, database: str) -> list[str]:
    """Bytes of all tables, bytes of the largest, and how many there are."""
    if not _NAME.fullmatch(database):
        raise DumpError(f"StorageLoc {database!r} in slurmdbd.conf is not the name of a database")
    sums = "COALESCE(SUM(data_length + index_length), 0), COALESCE(MAX(data_length + index_length), 0), COUNT(*)"
    query = f"SELECT {sums} FROM information_schema.tables WHERE table_schema = '{database}'"  # noqa: S608 - checked
    return [program, f"--defaults-extra-file={options}", "--batch", "--skip-column-names", "--execute", query]


def sizes(text: str, database: str) -> tuple[int, int]:
    """Read the answer; a database without tables is not the one to copy."""
    words = text.split()
    if len(words) != 3 or not all(word.replace(".", "", 1).isdigit() for word in words):
        raise DumpError(f"the database did not tell how large {database} is; it said {text.strip()!r}")
    if int(words[2]) == 0:
        raise DumpError(f"database {database} has no tables: is StorageLoc in slurmdbd.conf right?")
    return int(float(words[0])), int(float(words[1]))


def room_problem(place: str, free: int, needed: int, why: str) -> str:
    """Say that a file system is too full; empty when it is not."""
    if free >= needed:
        return ""
    return f"{place} has {free / 1e9:.1f} GB free, and {why} needs about {needed / 1e9:.1f} GB"


def name(database: str, have: str, target: str, stamp: str) -> str:
    """A name that says what the copy is of; a later one never has the same."""
    return _SAFE.sub("_", f"{database}-{have}-before-{target}-{stamp}")


def whole(path: Path) -> str:
    """Say why a dump is not whole; empty when its last line is the one that the program writes when all went well."""
    size = path.stat().st_size
    with path.open("rb") as handle:
        handle.seek(max(0, size - _TAIL))
        lines = handle.read().rstrip().splitlines()
    if lines and lines[-1].startswith(COMPLETE):
        return ""
    return f"{path} does not end with '{COMPLETE.decode()}' (it has {size} bytes)"


def usable(records: t.Sequence[Record], have: str, target: str, since: float | None) -> Record | None:
    """The newest copy made for this upgrade of a database that the old slurmdbd has not touched since.

    ``since`` is when slurmdbd last stopped: None when it runs, 0 when it has not run since the machine booted. Where
    the new packages are there already, the copy was made right before them; what stopped since was the new slurmdbd.
    """
    mine = [record for record in records if record["target"] == target]
    if have != target:
        mine = [record for record in mine if since and record["time"] >= since]
    return max(mine, key=lambda record: record["time"], default=None)


def way_back(record: Record, packages: t.Sequence[str]) -> str:
    """What a person types to have the old database again."""
    return (
        f"To go back: systemctl stop slurmdbd; apt-get install --allow-downgrades {' '.join(packages)};"
        f" mariadb -e 'DROP DATABASE {record['database']}'; mariadb < {record['path']}; cp -p {record['conf']}"
        " /etc/slurm/slurmdbd.conf; systemctl start slurmdbd. What happened since the copy is lost then"
    )


# Copy the accounting database of this host's slurmdbd while that is stopped, for slurm_database_dump.


UNIT = "slurmdbd"
_BLOCK = 1 << 20
_SPARE = 1.2  # a dump is about as large as tables and indexes; a conversion rewrites one table at a time


class Dumper:
    """One copy; ``params`` are the module's."""

    def __init__(self, params: t.Mapping[str, t.Any]) -> None:
        self.params = params
        self.place = Path(params["directory"])
        self.conf = settings(Path(params["config"]).read_text(encoding="utf-8", errors="replace"))
        self.database = self.conf.get("storageloc", "slurm_acct_db")

    def earlier(self) -> Record | None:
        """A copy that still says what the database holds, proved again."""
        since = None if self._active() else _stopped()
        records = [json.loads(path.read_text()) for path in sorted(self.place.glob(f"{self.database}-*.json"))]
        found = usable(records, self.params["have"], self.params["target"], since)
        if found and digest(Path(found["path"])) == found["sha256"]:
            return found
        return None

    def check_room(self, options: str) -> None:
        program = _program("mariadb", "mysql")
        answer = run(size_argv(program, options, self.database), 300)
        if answer.problem:
            raise DumpError(f"database {self.database} cannot be asked: {answer.problem}")
        total, largest = sizes(answer.out, self.database)
        wanted = [(self.place, int(total * _SPARE) + _BLOCK, "a copy of the database")]
        if self.params["local"]:
            wanted.append(
                (Path(self.params["data_directory"]), int(largest * _SPARE), "the conversion of its largest table")
            )
        texts = [room_problem(str(path), _free(path), needed, why) for path, needed, why in wanted]
        if any(texts):
            raise DumpError("; ".join(text for text in texts if text))

    def look(self) -> None:
        """Refuse what would not fit, and change nothing."""
        with _options(client(self.conf, self.params["local"])) as options:
            self.check_room(options)

    def make(self) -> Record:
        """Stop slurmdbd, copy, prove; where the copy fails the old slurmdbd goes on as if nothing had been."""
        self.place.mkdir(parents=True, exist_ok=True)
        self.place.chmod(0o700)
        with _options(client(self.conf, self.params["local"])) as options:
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
        begin = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begin))
        base = self.place / name(self.database, self.params["have"], self.params["target"], stamp)
        for left in self.place.glob(f"{self.database}-*.partial"):  # a state's is a directory
            left.unlink()
        partial, path = Path(f"{base}.sql.partial"), Path(f"{base}.sql")
        partial.touch(mode=0o600)
        argv = dump_argv(_program("mariadb-dump", "mysqldump"), options, self.database)
        answer = run_to_file(argv, self.params["timeout"], partial)
        problem = answer.problem or whole(partial)
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
    """The file's SHA-256, empty when it is not there."""
    return sha256(path) if path.is_file() else ""


def _stopped() -> float:
    """When slurmdbd last stopped, in Unix time; 0 if it has not run since the machine booted."""
    text = run(["systemctl", "show", "--value", "--property=InactiveEnterTimestampMonotonic", UNIT], 60).out.strip()
    clock = int(text) / 1e6 if text.isdigit() else 0.0
    return time.time() - time.monotonic() + clock if clock else 0.0


def _program(*names: str) -> str:
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise DumpError(f"there is no {' or '.join(names)} here; install mariadb-client")


def _systemctl(word: str) -> Outcome:
    answer = run(["systemctl", word, UNIT], 900)
    if answer.problem:
        raise DumpError(f"systemctl {word} {UNIT} failed: {answer.problem}")
    return answer


def _free(path: Path) -> int:
    there = next(one for one in (path, *path.parents) if one.exists())
    found = os.statvfs(there)
    return found.f_bavail * found.f_frsize


def _sync(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


@contextlib.contextmanager
def _options(text: str) -> t.Iterator[str]:
    """An option file that only root reads, gone afterwards."""
    descriptor, name = tempfile.mkstemp(prefix="hpcai-client-", suffix=".cnf", dir="/run")
    try:
        with os.fdopen(descriptor, "w") as handle:
            handle.write(text)
        yield name
    finally:
        Path(name).unlink()


# Start an upgraded slurmdbd and follow it while it converts its database, for slurm_database_start.


_PAUSE = 1.0
_SHOWN = 3
_SHOW = ["systemctl", "show", "--property", "ActiveState,SubState,NRestarts,Result", UNIT]


class StartError(Exception):
    """slurmdbd does not run; the text is fit for the user."""


class Starter:
    """``params`` are the module's."""

    def __init__(self, params: t.Mapping[str, t.Any]) -> None:
        self.params = params
        self.log = Path(settings(Path(params["config"]).read_text(errors="replace")).get("logfile", "/dev/null"))

    def needed(self) -> str:
        """Which word systemctl is to be told."""
        found = state.seen(run([*state.SHOW, UNIT], 60).out).get(UNIT)
        if found is None or not found.active:
            return "start"
        return "" if found.runs in (self.params["version"], "") else "restart"  # it may be converting

    def run(self, word: str) -> dict[str, t.Any]:
        """Start it without waiting for systemd, whose patience ends; then ask until it answers or time is up."""
        begin, offset = time.monotonic(), self.log.stat().st_size if self.log.is_file() else 0
        if word:
            run(["systemctl", "reset-failed", UNIT], 60)
            answer = run(["systemctl", "--no-block", word, UNIT], 60)
            if answer.problem:
                raise StartError(f"systemctl {word} {UNIT} failed: {answer.problem}")
        end = begin + self.params["wait"]
        done = not word and self._answers()  # what restarted it long ago is no failure of this upgrade
        while not done and time.monotonic() < end:
            time.sleep(_PAUSE if word else 0)
            self._refuse_failure(offset)
            done = self._answers()
            word = word or "wait"
        progress = self._said(0 if not offset else max(0, offset - 4096))[-_SHOWN:]
        return {"done": done, "seconds": round(time.monotonic() - begin, 1), "progress": progress}

    @staticmethod
    def _answers() -> bool:
        return not run(["sacctmgr", "-nP", "show", "cluster", "format=cluster"], 30).problem

    def _refuse_failure(self, offset: int) -> None:
        unit = dict(line.split("=", 1) for line in run(_SHOW, 60).out.splitlines() if "=" in line)
        ended = unit.get("ActiveState") in ("failed", "inactive") or unit.get("SubState", "").startswith("auto-restart")
        if not ended and unit.get("NRestarts", "0") == "0":
            return
        run(["systemctl", "stop", UNIT], 600)  # systemd would start it again and again on a database half converted
        said = [line for line in self._said(offset) if "fatal" in line or "error" in line] or self._said(offset)
        raise StartError(f"slurmdbd ended ({unit.get('Result')}). Its log says: {' / '.join(said[-5:]) or 'nothing'}")

    def _said(self, offset: int) -> list[str]:
        if not self.log.is_file():
            return []
        with self.log.open("rb") as handle:
            handle.seek(offset)
            return handle.read().decode(errors="replace").splitlines()
