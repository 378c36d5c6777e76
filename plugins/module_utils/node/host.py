# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node that configures itself: its files, its units, its gate. No AnsibleModule, private, runs on the node."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run

UNITS = {
    "hpcai-node.service": """[Unit]
Description=Lets slurmd start where this node has configured itself
After=local-fs.target hpcai-scratch.service hpcai-gpu-clocks.service hpcai-node-health.service
Before=slurmd.service

[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/bin/sh {current}/bootstrap.sh --boot

[Install]
WantedBy=multi-user.target
""",
    # No order with slurmd, which it starts.
    "hpcai-node-apply.service": """[Unit]
Description=Configures this node
After=network-online.target remote-fs.target
Wants=network-online.target

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh {current}/bootstrap.sh
""",
}
_JETPACK = "/opt/cycle/jetpack/bin/jetpack"
_MOMENT = 60.0


class Host:
    """A machine below a root directory; tests have one of their own."""

    def __init__(self, root: str = "/", command: t.Callable[..., Outcome] = run) -> None:
        self.root, self.command = Path(root), command
        self.state = self.root / "var/lib/hpcai/node"
        self.run = self.root / "run/hpcai"
        self.gate = self.run / "node-ready"
        self.held = self.run / "slurmd-held"
        self.progress = self.run / "node-progress.json"
        self.result = self.state / "result.json"
        self.log = self.root / "var/log/hpcai-node.log"
        self.current = self.state / "current"

    def machine(self) -> str:
        with contextlib.suppress(OSError):
            return (self.root / "etc/machine-id").read_text(encoding="utf-8").strip()
        return ""

    def name(self) -> str:
        return socket.gethostname().split(".")[0]

    def systemctl(self, *words: str) -> Outcome:
        return self.command(["systemctl", *words], _MOMENT)

    def settle(self, bundle: Path, digest: str) -> Path:
        """Have the bundle where it stays; others are removed."""
        home = self.state / "bundles" / digest[:12]
        home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if bundle != home:
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(bundle, home, symlinks=True)
        self._point(home)
        for other in home.parent.iterdir():
            if other != home:
                shutil.rmtree(other, ignore_errors=True)
        return home

    def _point(self, home: Path) -> None:
        aside = self.current.with_name(".current")
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        aside.symlink_to(home)
        aside.replace(self.current)

    def units(self) -> None:
        """Have the units that open the gate at every boot."""
        stale = False
        for name, text in UNITS.items():
            path = self.root / "etc/systemd/system" / name
            wanted = text.format(current=self.current)
            if not path.is_file() or path.read_text(encoding="utf-8") != wanted:
                path.write_text(wanted, encoding="utf-8")
                stale = True
        if stale:
            self.systemctl("daemon-reload")
        self.systemctl("enable", "hpcai-node.service")

    def open(self) -> None:
        """Let slurmd start, and start it where it was stopped for this."""
        if not self.gate.exists():
            self.gate.write_text("ready\n", encoding="utf-8")
        self.release()

    def release(self) -> None:
        if self.held.exists():
            self.systemctl("start", "--no-block", "slurmd")
            self.held.unlink()

    def close(self) -> None:
        """Let no slurmd start; one that has jobs keeps them."""
        with contextlib.suppress(FileNotFoundError):
            self.gate.unlink()
        if self.command(["pgrep", "-f", r"^slurmstepd: \["], _MOMENT).rc != 0:
            if self.systemctl("is-active", "--quiet", "slurmd").rc == 0:
                self.held.touch()
            self.systemctl("stop", "slurmd")

    def tell(self, line: str, level: str) -> None:
        """Tell CycleCloud, on a node that it made."""
        jetpack = str(self.root / _JETPACK.lstrip("/"))
        found = jetpack if os.access(jetpack, os.X_OK) else shutil.which("jetpack")
        if found:
            priority = "high" if level == "error" else "low"
            self.command([found, "log", f"hpcai-node: {line}", f"--level={level}", f"--priority={priority}"], _MOMENT)
