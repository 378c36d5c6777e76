# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small convolutional network on several nodes and write down how it went.

The task is made up but real. Every rank draws pictures of its own, so the loss can only fall on all of them if
gradients really travel between the ranks.

Any launcher will do that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. On SIGUSR1 and SIGTERM all
ranks end after the same step and a checkpoint, from which the next start goes on. What a step sees depends on nothing
but its number: a training that was interrupted gives the same losses as one that was not.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import signal
import socket
import sys
import time
import typing as t
from pathlib import Path

import torch
from checkpoints import LEAVE, STOPPED, Checkpoints, Journal, Stop, done, replace, starts
from stripes import CLASSES, PIXELS, network, pictures
from torch import distributed, nn


class Training:
    """The model, how far it has come, and where that is kept."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.args, self.device, self.stop = args, device, Stop()
        self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()
        torch.manual_seed(args.seed)
        self.model = nn.parallel.DistributedDataParallel(network().to(device))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.learning_rate)
        self.history: list[float] = []
        kept = args.checkpoints if self.rank == 0 else None
        self.checkpoints = Checkpoints(kept, args.checkpoints_kept) if kept else None
        self.journal = Journal(kept) if kept else None
        if kept and (kept / LEAVE).exists():
            self.stop.flags = [1.0, 1.0]
        self.first = self._resume()

    def _resume(self) -> int:
        """Go on from the newest sound checkpoint, if there is one; all ranks take the one that rank 0 has found."""
        found: list[t.Any] = [self.checkpoints.newest() if self.checkpoints else None]
        distributed.broadcast_object_list(found)
        step, path = found[0] or (0, None)
        if path:
            state = torch.load(path, map_location=self.device, weights_only=True)
            self.model.module.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.history = state["loss"]
        if self.journal:
            self.journal.add("start", step=step, lost=max(0, done(self.journal.read()) - step), ranks=self.ranks)
            print(f"begin at step {step}" + (f" of {path}" if path else ""), flush=True)
        return step

    def save(self, step: int) -> None:
        if self.checkpoints and self.journal:
            state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            path = self.checkpoints.save(step, lambda file: torch.save({**state, "loss": self.history}, file))
            self.journal.add("checkpoint", step=step)
            print(f"step {step} is kept in {path}", flush=True)

    def step(self, number: int) -> list[float]:
        """Train one step; return its loss and what any rank was told, which all ranks then know."""
        generator = torch.Generator().manual_seed((self.args.seed * 10_007 + self.rank) * 1_000_003 + number)
        data, labels = (part.to(self.device) for part in pictures(self.args.batch_size, generator))
        loss = nn.functional.cross_entropy(self.model(data), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        total = torch.tensor([loss.item(), *self.stop.flags], dtype=torch.float64, device=self.device)
        distributed.all_reduce(total)
        mean, *flags = total.tolist()
        return [mean / self.ranks, *flags]

    def run(self) -> tuple[str, float]:
        """Train to the end or until told to stop; return by what, and the seconds of all but the first step."""
        begin = time.perf_counter()
        for number in range(self.first, self.args.steps):
            loss, stop, again = self.step(number)
            begin = time.perf_counter() if number == self.first else begin
            self.history.append(loss)
            after = number + 1
            if self.journal:
                self.journal.add("step", step=after, loss=loss if math.isfinite(loss) else None)
            if self.rank == 0 and number % 20 == 0:
                print(f"step {number} loss {loss:.4f}", flush=True)
            if stop and after < self.args.steps:
                self.save(after)
                self._leave(after, "USR1" if again else "TERM")
                return "USR1" if again else "TERM", time.perf_counter() - begin
            if after % self.args.checkpoint_every == 0:
                self.save(after)
            time.sleep(self.args.pause)
        refuse_drift(self.model)
        return "", time.perf_counter() - begin

    def _leave(self, step: int, name: str) -> None:
        if self.journal and self.args.checkpoints:
            self.journal.add("stop", step=step, signal=name)
            if name == "USR1":
                replace(self.args.checkpoints / STOPPED, lambda file: file.write(str(step).encode()))


def refuse_drift(model: nn.Module) -> None:
    """Stop when the replicas are not the same model: then nothing was synchronised."""
    total = torch.stack([value.detach().double().sum() for value in model.parameters()]).sum()
    low, high = total.clone(), total.clone()
    distributed.all_reduce(low, op=distributed.ReduceOp.MIN)
    distributed.all_reduce(high, op=distributed.ReduceOp.MAX)
    if low.item() != high.item():
        raise RuntimeError(f"replicas differ: sums of parameters from {low.item()} to {high.item()}")


def members() -> list[dict[str, t.Any]]:
    """Return rank and host of everyone who takes part, and the CPUs that it may use."""
    found: list[t.Any] = [None] * distributed.get_world_size()
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    cpus = sorted(os.sched_getaffinity(0))
    distributed.all_gather_object(found, {"rank": distributed.get_rank(), "host": host, "cpus": cpus})
    return found


def result(training: Training, seconds: float) -> dict[str, t.Any]:
    """Return what is known at the end; the speed is that of the last start."""
    args, ranks = training.args, members()
    steps = args.steps - training.first
    return {
        "model": f"CNN on {PIXELS}x{PIXELS} stripes, {CLASSES} classes",
        "backend": distributed.get_backend(),
        "torch": torch.__version__,
        "world_size": distributed.get_world_size(),
        "ranks": ranks,
        "steps": args.steps,
        "batch_size": args.batch_size,
        "samples": args.batch_size * len(ranks) * args.steps,
        "loss": [value if math.isfinite(value) else None for value in training.history],
        "seconds": seconds,
        "samples_per_second": args.batch_size * len(ranks) * (steps - 1) / seconds if steps > 1 else None,
        **starts(training.journal.read() if training.journal else []),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoints", type=Path, help="directory for them; without it nothing is kept")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps from one to the next")
    parser.add_argument("--checkpoints-kept", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps, to rehearse long trainings")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    distributed.init_process_group(backend)
    training = Training(args, device)
    told, seconds = training.run()
    if not told:
        found = result(training, seconds)
        if training.rank == 0:
            replace(args.result, lambda file: file.write(json.dumps(found, indent=1, allow_nan=False).encode() + b"\n"))
    del training
    # DDP's reducer sits in a reference cycle and holds the process group. Still held when the interpreter ends, gloo's
    # threads abort with "terminate called": 4 of 10 short runs on a busy machine, none of 28 with this.
    gc.collect()
    distributed.barrier()
    distributed.destroy_process_group()
    # Who sends TERM wants an end, and is not told that all is done. USR1 is answered with a file, see checkpoints.py.
    sys.exit(128 + signal.SIGTERM if told == "TERM" else 0)


if __name__ == "__main__":
    main()
