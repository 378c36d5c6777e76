# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's part of a training without a scheduler: ``ddp_node.py node RUN NODE`` starts torchrun, watches the others.

RUN is the run's directory, which all nodes see, with ``spec.json``. Nobody else coordinates: the first that fails makes
``failed.json``, and every node that sees it ends. A node whose heartbeat stands still is taken for dead. torchrun
starts each rank by ``ddp_node.py rank RUN NODE``, which gives it a file and tells how it ended. Standard library only,
and the files that lie beside it in RUN.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from network_interface import interface

Json = t.Dict[str, t.Any]
SILENCE = 45.0  # seconds of a heartbeat that stands still; NFS may show a file's old content for some of them
BEAT = 2.0
GRACE = 20.0  # seconds between SIGTERM and SIGKILL, for a checkpoint
POLL = 0.2
_DIE_WITH_PARENT = 1


def put(path: Path, value: Json) -> None:
    """Replace a file in one step."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value) + "\n", encoding="utf-8")
    partial.replace(path)


def fail(run: Path, about: Json) -> None:
    """Say what failed, unless somebody was first: making a link is what only one of several can do."""
    mine = run / f".failed.{os.uname().nodename}.{os.getpid()}"
    mine.write_text(json.dumps({**about, "time": time.time()}) + "\n", encoding="utf-8")
    try:
        os.link(mine, run / "failed.json")
    except FileExistsError:
        pass
    finally:
        mine.unlink()


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def command(spec: Json, run: Path, node: str) -> list[str]:
    """Return the torchrun of a node."""
    me = [spec["python"], str(run / "ddp_node.py"), "rank", str(run), node]
    # Else torchrun compares the endpoint with what the host's own name resolves to: with 127.0.1.1, as Debian's
    # installer writes, nobody listens, and a name that does not resolve is an exception.
    listens = spec["endpoint"].rpartition(":")[0] == spec["addresses"][node]
    options = {
        "nnodes": len(spec["nodes"]),
        "nproc-per-node": spec["processes"],
        "max-restarts": 0,
        "rdzv-id": spec["run"],
        "rdzv-backend": "c10d",
        "rdzv-endpoint": spec["endpoint"],
        "rdzv-conf": f"is_host={int(listens)}",
        "local-addr": spec["addresses"][node],
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    words = [word.replace("{run}", str(run)) for word in [spec["script"], *spec["arguments"]]]
    # It puts the interpreter of a copy on the node's scratch in the place of this one, and becomes what follows.
    staging = [spec["python"], str(run / "staging.py")] if spec.get("scratch") else []
    torchrun = [spec["python"], "-m", "torch.distributed.run", *flags, "--no-python", *me, spec["python"]]
    return [*staging, *torchrun, *words]


def variables(spec: Json, run: Path, node: str) -> dict[str, str]:
    """Return what a node adds to its environment; what the specification sets stays as it is."""
    own = {"HPCAI_RESULT": str(run / "result.json"), "PYTHONUNBUFFERED": "1"}
    if spec.get("scratch"):
        own["HPCAI_STAGE"] = json.dumps({"scratch": spec["scratch"], "python": spec["python"]})
    others = [address for name, address in spec["addresses"].items() if name != node]
    towards = interface(others[0]) if others else ""
    # gloo listens where the host's own name points to, which is the loopback device on many hosts.
    gloo = {"GLOO_SOCKET_IFNAME": towards} if towards else {}
    return {**gloo, **spec["environment"], **own}


class Peers:
    """The heartbeats of the other nodes, timed by this node's clock alone."""

    def __init__(self, run: Path, nodes: t.Sequence[str], clock: t.Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._seen = {node: ("", clock()) for node in nodes}

    def silent(self) -> str:
        """Return a node whose heartbeat has stood still for too long; one that has not begun is torchrun's to miss."""
        now = self._clock()
        for node, (beat, since) in self._seen.items():
            found = read(self._run / "nodes" / f"{node}.beat")
            if found != beat:
                self._seen[node] = (found, now)
            elif beat and beat != "end" and now - since > SILENCE:
                return node
        return ""


class Node:
    """torchrun on this node."""

    def __init__(self, run: Path, node: str) -> None:
        self.run, self.node = run, node
        self.spec: Json = json.loads((run / "spec.json").read_text(encoding="utf-8"))
        self.asked = ""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, dummy: t.Any) -> None:
        self.asked = self.asked or f"stopped by {signal.Signals(number).name}"

    def main(self) -> int:
        begin = time.monotonic()
        with (self.run / "nodes" / f"{self.node}.txt").open("ab") as output:
            child = subprocess.Popen(
                command(self.spec, self.run, self.node),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables(self.spec, self.run, self.node)},
                cwd=self.spec["chdir"],
            )
            why = self._watch(child, begin)
        if child.returncode and not why:
            fail(self.run, {"node": self.node, "rank": None, "why": f"torchrun ended with {child.returncode}"})
        seconds = time.monotonic() - begin
        put(
            self.run / "nodes" / f"{self.node}.json", {"rc": child.returncode, "why": why, "seconds": round(seconds, 1)}
        )
        self._beat("end")
        return 0 if child.returncode == 0 and not why else 1

    def _watch(self, child: subprocess.Popen[bytes], begin: float) -> str:
        """Wait for torchrun; return why it had to be ended."""
        peers = Peers(self.run, [name for name in self.spec["nodes"] if name != self.node])
        beats = 0
        while child.poll() is None:
            if time.monotonic() - begin >= beats * BEAT:
                beats += 1
                self._beat(str(beats))
            why = self._reason(peers, begin)
            if why:
                child.terminate()
                self._wait(child)
                return why
            time.sleep(POLL)
        return ""

    def _reason(self, peers: Peers, begin: float) -> str:
        if (self.run / "failed.json").exists():
            return "another node or rank failed"
        silent = peers.silent()
        if silent:
            fail(self.run, {"node": silent, "rank": None, "why": f"{silent} gave no sign for {SILENCE:g} s"})
        elif time.monotonic() - begin > self.spec["timeout"]:
            fail(self.run, {"node": self.node, "rank": None, "why": f"not done after {self.spec['timeout']} s"})
        elif self.asked:
            fail(self.run, {"node": self.node, "rank": None, "why": self.asked})
        else:
            return ""
        return "a node is lost, the time is over, or it was told to stop"

    def _wait(self, child: subprocess.Popen[bytes]) -> None:
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _beat(self, text: str) -> None:
        put_text = self.run / "nodes" / f".{self.node}.beat"
        put_text.write_text(text, encoding="utf-8")
        put_text.replace(self.run / "nodes" / f"{self.node}.beat")


def rank(run: Path, node: str, argv: t.Sequence[str]) -> int:
    """Run one rank with a file for its output, and say how it ended."""
    number = os.environ["RANK"]
    path = run / "ranks" / f"rank-{number}.txt"
    with path.open("ab") as output:
        variables = {**os.environ, **own(run, output)}
        child = subprocess.Popen(
            argv, stdout=output, stderr=subprocess.STDOUT, env=variables, preexec_fn=_die_with_parent
        )
    signals: list[int] = []

    def forward(number: int, dummy: t.Any) -> None:
        signals.append(number)
        child.send_signal(number)

    for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(caught, forward)
    code = child.wait()
    if code and not signals:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        fail(run, {"node": node, "rank": int(number), "why": how})
    end = {"rank": int(number), "node": node, "rc": code, "signalled": bool(signals)}
    put(run / "ranks" / f"rank-{number}.json", end)
    return code if code >= 0 else 128 - code


def own(run: Path, output: t.IO[bytes]) -> dict[str, str]:
    """Return what a rank adds to its environment: where PyTorch keeps what it compiles, and training_run.py is."""
    program = [sys.executable, str(run / "torch_extensions.py")]
    done = subprocess.run(program, stdout=subprocess.PIPE, stderr=output, text=True, check=False)
    folder = done.stdout.strip() if done.returncode == 0 else ""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(run)])),
        **({"TORCH_EXTENSIONS_DIR": folder} if folder else {}),
    }


def _die_with_parent() -> None:
    """torchrun kills what it started, not what that started."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def main() -> int:
    kind, run, node = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    return Node(run, node).main() if kind == "node" else rank(run, node, sys.argv[4:])


if __name__ == "__main__":
    sys.exit(main())
