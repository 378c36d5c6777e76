# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy the accounting database of this host's slurmdbd while that is stopped, for slurm_database_dump. Private."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run, run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import dump
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.dump import DumpError

UNIT = "slurmdbd"
_BLOCK = 1 << 20
_SPARE = 1.2  # a dump is about as large as tables and indexes; a conversion rewrites one table at a time


class Dumper:
    """One copy; ``params`` are the module's."""

    def __init__(self, params: t.Mapping[str, t.Any]) -> None:
        self.params = params
        self.place = Path(params["directory"])
        self.conf = dump.settings(Path(params["config"]).read_text(encoding="utf-8", errors="replace"))
        self.database = self.conf.get("storageloc", "slurm_acct_db")

    def earlier(self) -> dump.Record | None:
        """A copy that still says what the database holds, proved again."""
        since = None if self._active() else _stopped()
        records = [json.loads(path.read_text()) for path in sorted(self.place.glob(f"{self.database}-*.json"))]
        found = dump.usable(records, self.params["have"], self.params["target"], since)
        if found and digest(Path(found["path"])) == found["sha256"]:
            return found
        return None

    def check_room(self, options: str) -> None:
        program = _program("mariadb", "mysql")
        answer = run(dump.size_argv(program, options, self.database), 300)
        if answer.problem:
            raise DumpError(f"database {self.database} cannot be asked: {answer.problem}")
        total, largest = dump.sizes(answer.out, self.database)
        wanted = [(self.place, int(total * _SPARE) + _BLOCK, "a copy of the database")]
        if self.params["local"]:
            wanted.append(
                (Path(self.params["data_directory"]), int(largest * _SPARE), "the conversion of its largest table")
            )
        texts = [dump.room_problem(str(path), _free(path), needed, why) for path, needed, why in wanted]
        if any(texts):
            raise DumpError("; ".join(text for text in texts if text))

    def look(self) -> None:
        """Refuse what would not fit, and change nothing."""
        with _options(dump.client(self.conf, self.params["local"])) as options:
            self.check_room(options)

    def make(self) -> dump.Record:
        """Stop slurmdbd, copy, prove; where the copy fails the old slurmdbd goes on as if nothing had been."""
        self.place.mkdir(parents=True, exist_ok=True)
        self.place.chmod(0o700)
        with _options(dump.client(self.conf, self.params["local"])) as options:
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

    def _copy(self, options: str) -> dump.Record:
        begin = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begin))
        base = self.place / dump.name(self.database, self.params["have"], self.params["target"], stamp)
        for left in self.place.glob(f"{self.database}-*.partial"):  # a state's is a directory
            left.unlink()
        partial, path = Path(f"{base}.sql.partial"), Path(f"{base}.sql")
        partial.touch(mode=0o600)
        argv = dump.dump_argv(_program("mariadb-dump", "mysqldump"), options, self.database)
        answer = run_to_file(argv, self.params["timeout"], partial)
        problem = answer.problem or dump.whole(partial)
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
