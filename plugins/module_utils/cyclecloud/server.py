# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's settings and certificate, in force and answering. Private."""

from __future__ import annotations

import hashlib
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import Cli, CliError, Json, told
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.notes import Notes, folder, write
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.settings_file import SettingsFile

_MONTH = str(30 * 86400)
_ADDRESS = re.compile(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*")


class Wanted(t.NamedTuple):
    """``kind`` of the certificate is generated, own or automatic."""

    kind: str
    names: list[str]
    certificate: str
    key: str
    authority: str


def wanted(tls: t.Mapping[str, t.Any], hostname: str, names: t.Sequence[str]) -> Wanted:
    """Read the wish for a certificate, and refuse what cannot be."""
    certificate, key = tls.get("certificate") or "", tls.get("key") or ""
    if bool(certificate) != bool(key):
        raise CliError("a certificate of your own needs both certificate and key")
    if tls.get("automatic"):
        if certificate:
            raise CliError("either automatic or a certificate of your own, not both")
        if "." not in hostname:
            raise CliError("a certificate of Let's Encrypt needs the server's full public name: set the hostname")
        return Wanted("automatic", [hostname], "", "", "")
    if certificate:
        if "-----BEGIN CERTIFICATE-----" not in certificate or "PRIVATE KEY-----" not in key:
            raise CliError("certificate and key must be PEM texts, not paths")
        return Wanted("own", [], certificate.strip() + "\n", key.strip() + "\n", (tls.get("ca") or "").strip())
    everything = [hostname, "localhost", "127.0.0.1", *names, *(tls.get("names") or [])]
    return Wanted("generated", list(dict.fromkeys(name for name in everything if name)), "", "", "")


def alternatives(names: t.Iterable[str]) -> str:
    """The names of a certificate as openssl wants them."""
    return ",".join(f"{'IP' if _ADDRESS.fullmatch(name) else 'DNS'}:{name}" for name in names)


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Server:
    """Settings file, keystore and process of the server on this host."""

    def __init__(self, cli: Cli, state_dir: str) -> None:
        self.cli, self.folder = cli, Path(state_dir)
        self.file = SettingsFile(Path(cli.params["home"]) / "config" / "cycle_server.properties")
        self.notes = Notes(state_dir, "server")
        self.noted: Json = {}

    def look(self, values: t.Mapping[str, t.Any], tls: Wanted) -> Json:
        """What there is and what is missing."""
        self.noted = self.notes.load()
        before = self.file.read()
        after = settings.with_properties(before, values)
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

    def _certificate(self, tls: Wanted) -> str:
        """What identifies the certificate that there shall be; empty when one has to be made first."""
        if tls.kind != "generated":
            return digest(tls.kind, *tls.names, tls.certificate)
        path = self.folder / "tls" / "certificate.pem"
        fresh = ["openssl", "x509", "-checkend", _MONTH, "-noout", "-in", str(path)]
        if not path.is_file() or self.noted.get("names") != tls.names or _command.run(fresh, 30).problem:
            return ""
        return digest(tls.kind, *tls.names, path.read_text())

    def _running(self) -> bool:
        return self.cli.installed() and not self.cli.try_server("await_startup", timeout=30).problem

    def bring(self, found: Json, tls: Wanted, startup: int) -> None:
        """Write what differs, and have the server run with it; an earlier run that was killed is made good."""
        folder(self.folder)
        if found["after"] != found["before"]:
            self.file.write(found["after"])
        self.file.tighten()
        if not found["running"]:
            self.cli.server("start", "--wait", timeout=startup)
            self.cli.server("await_startup", timeout=startup)
        if found["certificate"]:
            self._install(tls)
        if found["restart"]:
            self.cli.stop()
            self.cli.server("start", "--wait", timeout=startup)
            self.cli.server("await_startup", timeout=startup)
        self.file.tighten()  # the server's own programs write it, too
        self._note(in_force=digest(self.file.read(), self._certificate(tls)))

    def _install(self, tls: Wanted) -> None:
        if tls.kind == "automatic":
            self.cli.server("keystore", "automatic", "--accept-terms", tls.names[0], timeout=600)
        else:
            place = self.folder / "tls"
            folder(place)
            if tls.kind == "own":
                write(place / "key.pem", tls.key)
                write(place / "certificate.pem", tls.certificate)
            elif not self._certificate(tls):
                self._make(place, tls.names)
            self.cli.server("keystore", "import", str(place / "key.pem"), str(place / "certificate.pem"))
        self._note(names=tls.names)
        self._authority(tls)
        self._note(certificate=self._certificate(tls))

    def _make(self, place: Path, names: list[str]) -> None:
        parts = [str(place / f"{name}.new") for name in ("key", "certificate")]
        made = ["openssl", "req", "-x509", "-newkey", "rsa:3072", "-nodes", "-sha256", "-days", "825"]
        about = ["-subj", f"/CN={names[0][:64]}", "-addext", f"subjectAltName={alternatives(names)}"]
        done = _command.run([*made, "-keyout", parts[0], "-out", parts[1], *about], 120)
        if done.problem:
            raise CliError(f"openssl made no certificate for {', '.join(names)}: {told(done)}")
        for part, name in zip(parts, ("key.pem", "certificate.pem")):
            Path(part).chmod(0o600)
            Path(part).replace(place / name)

    def _authority(self, tls: Wanted) -> None:
        """Keep what verifies this server, for the command line and for others."""
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
