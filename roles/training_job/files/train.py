# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small convolutional network on several nodes and write down how it went.

The task is made up but real: tell from a noisy picture which way its stripes run. Every rank draws pictures of its
own, so the loss can only fall on all of them if gradients really travel between the ranks. Start it with torchrun.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import socket
import time
import typing as t
from pathlib import Path

import torch
from torch import distributed, nn

CLASSES = 8
PIXELS = 16
NOISE = 1.0


def pictures(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy stripes of random phase and width, and the class of their direction."""
    labels = torch.randint(CLASSES, (count,), generator=generator)
    angle = (labels * math.pi / CLASSES).view(-1, 1, 1)
    phase = (torch.rand(count, generator=generator) * 2 * math.pi).view(-1, 1, 1)
    width = (0.6 + 0.6 * torch.rand(count, generator=generator)).view(-1, 1, 1)
    grid = torch.arange(PIXELS, dtype=torch.float32)
    along = torch.cos(angle) * grid.view(1, 1, -1) + torch.sin(angle) * grid.view(1, -1, 1)
    noise = NOISE * torch.randn(count, PIXELS, PIXELS, generator=generator)
    return (torch.sin(width * along + phase) + noise).unsqueeze(1), labels


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, CLASSES),
    )


def train(args: argparse.Namespace, device: torch.device) -> tuple[list[float], float]:
    """Return the loss of every step, averaged over the ranks, and the seconds of all but the first step."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(args.seed)
    model = nn.parallel.DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    generator = torch.Generator().manual_seed(args.seed * 10_007 + rank)
    history, begin = [], time.perf_counter()
    for step in range(args.steps):
        if step == 1:
            begin = time.perf_counter()
        data, labels = (part.to(device) for part in pictures(args.batch_size, generator))
        loss = nn.functional.cross_entropy(model(data), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        distributed.all_reduce(mean)
        history.append(mean.item() / ranks)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {history[-1]:.4f}", flush=True)
    refuse_drift(model)
    return history, time.perf_counter() - begin


def refuse_drift(model: nn.Module) -> None:
    """Stop when the replicas are not the same model: then nothing was synchronised."""
    total = torch.stack([value.detach().double().sum() for value in model.parameters()]).sum()
    low, high = total.clone(), total.clone()
    distributed.all_reduce(low, op=distributed.ReduceOp.MIN)
    distributed.all_reduce(high, op=distributed.ReduceOp.MAX)
    if low.item() != high.item():
        raise RuntimeError(f"replicas differ: sums of parameters from {low.item()} to {high.item()}")


def members() -> list[dict[str, t.Any]]:
    """Return rank and host of everyone who takes part."""
    found: list[t.Any] = [None] * distributed.get_world_size()
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    distributed.all_gather_object(found, {"rank": distributed.get_rank(), "host": host})
    return found


def write(path: Path, result: dict[str, t.Any]) -> None:
    """Replace the file in one step: a reader never sees half of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    distributed.init_process_group(backend)
    history, seconds = train(args, device)
    ranks = members()
    if distributed.get_rank() == 0:
        samples = args.batch_size * len(ranks) * args.steps
        result = {
            "model": "CNN on 16x16 stripes, 8 classes",
            "backend": backend,
            "torch": torch.__version__,
            "world_size": distributed.get_world_size(),
            "ranks": ranks,
            "steps": args.steps,
            "batch_size": args.batch_size,
            "samples": samples,
            "loss": [value if math.isfinite(value) else None for value in history],
            "seconds": seconds,
            "samples_per_second": samples * (args.steps - 1) / args.steps / seconds,
        }
        write(args.result, result)
    # DDP's reducer sits in a reference cycle and holds the process group. Still held when the interpreter ends, gloo's
    # threads abort with "terminate called": 4 of 10 short runs on a busy machine, none of 28 with this.
    gc.collect()
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
