# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A CycleCloud server: its settings file, and whether it answers."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import re
import stat
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    Cli,
    CliError,
    Json,
    Notes,
    failure_text,
    folder,
    write,
)

# Texts of CycleCloud's settings files: properties, of which the last one counts, and sections.


_PROPERTY = re.compile(r"\s*([\w.]+)\s*=\s*(.*?)\s*$")


def properties(text: str) -> dict[str, str]:
    """Read ``key=value`` lines; the last definition of a key counts."""
    matches = (_PROPERTY.match(line) for line in text.splitlines() if not line.lstrip().startswith(("#", "!")))
    return {match.group(1): match.group(2) for match in matches if match}


def with_properties(text: str, values: t.Mapping[str, t.Any]) -> str:
    """Set keys in place, at their last definition, and append new ones; everything else stays as it is."""
    texts = {key: _text(value) for key, value in values.items()}
    lines = text.splitlines()
    line_of: dict[str, int] = {}
    for number, line in enumerate(lines):
        match = _PROPERTY.match(line)
        if match and not line.lstrip().startswith(("#", "!")):
            line_of[match.group(1)] = number
    observed = properties(text)
    for key, value in texts.items():
        if key not in line_of:
            lines.append(f"{key}={value}")
        elif observed[key] != value:
            lines[line_of[key]] = f"{key}={value}"
    return "".join(f"{line}\n" for line in lines)


def shown(text: str) -> str:
    """Return the text for a diff, with passwords, such as that of the keystore, hidden."""
    return re.sub(r"(?im)^(\s*[\w.]*(?:pass|secret|token)[\w.]*\s*=\s*)\S.*$", r"\1(hidden)", text)


def with_section(text: str, name: str, values: t.Mapping[str, t.Any]) -> str:
    """Set keys of one section of an INI file; other sections, which the command line writes, stay as they are."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.strip() == f"[{name}]"]
    if not heads:
        body = [f"{key} = {_text(value)}" for key, value in values.items()]
        return "".join(f"{line}\n" for line in [*lines, f"[{name}]", *body])
    start = heads[0] + 1
    end = next((n for n in range(start, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    remaining = dict(values)
    section = []
    for line in lines[start:end]:
        key = line.partition("=")[0].strip()
        if key in remaining:
            value = _text(remaining.pop(key))
            section.append(line if line.partition("=")[2].strip() == value else f"{key} = {value}")
        elif key not in values:
            section.append(line)
    while section and not section[-1].strip():
        section.pop()
    section += [f"{key} = {_text(value)}" for key, value in remaining.items()]
    blank = [""] if end < len(lines) else []
    return "".join(f"{line}\n" for line in [*lines[:start], *section, *blank, *lines[end:]])


def _text(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# The server's settings file and its rights: it may hold the password of the keystore.


USER = "cycle_server"
MODE = 0o640


class Access(t.NamedTuple):
    """Owner, group and mode."""

    uid: int
    gid: int
    mode: int


def needed(observed: Access, server: tuple[int, int] | None) -> Access:
    """Return what the server needs and no more; what an administrator made tighter stays so.

    Where the server reads the file only as everybody does, it becomes its own.
    """
    known = server is None or observed.uid == server[0] or observed.gid == server[1]
    uid, gid = (observed.uid, observed.gid) if known or server is None or not observed.mode & stat.S_IROTH else server
    return Access(uid, gid, observed.mode & MODE)


def server_ids() -> tuple[int, int] | None:
    """Return user and group of the server, or nothing before its package is installed."""
    try:
        return pwd.getpwnam(USER).pw_uid, grp.getgrnam(USER).gr_gid
    except KeyError:
        return None


class SettingsFile:
    """One file. A link in its place is left as it is: rights are never given through one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str:
        return self.path.read_text(encoding="utf-8") if self.path.is_file() else ""

    def access(self) -> Access | None:
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            return None
        return Access(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))

    def loose(self) -> bool:
        """Whether more users can read the file than need to."""
        observed = self.access()
        return observed is not None and needed(observed, server_ids()) != observed

    def write(self, text: str) -> None:
        """Replace the file in one step; its rights become those that the server needs and no more."""
        observed = self.access()
        access = needed(observed, server_ids()) if observed else None
        write(self.path, text, USER, access.mode if access else MODE)
        self._give(access)

    def tighten(self) -> None:
        observed = self.access()
        self._give(needed(observed, server_ids()) if observed else None)

    def _give(self, access: Access | None) -> None:
        if access is None or access == self.access():
            return
        handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fchmod(handle, access.mode)
            os.fchown(handle, access.uid, access.gid)
        finally:
            os.close(handle)


# The server with its settings and certificate.


_MONTH = str(30 * 86400)
_ADDRESS = re.compile(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*")


class ServerRequest(t.NamedTuple):
    """``kind`` of the certificate is generated, own or automatic."""

    kind: str
    names: list[str]
    certificate: str
    key: str
    authority: str


def server_request(tls: t.Mapping[str, t.Any], hostname: str, names: t.Sequence[str]) -> ServerRequest:
    """Return the request for a certificate, or refuse the options."""
    certificate, key = tls.get("certificate") or "", tls.get("key") or ""
    if bool(certificate) != bool(key):
        raise CliError("a certificate of your own needs both certificate and key")
    if tls.get("automatic"):
        if certificate:
            raise CliError("either automatic or a certificate of your own, not both")
        if "." not in hostname:
            raise CliError("a certificate of Let's Encrypt needs the server's full public name: set the hostname")
        return ServerRequest("automatic", [hostname], "", "", "")
    if certificate:
        if "-----BEGIN CERTIFICATE-----" not in certificate or "PRIVATE KEY-----" not in key:
            raise CliError("certificate and key must be PEM texts, not paths")
        return ServerRequest("own", [], certificate.strip() + "\n", key.strip() + "\n", (tls.get("ca") or "").strip())
    all_names = [hostname, "localhost", "127.0.0.1", *names, *(tls.get("names") or [])]
    return ServerRequest("generated", list(dict.fromkeys(name for name in all_names if name)), "", "", "")


def alternatives(names: t.Iterable[str]) -> str:
    """Return a certificate's names in the form of openssl's subjectAltName."""
    return ",".join(f"{'IP' if _ADDRESS.fullmatch(name) else 'DNS'}:{name}" for name in names)


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class CycleServer:
    """Settings file, keystore and process of the server on this host."""

    def __init__(self, cli: Cli, state_dir: str) -> None:
        self.cli, self.folder = cli, Path(state_dir)
        self.file = SettingsFile(Path(cli.params["home"]) / "config" / "cycle_server.properties")
        self.notes = Notes(state_dir, "server")
        self.noted: Json = {}

    def look(self, values: t.Mapping[str, t.Any], tls: ServerRequest) -> Json:
        """Return the settings before and after, and which of certificate, restart, start and rights are missing."""
        self.noted = self.notes.load()
        before = self.file.read()
        after = with_properties(before, values)
        certificate = self._certificate(tls)
        current = digest(after, certificate)
        return {
            "before": before,
            "after": after,
            "certificate": not certificate or self.noted.get("certificate") != certificate,
            "restart": self.noted.get("in_force") != current or not certificate,
            "running": self._running(),
            "loose": self.file.loose(),
        }

    def _certificate(self, tls: ServerRequest) -> str:
        """Return a digest of the requested certificate; empty when it has to be made first."""
        if tls.kind != "generated":
            return digest(tls.kind, *tls.names, tls.certificate)
        path = self.folder / "tls" / "certificate.pem"
        fresh = ["openssl", "x509", "-checkend", _MONTH, "-noout", "-in", str(path)]
        if not path.is_file() or self.noted.get("names") != tls.names or _process.run(fresh, 30).problem:
            return ""
        return digest(tls.kind, *tls.names, path.read_text())

    def _running(self) -> bool:
        return self.cli.installed() and not self.cli.try_server("await_startup", timeout=30).problem

    def bring(self, observed: Json, tls: ServerRequest, startup: int) -> None:
        """Write what differs and have the server run with it; steps that a killed run left out are done."""
        folder(self.folder)
        if observed["after"] != observed["before"]:
            self.file.write(observed["after"])
        self.file.tighten()
        if not observed["running"]:
            self.cli.server("start", "--wait", timeout=startup)
            self.cli.server("await_startup", timeout=startup)
        if observed["certificate"]:
            self._install(tls)
        if observed["restart"]:
            self.cli.stop()
            self.cli.server("start", "--wait", timeout=startup)
            self.cli.server("await_startup", timeout=startup)
        self.file.tighten()  # the server's own programs write it, too
        self._note(in_force=digest(self.file.read(), self._certificate(tls)))

    def _install(self, tls: ServerRequest) -> None:
        if tls.kind == "automatic":
            self.cli.server("keystore", "automatic", "--accept-terms", tls.names[0], timeout=600)
        else:
            directory = self.folder / "tls"
            folder(directory)
            if tls.kind == "own":
                write(directory / "key.pem", tls.key)
                write(directory / "certificate.pem", tls.certificate)
            elif not self._certificate(tls):
                self._make(directory, tls.names)
            self.cli.server("keystore", "import", str(directory / "key.pem"), str(directory / "certificate.pem"))
        self._note(names=tls.names)
        self._authority(tls)
        self._note(certificate=self._certificate(tls))

    def _make(self, directory: Path, names: list[str]) -> None:
        parts = [str(directory / f"{name}.new") for name in ("key", "certificate")]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:3072", "-nodes", "-sha256", "-days", "825"]
        subject = ["-subj", f"/CN={names[0][:64]}", "-addext", f"subjectAltName={alternatives(names)}"]
        outcome = _process.run([*command, "-keyout", parts[0], "-out", parts[1], *subject], 120)
        if outcome.problem:
            raise CliError(f"openssl made no certificate for {', '.join(names)}: {failure_text(outcome)}")
        for part, name in zip(parts, ("key.pem", "certificate.pem")):
            Path(part).chmod(0o600)
            Path(part).replace(directory / name)

    def _authority(self, tls: ServerRequest) -> None:
        """Write the certificate that verifies this server, for the command line and for other programs."""
        path = self.folder / "ca.pem"
        text = (self.folder / "tls" / "certificate.pem").read_text() if tls.kind == "generated" else tls.authority
        if text:
            write(path, text.strip() + "\n", mode=0o644)
        elif path.exists():
            path.unlink()

    def _note(self, **values: t.Any) -> None:
        self.noted.update(values)
        self.notes.save(self.noted)

    def authority(self) -> str:
        path = self.folder / "ca.pem"
        return path.read_text() if path.is_file() else ""
