# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fio that answers as ``answer`` above it says; ``log`` there has what it was started with and where."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
folder, place = Path(options["directory"]), Path(__file__).resolve().parents[1]
with (place / "log").open("a") as log:
    log.write(
        json.dumps([options, oct(folder.stat().st_mode & 0o777), sorted(path.name for path in folder.iterdir())]) + "\n"
    )
answer = (place / "answer").read_text()
if answer == "hang":
    (folder / "hpcai.0.0").write_text("x")
    time.sleep(600)
if answer == "fail":
    sys.exit("fio: pid=1, err=5/file:io_u.c:1, func=io_u error, error=Input/output error")
way = {"io_bytes": 1 << 30, "io_kbytes": 1 << 20, "bw_bytes": 2000000000, "iops": 1900.0, "runtime": 1000}
direction = options["rw"].replace("rand", "")
for number in range(int(options["numjobs"])):
    (folder / f"hpcai.{number}.0").write_text("x")
jobs = [{"jobname": "hpcai", "groupid": 0, "error": 0, direction: way}] * int(options["numjobs"])
print(json.dumps({"fio version": "fio-3.99", "jobs": jobs}, indent=2))
