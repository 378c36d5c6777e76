# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make backups of the accounting database and of slurmctld's state, and put them back in one step each."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import pwd
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run, session
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.model import (
    DAEMON,
    SCHEMA,
    BackupError,
    Manifest,
    next_job,
    set_name,
    surplus,
    with_next_job,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import database

_BLOCK = 1 << 20
_ROUNDS = 5  # looks at a state that changes while it is copied
_FIRST = ("job_state", "job_state.old")  # before the scripts of jobs: a job without its script is one that has ended
_PARTIAL = ".partial"

# One backup: a directory that gets its name when it is complete.


@contextlib.contextmanager
def in_directory(directory: Path) -> t.Iterator[None]:
    """Have the directory of backups, for root alone, and be the only one who writes there."""
    try:
        _trusted.have(_trusted.Directory(str(directory), os.geteuid(), os.getegid(), 0o700), _trusted.trusted_users())
    except _trusted.TrustError as exc:
        raise BackupError(f"backups are root's alone: {exc}") from exc
    with lock(directory / ".lock"):
        yield


@contextlib.contextmanager
def new_set(directory: Path, part: str) -> t.Iterator[Path]:
    """Yield an empty directory that becomes a backup of that part, or is removed when anything fails."""
    name = set_name(part, stamp())
    while (directory / name).exists():  # the timer's, of this second
        time.sleep(0.05)
        name = set_name(part, stamp())
    aside = directory / f"{name}{_PARTIAL}"
    for leftover in directory.glob(f"*{_PARTIAL}"):  # a killed run's; the lock is ours
        shutil.rmtree(leftover)
    aside.mkdir(mode=0o700)
    try:
        yield aside
        os.sync()
        aside.rename(directory / name)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def note(backup: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of the files in a backup; it is the last file of each."""
    files = {path.name: sha256(path) for path in sorted(backup.iterdir())}
    size = sum(path.stat().st_size for path in backup.iterdir())
    full = {"schema": SCHEMA, "name": backup.stem, **manifest, "time": int(time.time()), "bytes": size, "files": files}
    with private(backup / "manifest.json") as file:
        file.write((json.dumps(full, indent=1, sort_keys=True) + "\n").encode())
    return full


def private(path: Path) -> t.BinaryIO:
    """Open a new file that root alone can read from its first byte on."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def remove_surplus(directory: Path, part: str, keep: int) -> list[str]:
    gone = surplus(read.names(directory, part), part, keep)
    for name in gone:
        shutil.rmtree(directory / name)
    return gone


def copy_configuration(config: Path, backup: Path, secrets: bool) -> list[str]:
    """Copy Slurm's own files; slurmdbd.conf holds a password, and the munge key makes its holder any user."""
    copied = []
    wanted = [path for path in sorted(config.glob("*.conf")) if path.is_file() and not path.is_symlink()]
    for path in [path for path in wanted if secrets or path.name != "slurmdbd.conf"]:
        with private(backup / path.name) as file:
            file.write(path.read_bytes())
        copied.append(path.name)
    key = Path("/etc/munge/munge.key")
    if secrets and key.is_file():
        with private(backup / "munge.key") as file:
            file.write(_trusted.read(str(key), _trusted.trusted_users(pwd.getpwnam("munge").pw_uid)))
        copied.append("munge.key")
    return copied


# The accounting database.


def dump(accounting: read.Accounting, options: str, target: Path, timeout: float) -> int:
    """Write the database compressed, as it was at one moment, below a slurmdbd that runs; return its bytes."""
    # Without routines: slurmdbd makes its own at each start. Without tablespaces: they take a right of their own.
    words = ["--single-transaction", "--quick", "--no-tablespaces", accounting.name]
    argv = [database.program("mariadb-dump", "mysqldump"), f"--defaults-extra-file={options}", *words]
    total, tail = 0, b""
    with tempfile.TemporaryFile() as errors, private(target) as raw, gzip.GzipFile("", "wb", 6, raw, 0) as file:
        to_pipe = session(argv, None, subprocess.DEVNULL, subprocess.PIPE, errors.fileno())
        with to_pipe as process, _limit(process, timeout):
            for block in iter(lambda: process.stdout.read(_BLOCK) if process.stdout else b"", b""):
                file.write(block)
                total, tail = total + len(block), (tail + block)[-4096:]
            process.wait()
        problem = _spoken(errors) if process.returncode else ""
    lines = tail.rstrip().splitlines()
    if process.returncode or not (lines and lines[-1].startswith(database.COMPLETE)):
        raise BackupError(f"{argv[0]} of {accounting.name} did not end well: {problem or 'its output is not complete'}")
    return total


def load(accounting: read.Accounting, options: str, source: Path, into: str, timeout: float) -> None:
    argv = [database.program("mariadb", "mysql"), f"--defaults-extra-file={options}", into]
    with tempfile.TemporaryFile() as errors, gzip.open(source, "rb") as file:
        with session(argv, None, subprocess.PIPE, errors, errors.fileno()) as process, _limit(process, timeout):
            with contextlib.suppress(BrokenPipeError):
                if process.stdin is not None:
                    shutil.copyfileobj(file, process.stdin, _BLOCK)
                    process.stdin.close()
            process.wait()
        if process.returncode:
            raise BackupError(f"{source} cannot be loaded into database {into}: {_spoken(errors)}")


@contextlib.contextmanager
def _limit(process: subprocess.Popen[bytes], seconds: float) -> t.Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _spoken(errors: t.IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read(65536).decode(errors="replace").split("\n")
    return "; ".join([line for line in lines if line.strip()][-3:]) or "it was ended, or said nothing"


def back_up_accounting(
    accounting: read.Accounting, directory: Path, version: str, secrets: bool, timeout: float
) -> Manifest:
    """Dump the database with the number of the next job, refuse a half one, and return the manifest."""
    with database.options_file(accounting.client()) as options, in_directory(directory):
        needed = accounting.bytes(options)
        room(directory, needed, f"a dump of {accounting.name}")
        with new_set(directory, "accounting") as backup:
            # Jobs that come while it is dumped have higher numbers; the lower bound is what a restore needs.
            following, tables = accounting.next_job(options), accounting.tables(options)
            raw = dump(accounting, options, backup / "dump.sql.gz", timeout)
            if secrets:
                with private(backup / "slurmdbd.conf") as file:
                    file.write(accounting.config.read_bytes())
            about = {"part": "accounting", "cluster": accounting.cluster, "version": version}
            if accounting.tables(options) != tables:
                raise BackupError(
                    f"tables of {accounting.name} came or went meanwhile; is slurmdbd converting it? Try again"
                )
            return note(
                backup,
                {**about, "database": accounting.name, "tables": tables, "next_job": following, "raw_bytes": raw},
            )


def restore_accounting(
    accounting: read.Accounting, directory: Path, manifest: Manifest, timeout: float
) -> dict[str, t.Any]:
    """Load the dump into a database beside, then exchange all tables in one statement; slurmdbd stays stopped.

    What was there stays as a database of its own. Until the exchange nothing of the present database has changed.
    """
    moment = stamp()
    beside, kept = f"{accounting.name}_restoring", f"{accounting.name}_replaced_{moment}"
    with database.options_file(accounting.client()) as options, in_directory(directory):
        before = accounting.next_job(options)
        if accounting.local:
            room(Path(accounting.data), manifest["raw_bytes"], "the restored database")
        accounting.ask(options, f"DROP DATABASE IF EXISTS `{beside}`; CREATE DATABASE `{beside}`")  # a killed run's
        load(accounting, options, directory / manifest["name"] / "dump.sql.gz", beside, timeout)
        tables = accounting.tables(options, beside)
        if tables != sorted(manifest["tables"]):
            raise BackupError(
                f"{manifest['name']} gave {len(tables)} tables, not the {len(manifest['tables'])} it says"
            )
        present = accounting.tables(options)
        moves = [f"`{accounting.name}`.`{table}` TO `{kept}`.`{table}`" for table in present]
        moves += [f"`{beside}`.`{table}` TO `{accounting.name}`.`{table}`" for table in tables]
        keep = f"CREATE DATABASE `{kept}`; " if present else ""
        make = f"CREATE DATABASE IF NOT EXISTS `{accounting.name}`; "
        accounting.ask(options, f"{keep}{make}RENAME TABLE {', '.join(moves)}; DROP DATABASE `{beside}`", timeout)
        after = accounting.next_job(options)
    return {"replaced": kept if present else "", "next_job": max(before, after)}


# slurmctld's state.


def back_up_state(state: Path, config: Path, directory: Path, about: Manifest, secrets: bool) -> Manifest:
    """Pack the state as slurmctld has written it: whole files, the list of jobs before their scripts."""
    with in_directory(directory):
        room(directory, int(read.size(state) * 1.1), f"a copy of {state}")
        with new_set(directory, about["part"]) as backup:
            pack(state, backup / "state.tar.gz")
            copy_configuration(config, backup, secrets)
            return note(backup, {**about, "state": str(state), "next_job": read.next_job(state)})


def pack(state: Path, target: Path) -> None:
    """Pack until nothing has changed meanwhile, or as often as is sensible: slurmctld replaces files by renaming."""
    for attempt in range(_ROUNDS):
        before = _marks(state)
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        with private(target) as raw, tarfile.open(fileobj=raw, mode="w:gz", compresslevel=6) as archive:
            for path in _in_order(state):
                with contextlib.suppress(FileNotFoundError):  # the script of a job that has ended
                    _add(archive, state, path)
        if _marks(state) == before:
            return
        time.sleep(0.2 * (attempt + 1))


def _add(archive: tarfile.TarFile, state: Path, path: Path) -> None:
    """Add what is in a file from one opening on, whatever takes its place meanwhile."""
    relative = str(path.relative_to(state))
    if path.is_dir():
        entry = tarfile.TarInfo(relative)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o700
        archive.addfile(entry)
        return
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        entry = tarfile.TarInfo(relative)
        entry.size, entry.mtime, entry.mode = status.st_size, int(status.st_mtime), 0o600
        archive.addfile(entry, file)


def _in_order(state: Path) -> list[Path]:
    first = [state / name for name in _FIRST if (state / name).is_file()]
    rest = [path for path in sorted(state.rglob("*")) if not path.is_symlink() and (path.is_dir() or path.is_file())]
    return first + [path for path in rest if path not in first]


def _marks(state: Path) -> dict[str, tuple[int, int, int]]:
    marks = {}
    for path in _in_order(state):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            marks[str(path)] = (status.st_ino, status.st_size if path.is_file() else 0, status.st_mtime_ns)
    return marks


def unpack(archive: Path, into: Path, owner: tuple[int, int], at_least: int) -> int:
    """Unpack a state's files and directories, and nothing else that an archive may hold; return the next job's number.

    Its owner does it, since whoever owns a directory can exchange what is in it, or what is above it, for a link.
    """
    into.mkdir(mode=0o700)
    handle = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with archive.open("rb") as packed:
            if os.fstat(handle).st_uid != os.geteuid():
                raise BackupError(f"{into} was exchanged by somebody while it was made")
            os.fchown(handle, *owner)

            def act() -> list[str]:
                os.fchdir(handle)
                try:
                    _extract(packed, archive)
                    return [str(_renumber(Path("job_state"), at_least))]
                except (BackupError, tarfile.TarError) as exc:
                    raise OSError(str(exc)) from exc

            try:
                return int(_as_owner(act, owner[0])[0])
            except (_trusted.TrustError, OSError) as exc:
                raise BackupError(f"{archive} cannot be unpacked into {into}: {exc}") from exc
    finally:
        os.close(handle)


def _as_owner(act: t.Callable[[], list[str]], uid: int) -> list[str]:
    """Call what changes the working directory, in a process of the user's own unless this is one."""
    if os.geteuid() != uid:
        return _trusted.as_user(act, uid)
    here = os.open(".", os.O_PATH)
    try:
        return act()
    finally:
        os.fchdir(here)
        os.close(here)


def _extract(packed: t.IO[bytes], archive: Path) -> None:
    """Unpack into the working directory."""
    with tarfile.open(fileobj=packed, mode="r:gz") as content:
        for entry in content:
            parts = Path(entry.name).parts
            if not parts or ".." in parts or entry.name.startswith("/") or not (entry.isfile() or entry.isdir()):
                raise OSError(f"{archive} holds {entry.name!r}, which is no file or directory of a state")
            path = Path(entry.name)
            if entry.isdir():
                path.mkdir(mode=0o700, exist_ok=True)
                continue
            source = content.extractfile(entry)
            with private(path) as file:
                if source is not None:
                    shutil.copyfileobj(source, file, _BLOCK)
                file.flush()
                os.fsync(file.fileno())
            os.utime(path, (entry.mtime, entry.mtime))


def _renumber(jobs: Path, at_least: int) -> int:
    """Have the next job get a number that no job has had; return it."""
    if not jobs.is_file():
        return at_least
    renumbered = with_next_job(jobs.read_bytes(), at_least)
    jobs.write_bytes(renumbered)
    return next_job(renumbered)


def restore_state(state: Path, directory: Path, manifest: Manifest, at_least: int) -> dict[str, t.Any]:
    """Unpack beside the present state and exchange the two; what was there stays beside."""
    owner, moment = read.owner(state), stamp()
    aside, kept = state.with_name(f"{state.name}.restoring"), state.with_name(f"{state.name}.replaced-{moment}")
    with in_directory(directory):
        room(state.parent, manifest["bytes"], f"the restored {state}")
        if aside.is_dir() and not aside.is_symlink():  # a killed run's
            shutil.rmtree(aside)
        following = max(at_least, read.next_job(state))
        following = unpack(directory / manifest["name"] / "state.tar.gz", aside, owner, following)
        os.sync()
        had = state.is_dir()
        if had:
            exchange(state, aside, kept)
        else:
            aside.rename(state)
    return {"replaced": str(kept) if had else "", "next_job": following}


def exchange(state: Path, aside: Path, kept: Path) -> None:
    """Put one directory in the place of another, which stays under another name."""
    try:
        state.rename(kept)
    except OSError as exc:
        if exc.errno != errno.EXDEV:  # overlayfs renames no directory of a lower layer
            raise
        copied = state.with_name(f"{state.name}.keeping")
        if copied.is_dir() and not copied.is_symlink():  # a killed run's
            shutil.rmtree(copied)
        shutil.copytree(state, copied, symlinks=True)
        for path in (state, *state.rglob("*")):
            status = path.lstat()
            os.chown(copied / path.relative_to(state), status.st_uid, status.st_gid, follow_symlinks=False)
        copied.rename(kept)  # only what is whole has the name
        for path in list(state.iterdir()):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for path in list(aside.iterdir()):
            path.rename(state / path.name)
        aside.rmdir()
        return
    try:
        aside.rename(state)
    except OSError:
        kept.rename(state)
        raise


def stop(part: str) -> None:
    outcome = run(["systemctl", "stop", DAEMON[part]], 900)
    if outcome.problem or read.runs(part):
        raise BackupError(f"systemctl stop {DAEMON[part]} did not stop it: {outcome.problem or 'it still runs'}")


def room(directory: Path, needed: int, why: str) -> None:
    free = database.free(directory)
    if free < needed + _BLOCK:
        raise BackupError(f"{directory} has {free / 1e9:.1f} GB free, and {why} needs up to {needed / 1e9:.1f} GB")
