# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Python with PyTorch that builds Apex: ``facts`` and ``proof`` beside it say what it has, ``calls`` what it did."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import zipfile

if sys.argv[1] == "-I":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:3], os.environ.get("FAKE_SRUN", "")]) + "\n")
if sys.argv[1] == "-" and "fused_adam" in sys.stdin.read():
    request = json.loads(sys.argv[2])
    found = {"imported": ["apex", *request["modules"]], "failed": {}, "absent": [], "computed": {}, "gpu": None}
    print("HPCAI_APEX " + json.dumps({**found, **json.loads((here / "proof").read_text())}))
elif sys.argv[1] == "-":
    found = json.loads((here / "facts").read_text())
    host = ("nvcc", "codes", "compiler", "compiler_version", "cuda_headers", "ninja")
    if json.loads(sys.argv[2])["torch_only"]:
        found = {key: value for key, value in found.items() if key not in host}
    print("HPCAI_APEX " + json.dumps(found))
else:
    source, into = pathlib.Path(sys.argv[-1]), sys.argv[-2].split("=")[1]
    text = (source / "setup.py").read_text()
    if "BROKEN" in text:
        print("csrc/a.cpp:3:10: fatal error: cublas_v2.h: No such file or directory", file=sys.stderr)
        sys.exit(1)
    if "SLOW" in text:
        compiler = subprocess.Popen(["sleep", "31"])
        (here / "building").write_text(str(compiler.pid))
        compiler.wait()
    time.sleep(0.2)
    pathlib.Path(into).mkdir(parents=True)
    with zipfile.ZipFile(into + "/apex-0.1-cp311-cp311-linux_x86_64.whl", "w") as wheel:
        wheel.writestr("apex/__init__.py", "")
        wheel.writestr("environment.json", json.dumps({**os.environ, "setup": text}))
