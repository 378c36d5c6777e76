# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A micromamba as strict as the real one about its arguments and about digests; what it installs is not conda's."""

from __future__ import annotations

import hashlib
import sys
import venv
from pathlib import Path

program, verb, yes, prefix, file, offline, norc = sys.argv
assert [verb, yes, offline, norc] == ["create", "--yes", "--offline", "--no-rc"], sys.argv
prefix, file = prefix[len("--prefix=") :], file[len("--file=") :]
first, *urls = Path(file).read_text().split()
assert first == "@EXPLICIT" and not Path(prefix).exists(), (first, prefix)
for url in urls:
    path, digest = url[len("file://") :].split("#")
    assert hashlib.md5(Path(path).read_bytes()).hexdigest() == digest, url
venv.create(prefix)
installed = next(Path(prefix, "lib").glob("python*/site-packages")) / "torch.py"
installed.write_bytes(Path(path).read_bytes())
