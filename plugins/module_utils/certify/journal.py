# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a campaign, and histories of runs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import replace

# The directory of a certification: each result is in it before anything else happens. Private, stdlib only.


# What a gate says, the file of a job that keeps its nodes until all of them have begun.
HOLD, OPEN = "hold", "open"
FOLDERS = ("batches", "jobs", "results", "started", "logs", "journal")
# No honest file is larger; a damaged one must not fill the memory of its reader.
LARGEST = 256 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,200}")


class JournalError(ValueError):
    """The directory cannot be used; the text is fit for the user."""


class Journal:
    """Reads and writes one run's directory."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def create(self) -> None:
        """Make the directories; the user of the run alone may write, and nobody else can have made them before."""
        for name in ("", *FOLDERS):
            make(self.folder / name)

    def path(self, kind: str, name: str, suffix: str = ".json") -> Path:
        """Return where something is; a name that would lead elsewhere is refused."""
        if not _NAME.fullmatch(name):
            raise JournalError(f"{name!r} cannot be the name of a file")
        return self.folder / kind / f"{name}{suffix}"

    def begin(self, request: Json, plain: bytes, ran: bytes) -> Json:
        """Save the request of a new run beside the agent that its nodes run, and return it with the digests.

        The certificate names the agent, and the ``plain`` file that it was made of.
        """
        if self.answered():
            raise JournalError(
                f"{self.folder} holds results, and nothing says of what run; name another one, or remove it"
            )
        replace(self.folder / "agent.pyz", ran)
        digests = {"agent_sha256": _sha256(ran), "agent_source_sha256": _sha256(plain)}
        complete = {**request, "digests": {**request["digests"], **digests}}
        replace(self.folder / REQUEST, json.dumps(complete, sort_keys=True))
        return complete

    def is_begun(self) -> bool:
        return (self.folder / REQUEST).exists()

    def certificate(self) -> t.Any:
        """Return the certificate of a run that has ended."""
        return load(self.folder / CERTIFICATE)

    def records(self) -> list[Json]:
        """Return the records that the certificate was made of."""
        return records((self.folder / RECORDS).read_text())

    def end(self, records: t.Sequence[Json], certify: t.Callable[[str], Json]) -> tuple[Json, list[Json]]:
        """Write the records of a run in an order that does not depend on when they came, and the certificate of them.

        ``certify`` makes it of their digest. Both are returned.
        """
        lines = [json.dumps(record, sort_keys=True) for record in records]
        order = sorted(range(len(lines)), key=lines.__getitem__)
        text = "".join(f"{lines[n]}\n" for n in order)
        replace(self.folder / RECORDS, text, 0o644)
        certificate = certify(_sha256(text.encode()))
        replace(self.folder / CERTIFICATE, json.dumps(certificate, indent=1, sort_keys=True), 0o644)
        # Others may fetch them: as root Ansible reads a whole file into memory, twice.
        self.folder.chmod(0o755)
        return certificate, [records[n] for n in order]

    def write(self, kind: str, name: str, value: t.Any) -> Path:
        path = self.path(kind, name)
        replace(path, json.dumps(value, sort_keys=True))
        return path

    def read(self, kind: str, name: str) -> t.Any:
        """Return the value that write() wrote, None without one."""
        return load(self.path(kind, name))

    def results(self, test: str) -> list[Json] | None:
        """Return the records of a test, None as long as there are none."""
        text = _text(self.path("results", test, ".jsonl"))
        return None if text is None else records(text) or [_hole("its result is empty")]

    def answered(self) -> set[str]:
        """Return the ids of all tests that have results."""
        return {name[: -len(".jsonl")] for name in _names(self.folder / "results") if name.endswith(".jsonl")}

    def answer(self, test: str, records: t.Sequence[Json]) -> None:
        """Keep the records of a test; the first answer stays, whoever else measures it again."""
        path = self.path("results", test, ".jsonl")
        if not path.exists():
            replace(path, "".join(f"{json.dumps(record, sort_keys=True)}\n" for record in records))

    def start(self, name: str) -> None:
        """Leave a file that says that a task runs; a node that Slurm gave and that is silent leaves none."""
        with contextlib.suppress(OSError):
            self.path("started", name, "").touch()

    def started(self) -> set[str]:
        return set(_names(self.folder / "started"))

    def say(self, line: str) -> None:
        """Add a line for people who watch."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with contextlib.suppress(OSError), (self.folder / "progress.log").open("a", encoding="utf-8") as file:
            file.write(f"{stamp} {line}\n")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load(path: Path) -> t.Any:
    """Return the value of a JSON file, None without one."""
    text = _text(path)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise JournalError(f"{path} is no JSON: {exc}") from exc


def records(text: str) -> list[Json]:
    """Return the records in JSON lines; a line that is none adds an error about the test, not about the node.

    Left out without a word, a line could take a failure with it, and the rest would pass.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    valid = [record for record in map(_record, lines) if record is not None]
    lost = len(lines) - len(valid)
    return valid + [_hole(f"{lost} of {len(lines)} lines of its result are no records")] * bool(lost)


def _record(line: str) -> Json | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    texts = isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("check", "verdict"))
    return value if texts and all(isinstance(value.get(name, {}), dict) for name in ("scope", "context")) else None


def _hole(reason: str) -> Json:
    return record("result", None, time=0.0, verdict="error", reason=reason)


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise JournalError(f"{path} cannot be read: {exc.strerror}") from exc


def _names(folder: Path) -> list[str]:
    """List a directory as it is now: an NFS client believes its cache until it has changed the directory itself."""
    probe = folder / f".look.{os.uname().nodename}.{os.getpid()}"
    with contextlib.suppress(OSError):
        probe.touch()
        probe.unlink()
    try:
        return [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise JournalError(f"{folder} cannot be listed: {exc.strerror}") from exc


# Earlier runs: which one is continued, their certificates, and which of them may be removed. Private, stdlib only.


CERTIFICATE, RECORDS, REQUEST = "certificate.json", "records.jsonl", "request.json"
RESUMABLE = 6 * 3600.0  # seconds; older results prove nothing about today
_EARLIER = 5  # earlier certificates that are read for suspects


def _is_foreign(folder: Path) -> bool:
    """Say whether a run may be somebody else's, from before its directory was ours."""
    return bool(_trusted.distrust(str(folder), _trusted.trusted_users()))


def make(folder: Path) -> None:
    """Make a directory into which nobody else can put something."""
    try:
        _trusted.make(str(folder), _trusted.trusted_users())
    except _trusted.TrustError as exc:
        raise JournalError(f"{folder} cannot be the directory of a run: {exc}") from exc
    except OSError as exc:
        raise JournalError(f"{folder} cannot be made: {exc.strerror}") from exc


@contextlib.contextmanager
def alone(base: Path, agent: Path, run: str, check_mode: bool) -> t.Iterator[None]:
    """Find or begin a run while nobody else does: two would want the same nodes for themselves.

    A task whose connection was lost may still run when it is begun again. JournalError is raised where somebody else
    could exchange the agent that all nodes run, or what they answer. Check mode looks alone.
    """
    trusted, file = _trusted.trusted_users(), base / ".lock"
    if agent.exists() and (foreign := _trusted.distrust(str(agent), trusted)):
        raise JournalError(f"the agent {agent} is not run: {foreign}")
    try:
        (_trusted.check if check_mode else _trusted.make)(str(base), trusted)
        _trusted.check(str(base / run), trusted)
    except _trusted.TrustError as exc:
        raise JournalError(f"runs cannot be kept in {base}: {exc}") from exc
    except OSError as exc:
        raise JournalError(f"runs cannot be kept in {base}: {exc.strerror}") from exc
    # What was in the directory before it was ours may still be somebody else's, a link to a file of root's among it.
    if os.path.lexists(file) and (foreign := _trusted.distrust(str(file), trusted)):
        raise JournalError(f"runs cannot be kept in {base}: {foreign}")
    with contextlib.nullcontext() if check_mode else _files.lock(file):
        yield


def new_name(base: Path, moment: float) -> str:
    """Return a name for a run by its time that nothing has below the directory of runs; two in one second differ."""
    taken = {path.name for path in base.iterdir()} if base.is_dir() else set()
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    return next(candidate for candidate in (name, *(f"{name}-{n}" for n in range(1, 1000))) if candidate not in taken)


def begun(base: Path, run: str, fingerprint: str) -> Json | None:
    """Return the request of the named run, or without a name of one that was cut short; None where there is none.

    One of other options is another run, and one that was left for days would mix answers of different days.
    """
    if not run:
        return unfinished(base, fingerprint)
    folder = base / run
    request = load(folder / REQUEST)
    if request is None:
        return None
    if request.get("fingerprint") != fingerprint:
        raise JournalError(f"run {run} was begun with other options; name another one, or remove {folder}")
    if not (recent(folder) or (folder / CERTIFICATE).exists()):
        raise JournalError(
            f"run {run} was begun more than {RESUMABLE / 3600:g} hours ago and never ended: what its nodes answered"
            f" then is no proof of today. Name another one, or remove {folder}"
        )
    return dict(request)


def unfinished(base: Path, fingerprint: str) -> Json | None:
    """Return the request of the newest recent run of this fingerprint that has no certificate."""
    folders = sorted(base.iterdir(), reverse=True) if base.is_dir() else []
    for folder in folders:
        request = load(folder / REQUEST) if recent(folder) and not _is_foreign(folder) else None
        if request and request.get("fingerprint") == fingerprint and not (folder / CERTIFICATE).exists():
            return dict(request)
    return None


def recent(folder: Path) -> bool:
    file = folder / REQUEST
    return file.is_file() and time.time() - file.stat().st_mtime < RESUMABLE


def earlier(base: Path, most: int = _EARLIER) -> list[t.Any]:
    """Return the last certificates, the newest last, or all (0); a damaged one must not stop a new one."""
    certificates = []
    files = sorted(base.glob(f"*/{CERTIFICATE}"), key=lambda path: (path.stat().st_mtime, path))
    for path in [path for path in files if not _is_foreign(path.parent)][-most:]:
        with contextlib.suppress(JournalError):
            certificates.append(load(path))
    return certificates


def clear(base: Path, keep: int, run: str, nodes: t.Callable[[], t.Sequence[Json]], check_mode: bool) -> list[str]:
    """Remove the runs beyond those that are kept, and return their names; a failure here does not fail the new run."""
    removed: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        # Our reasons name the run that drained a node.
        for folder in old(base, keep, run, lambda: [str(node.get("reason") or "") for node in nodes()]):
            if not check_mode:
                remove(folder)
            removed.append(folder.name)
    return removed


def old(base: Path, keep: int, run: str, reasons: t.Callable[[], t.Sequence[str]]) -> list[Path]:
    """Return the runs that may go, the oldest first; ``run`` is the newest, whether it is there yet or not.

    A run stays that is not ours or is under way, that has the last word on any node, or that a node's reason names.
    """
    if keep < 1 or not base.is_dir():
        return []
    runs = sorted((_age(path), path) for path in base.iterdir() if path.name != run and _ours(path))
    spare = [path for dummy, path in runs[: max(0, len(runs) - (keep - 1))] if not _going(path)]
    if not spare:
        return []
    named = " ".join(reasons())
    known: set[str] = set()
    last = {path for path in [base / run, *(path for dummy, path in reversed(runs))] if _says_more(path, known)}
    return [path for path in spare if path not in last and not re.search(rf"\brun {re.escape(path.name)}(?!\S)", named)]


def _ours(folder: Path) -> bool:
    """Say whether a folder is a run: the module certification wrote its request, with the folder's name."""
    if folder.is_symlink() or not (folder / REQUEST).is_file() or _is_foreign(folder):
        return False
    try:
        request = load(folder / REQUEST)
    except JournalError:
        return False
    return isinstance(request, dict) and request.get("run") == folder.name and {"schema", "fingerprint"} <= set(request)


def _age(folder: Path) -> float:
    files = [file for file in (folder / CERTIFICATE, folder / REQUEST) if file.is_file()]
    return files[0].stat().st_mtime if files else 0.0


def _going(folder: Path) -> bool:
    """Say whether a run may still go on, or somebody leads it at this moment."""
    if not (folder / CERTIFICATE).exists() and recent(folder):
        return True
    try:
        with (folder / "lock").open("a") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _says_more(folder: Path, known: set[str]) -> bool:
    """Say whether a run has nodes that no newer one has; one that cannot be read may have."""
    try:
        certificate = load(folder / CERTIFICATE)
        nodes = set(certificate["nodes"]) if certificate else set()
    except (JournalError, TypeError, KeyError):
        return True
    fresh = nodes - known
    known.update(nodes)
    return bool(fresh)


def remove(folder: Path) -> None:
    """Remove a run; what says that it is one goes last, so that a removal that was cut short is taken up again."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == REQUEST):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    folder.rmdir()
