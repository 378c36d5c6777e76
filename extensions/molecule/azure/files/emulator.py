# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start or stop the emulated Azure of the scenario: emulator.py start|stop DIRECTORY [options of the emulator]."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[4] / "tests/emulators/azure"


def start(directory: Path, options: list[str]) -> None:
    stop(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "azure.json").unlink(missing_ok=True)
    with (directory / "emulator.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "--dir", str(directory), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    end = time.monotonic() + 60
    while not (directory / "azure.json").is_file():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"the emulator did not start: {(directory / 'emulator.log').read_text()[-800:]}")
        time.sleep(0.1)
    (directory / "emulator.pid").write_text(str(process.pid))


def stop(directory: Path) -> None:
    """End the process whose number was kept, if it is an emulator still."""
    try:
        pid = int((directory / "emulator.pid").read_text())
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return
    if str(PROGRAM).encode() not in argv:
        return
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        if time.monotonic() > end:
            raise SystemExit(f"the emulator (process {pid}) does not end")
        time.sleep(0.1)
    (directory / "emulator.pid").unlink()


if __name__ == "__main__":
    if sys.argv[1] == "start":
        start(Path(sys.argv[2]), sys.argv[3:])
        print(json.loads((Path(sys.argv[2]) / "azure.json").read_text())["url"])
    else:
        stop(Path(sys.argv[2]))
