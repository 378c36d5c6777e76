# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what a run left behind once, and write the page and every export of it. Private."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports.junit import Junit
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports.prometheus import Prometheus
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet import read
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, mapping, number, runs
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.page import page
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_results import plain

FORMATS = {"html": "html", "json_lines": "jsonl", "junit": "xml", "prometheus": "prom"}
RECORDS = ("records.jsonl", "records.jsonl.gz")


@dataclasses.dataclass(frozen=True)
class Sources:
    """The run record, the certificate with its records, those before it, and what is wrong with others."""

    record: Row
    certificate: Row | None = None
    records: Path | None = None
    earlier: t.Sequence[Row] = ()
    broken: t.Sequence[str] = ()


def find(record: Row, folder: Path | None, cluster: str | None = None) -> Sources:
    """Look for certificates in a folder and one below it; the latest one counts, the others are its history.

    Those of another cluster than this, by default the record's, count for nothing.
    """
    directories = [folder, *sorted(folder.iterdir())] if folder is not None and folder.is_dir() else []
    certificates, broken = [], []
    for path in (directory / "certificate.json" for directory in directories):
        try:
            certificates += [(read.certificate(path), path)] if path.is_file() else []
        except read.ReadError as exc:
            broken.append(str(exc))
    cluster = cluster or record.get("cluster")
    certificates = [pair for pair in certificates if not cluster or pair[0].get("cluster") in (None, "", cluster)]
    if not certificates:
        if broken:
            raise read.ReadError("; ".join(broken))
        return Sources(record)
    # Of two copies of one certificate the one with records counts.
    certificates.sort(key=lambda pair: (number(pair[0].get("time")) or 0.0, _beside(pair[1]) is not None))
    latest, path = certificates[-1]
    by_run = {str(row.get("run")): row for row, dummy in certificates if row.get("run") != latest.get("run")}
    return Sources(record, latest, _beside(path), list(by_run.values()), broken)


def _beside(path: Path) -> Path | None:
    return next((path.with_name(name) for name in RECORDS if path.with_name(name).is_file()), None)


def paths(dest: Path, stem: str, formats: t.Collection[str]) -> dict[str, Path]:
    """Return where each wanted format is written."""
    return {name: dest / f"{stem}.{ending}" for name, ending in FORMATS.items() if name in formats}


def write(sources: Sources, dest: Path, stem: str, formats: t.Collection[str], values: bool = False) -> None:
    """Write the wanted formats side by side, each whole at every moment."""
    files = paths(dest, stem, formats)
    gather, junit, prometheus = read.Gather(), Junit(_title(sources)), Prometheus(values)
    takers: list[t.Callable[[Row], None]] = [gather.add] if "html" in files else []
    takers += [junit.add] if "junit" in files else []
    takers += [prometheus.add] if "prometheus" in files else []
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(_whole(files["json_lines"])) if "json_lines" in files else None
        lines = read.Lines(sources.records) if sources.records else None
        for record, line in _records(sources, lines):
            for take in takers:
                take(record)
            if out is not None:
                out.write(line or json_line(record))
    gather.sha256 = lines.sha256 if lines else ""
    pieces: dict[str, t.Callable[[], t.Iterable[str]]] = {
        "html": lambda: [_page(sources, gather)],
        "junit": junit.text,
        "prometheus": lambda: prometheus.text(sources.certificate),
    }
    for name in files:
        if name in pieces:
            with _whole(files[name]) as out:
                out.writelines(pieces[name]())


def _title(sources: Sources) -> str:
    certificate = sources.certificate or {}
    return str(certificate.get("cluster") or sources.record.get("cluster") or "hpcai.gpu_cluster")


def _page(sources: Sources, gather: read.Gather) -> str:
    if sources.certificate is None:
        return page(sources.record)
    return page(sources.record, gather.certified(sources.certificate, sources.earlier))


def json_line(record: Row) -> str:
    """Return one record as a line; numbers that JSON does not know become null."""
    return json.dumps(plain(record), sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def _records(sources: Sources, lines: read.Lines | None) -> t.Iterator[tuple[Row, str]]:
    """Yield every record of the latest run once, with the line that held it if there was one."""
    recorded = runs(sources.record)
    own = {_key(check): check for check in (recorded[0].checks if recorded else [])}
    times = {check.get("time") for check in own.values() if isinstance(check.get("time"), (int, float))}
    for index, line in enumerate(lines or (), 1):
        if not line.strip():
            continue
        record = read.record(line, f"{sources.records}, line {index}")
        if record.get("time") in times:
            own.pop(_key(record), None)
        # Python reads numbers that JSON does not know.
        clean = line.endswith("}\n") and "time" in record and "NaN" not in line and "Infinity" not in line
        yield record, line if clean else ""
    for check in own.values():
        yield check, ""


def _key(check: Row) -> tuple[t.Any, ...]:
    """A record may be in the run record and in the certificate's; the name of the run may differ."""
    collective = str(mapping(check.get("context")).get("collective"))
    scope = json.dumps(check.get("scope"), sort_keys=True, default=str)
    return str(check.get("node")), str(check.get("check")), str(check.get("time")), scope, collective


@contextlib.contextmanager
def _whole(path: Path) -> t.Iterator[t.IO[str]]:
    """Write aside and rename, so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as out:
            yield out
        aside.chmod(0o644)
        aside.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
