# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate authority of our own and the server's certificate, made once per directory."""

from __future__ import annotations

import ipaddress
import subprocess
import typing as t
from pathlib import Path

EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def _openssl(*argv: str) -> None:
    done = subprocess.run(["openssl", *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {argv[0]}: {done.stderr.strip()[-300:]}")


def _names(names: t.Iterable[str]) -> str:
    said = []
    for name in names:
        try:
            said.append(f"IP:{ipaddress.ip_address(name)}")
        except ValueError:
            said.append(f"DNS:{name}")
    return ",".join(said)


def make(directory: Path, names: t.Sequence[str]) -> tuple[Path, Path, Path]:
    """Return authority, certificate and key; made anew when other names are asked for."""
    authority, certificate, key = directory / "ca.pem", directory / "server.pem", directory / "server.key"
    wanted = _names(dict.fromkeys(["localhost", "127.0.0.1", *names]))
    known = directory / "names"
    if known.is_file() and known.read_text() == wanted and key.is_file():
        return authority, certificate, key
    directory.mkdir(parents=True, exist_ok=True)
    signer = str(directory / "ca.key")
    if not authority.is_file():
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        subject = ["-subj", "/CN=Emulated Azure CA", "-days", "30", *usage]
        _openssl("req", "-x509", *EC, "-keyout", signer, "-out", str(authority), *subject)
    asked, extension = directory / "server.csr", directory / "server.ext"
    extension.write_text(f"subjectAltName={wanted}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n")
    _openssl("req", "-new", *EC, "-keyout", str(key), "-out", str(asked), "-subj", "/CN=localhost")
    signing = ["-CA", str(authority), "-CAkey", signer, "-CAcreateserial", "-extfile", str(extension)]
    _openssl("x509", "-req", "-in", str(asked), "-out", str(certificate), "-days", "30", *signing)
    key.chmod(0o600)
    Path(signer).chmod(0o600)
    known.write_text(wanted)
    return authority, certificate, key
