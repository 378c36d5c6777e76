# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A captured machine as a tree of files that the reader takes for ``/``; its disks are sparse files."""

from __future__ import annotations

import base64
import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.block_device import MachineRoot

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures/nvme_scratch"
EMPTY = '{"signatures": []}'


class Captured(MachineRoot):
    """``said`` answers programs other than wipefs, by their names; ``calls`` are the commands that were run."""

    def __init__(self, root: Path, name: str = "") -> None:
        super().__init__(root)
        self.data: dict[str, t.Any] = {"files": {}, "links": {}, "wipefs": {}, "at_4096": {}}
        self.said: dict[str, Outcome] = {}
        self.calls: list[list[str]] = []
        self.absent: set[str] = set()
        if name:
            self.data = json.loads((FIXTURES / f"captured-{name}.json").read_text())
        for path, text in self.data["files"].items():
            self.write(path, text)
        for path, target in self.data["links"].items():
            self.at(path).parent.mkdir(parents=True, exist_ok=True)
            self.at(path).symlink_to(self.at(target))
        for path in self.data["wipefs"]:
            self.device(path)

    def write(self, path: str, text: str) -> None:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)

    def device(self, path: str) -> None:
        """Make a device of its size in sysfs with what was read from 4096."""
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        with self.at(path).open("wb") as handle:
            handle.truncate(self.number(f"/sys/class/block/{Path(path).name}/size") * 512)
            handle.seek(4096)
            handle.write(base64.b64decode(self.data["at_4096"].get(path, "")))

    def tool(self, name: str) -> str | None:
        return None if name in self.absent else f"/usr/sbin/{name}"

    def run(self, argv: t.Sequence[str], timeout: float = 60.0) -> Outcome:
        words = [f"/{Path(word).relative_to(self.root)}" if word.startswith(str(self.root)) else word for word in argv]
        self.calls.append(words)
        if words[:2] == ["wipefs", "--no-act"]:
            return self._wipefs(words[3:])
        return self.said.get(words[0], Outcome(0, "", "", 0.0))

    def _wipefs(self, paths: t.Sequence[str]) -> Outcome:
        answers = [self.data["wipefs"].get(path, {"rc": 0, "out": EMPTY, "err": ""}) for path in paths]
        worst = next((answer for answer in answers if answer["rc"]), None)
        if worst:
            return Outcome(worst["rc"], "", worst["err"], 0.0)
        signs = [sign for answer in answers for sign in json.loads(answer["out"] or EMPTY)["signatures"]]
        return Outcome(0, json.dumps({"signatures": signs}), "", 0.0)


def blank(root: Path, count: int = 2) -> Captured:
    """A machine with blank disks, that was made up."""
    place = Captured(root)
    for number in range(count):
        name, base = f"nvme{number}n1", f"/sys/block/nvme{number}n1"
        for rest, text in {"size": "262144", "ro": "0", "dev": f"259:{number}", "wwid": f"eui.{number}"}.items():
            place.write(f"{base}/{rest}", f"{text}\n")
        for rest, text in {"model": "QEMU NVMe Ctrl  ", "serial": f"SERIAL-{number}", "transport": "pcie"}.items():
            place.write(f"{base}/device/{rest}", f"{text}\n")
        place.write(f"{base}/queue/max_hw_sectors_kb", "512\n")
        for link in (f"/sys/class/block/{name}", f"/sys/dev/block/259:{number}"):
            place.at(link).parent.mkdir(parents=True, exist_ok=True)
            place.at(link).symlink_to(place.at(base))
        place.device(f"/dev/{name}")
    return place
