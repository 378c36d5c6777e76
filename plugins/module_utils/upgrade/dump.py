# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of the accounting database that can be trusted: what to run, and whether what came is whole. Private."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

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
