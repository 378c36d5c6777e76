# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates, and the file that says which ports there are."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import typing as t
from pathlib import Path

NAME = "CycleCloud"


def certificate(folder: Path, names: t.Sequence[str], ca: Path | None = None) -> None:
    """Make folder/server.pem and folder/key.pem, self-signed, or signed by ca (made when it is not there)."""
    key, cert = folder / "key.pem", folder / "server.pem"
    names = [f"{'IP' if re.fullmatch(r'[0-9.]+', one) else 'DNS'}:{one}" for one in names]
    alt = "subjectAltName=" + ",".join(names)
    base = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    old = os.umask(0o077)
    try:
        if ca is None:
            _openssl(*base, "-subj", f"/CN={NAME}", "-addext", alt, "-keyout", str(key), "-out", str(cert))
            return
        if not ca.exists():
            usage = "keyUsage=critical,keyCertSign,cRLSign"
            _openssl(
                *base, "-subj", f"/CN={NAME} emulator CA", "-addext", usage, "-keyout", f"{ca}.key", "-out", str(ca)
            )
            ca.chmod(0o644)
        request = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}"]
        _openssl(*request, "-keyout", str(key), "-out", f"{cert}.csr")
        Path(f"{cert}.ext").write_text(alt)
        sign = ["openssl", "x509", "-req", "-in", f"{cert}.csr", "-CA", str(ca), "-CAkey", f"{ca}.key", "-days", "30"]
        _openssl(*sign, "-CAcreateserial", "-extfile", f"{cert}.ext", "-out", str(cert))
        for rest_of in ("csr", "ext"):
            Path(f"{cert}.{rest_of}").unlink()
    finally:
        os.umask(old)


def _openssl(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def context(folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "server.pem", folder / "key.pem")
    return made


def properties(path: Path) -> dict[str, str]:
    """The last definition of a key wins."""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#")]
    return {key.strip(): value.strip() for key, dummy, value in pairs}
