# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a run directory of a certification: certificate.json and records.jsonl, line by line. Private."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.columns import Columns
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet, fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, is_group

# A page of so many nodes shows every cell; of more it shows columns, and their records need not stay in memory.
FEW_NODES = 64
FEW_RECORDS = 20_000


class ReadError(ValueError):
    """The files cannot be read; the text is fit for the user."""


@dataclasses.dataclass(frozen=True)
class Certified:
    """A certified fleet: in columns, with all records of single nodes where they are few, with earlier certificates."""

    fleet: Fleet
    few: list[Row] | None
    earlier: t.Sequence[Row] = ()
    emulated: bool = False
    records_sha256: str = ""

    @property
    def genuine(self) -> bool | None:
        """Tell whether the records here are those of the certificate; None where one has no digest."""
        digest = self.fleet.certificate.get("records_sha256")
        return digest == self.records_sha256 if digest and self.records_sha256 else None


class Gather:
    """Takes records one by one and forgets them where they are many."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.few: list[Row] | None = []
        self.sha256 = ""

    def add(self, record: Row) -> None:
        """Take one record."""
        self.columns.add(record)
        if self.few is not None and not is_group(record):
            self.few.append(record)
            if len(self.columns.nodes) > FEW_NODES or len(self.few) > FEW_RECORDS:
                self.few = None

    def certified(self, certificate: Row, earlier: t.Sequence[Row] = ()) -> Certified:
        """Put what was taken beside the certificate."""
        made = fleet(certificate, self.columns)
        return Certified(
            made, self.few if len(made.nodes) <= FEW_NODES else None, earlier, self.columns.emulated, self.sha256
        )


def certified(certificate: Row, records: t.Iterable[t.Any], earlier: t.Sequence[Row] = ()) -> Certified:
    """Return a certificate with its records."""
    gather = Gather()
    for record in records:
        gather.add(record if isinstance(record, dict) else not_a_record(repr(record)))
    return gather.certified(certificate, earlier)


def certificate(path: Path) -> Row:
    """Read a certificate."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ReadError(f"The certificate {path} cannot be read: {exc}") from exc
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), dict):
        raise ReadError(f"{path} is no certificate: it has no nodes")
    return t.cast(Row, content)


class Lines:
    """A file's lines, also of a gzip, and the digest of what was read of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = hashlib.sha256()

    def __iter__(self) -> t.Iterator[str]:
        try:
            with gzip.open(self.path) if self.path.suffix == ".gz" else self.path.open("rb") as lines:
                for line in lines:
                    self._digest.update(line)
                    yield line.decode("utf-8", errors="replace")
        except (OSError, EOFError) as exc:
            raise ReadError(f"The records {self.path} cannot be read: {exc}") from exc

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def record(line: str, where: str) -> Row:
    """Return one record, or what stands for a line that holds none: silence must not pass."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and "check" in content and "verdict" in content:
        return t.cast(Row, content)
    return not_a_record(f"{where}: {line.strip()}")


def not_a_record(what: str) -> Row:
    """Return a record that says that there was none."""
    reason = f"this is no check record: {what[:160]}"
    return {"node": None, "check": "records", "verdict": "error", "class": "infra", "reason": reason, "metrics": []}
