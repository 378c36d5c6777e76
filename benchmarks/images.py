# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon a container starts on nodes that pull its image from a registry, and on nodes that have it on their scratch.

Every round takes all ways on the same nodes, one after the other and from another one on, and counts what the registry
sent. Only ratios mean something elsewhere. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import time
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
# Never "/*" of an answer that is empty.
DROP = "cache=$(enroot info | sed -n 's/ *ENROOT_CACHE_PATH=//p'); rm -rf \"${cache:?}\"/*"
SENT = "cat /sys/class/net/eth0/statistics/tx_bytes"
LIMIT = 1800
Sample = t.Tuple[float, float]


class Lab:
    """A lab with enroot, pyxis and a registry on its first node."""

    def __init__(self, state: Path, image: str) -> None:
        self.state, self.image = state, image
        hosts = yaml.safe_load((state / "hosts.yml").read_text())["all"]["children"]["lab_nodes"]["hosts"]
        self.address = hosts["ctl"]["ansible_host"]
        self.nodes = [name for name in hosts if name != "ctl"]

    def root(self, command: str) -> str:
        options = ["-i", self.state / "ssh_key", "-o", f"UserKnownHostsFile={self.state / 'known_hosts'}"]
        return self._run(["ssh", *options, f"root@{self.address}", command])

    def user(self, command: str) -> str:
        return self.root(f"runuser -u trainer -- sh -c {shlex.quote('cd / && ' + command)}")

    def everywhere(self, command: str, *options: str) -> str:
        words = ["srun", f"-N{len(self.nodes)}", "--ntasks-per-node=1", *options, "sh", "-c", command]
        return self.user(shlex.join(words))

    def stage(self, transport: str) -> str:
        images = {
            "container_images_list": [{"name": "bench", "source": self.image}],
            "container_images_user": "trainer",
        }
        variables = {**images, "container_images_transport": transport, "lab_state_dir": str(self.state)}
        where = ["-i", ROOT / "lab/inventory", "-i", self.state / "hosts.yml", "-e", json.dumps(variables)]
        return self._run([ROOT / ".build/venv/bin/ansible-playbook", *where, ROOT / "playbooks/stage_images.yml"])

    def _run(self, words: t.Sequence[object]) -> str:
        argv = [str(word) for word in words]
        environment = {**os.environ, "HPCAI_REPORT_DIR": str(self.state / "report")}
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
        return done.stdout

    def sample(self, work: t.Callable[[], str]) -> Sample:
        """Seconds, and MB that the registry's node sent."""
        before, start = int(self.root(SENT)), time.monotonic()
        work()
        seconds = time.monotonic() - start
        return seconds, (int(self.root(SENT)) - before) / 1e6


def ways(lab: Lab) -> dict[str, tuple[str, t.Callable[[], str]]]:
    """What is done first and not timed, and what is timed."""
    gone = "rm -rf /scratch/images /scratch/bench-import"
    importing = f"mkdir /scratch/bench-import && enroot import -o /scratch/bench-import/bench.sqsh {lab.image}"
    shown = lab.image.replace("docker://", "")
    return {
        "start, pulled": (DROP, lambda: lab.everywhere("true", f"--container-image={shown}")),
        "start, pulled before": ("true", lambda: lab.everywhere("true", f"--container-image={shown}")),
        "start, shared": ("true", lambda: lab.everywhere("true", "--container-image=/shared/images/bench.sqsh")),
        "start, staged": ("true", lambda: lab.everywhere("true", "--container-image=/scratch/images/bench.sqsh")),
        "import everywhere": (f"{DROP}; rm -rf /scratch/bench-import", lambda: lab.everywhere(importing)),
        "stage, sbcast": (gone, lambda: lab.stage("sbcast")),
        "stage, shared": (gone, lambda: lab.stage("shared")),
        "stage, nothing to do": ("true", lambda: lab.stage("shared")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", type=Path, default=ROOT / ".build/lab", help="state directory of the lab")
    parser.add_argument("--image", required=True, help="docker://ctl:5000#... in a registry on the lab's first node")
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which medians are taken")
    args = parser.parse_args()
    lab = Lab(args.lab.resolve(), args.image)
    lab.everywhere(f"{DROP}; rm -rf /scratch/images")
    lab.user("rm -f /shared/images/bench*")
    alone = lab.sample(lambda: lab.stage("shared"))
    every = ways(lab)
    found: dict[str, list[Sample]] = {name: [] for name in every}
    for number in range(args.repeat):
        for name in (*list(every)[number % 4 : 4], *list(every)[: number % 4], *list(every)[4:]):
            before, work = every[name]
            lab.everywhere(before)
            found[name].append(lab.sample(work))
            print(f"  {name}: {found[name][-1][0]:.1f} s, {found[name][-1][1]:.0f} MB", flush=True)
    size = int(lab.user("stat --dereference --format=%s /shared/images/bench.sqsh")) / 1e6
    print(
        f"{len(lab.nodes)} nodes, squashfs of {size:.0f} MB; imported once, staged: {alone[0]:.1f} s, {alone[1]:.0f} MB"
    )
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(f"{'':<24}{'median':>12}{'sent':>13}{'/ staged start, / shared staging':>40}")
    for name, samples in found.items():
        beside = found["start, staged" if name.startswith("start") else "stage, shared"]
        ratio = statistics.median(one[0] / other[0] for one, other in zip(samples, beside))
        seconds, sent = (statistics.median(sample[part] for sample in samples) for part in (0, 1))
        print(f"{name:<24}{seconds:>10.1f} s{sent:>10.0f} MB{ratio:>40.2f}")


if __name__ == "__main__":
    main()
