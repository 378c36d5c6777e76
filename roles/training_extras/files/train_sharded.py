# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train role training_job's made-up task with DeepSpeed's ZeRO 0 to 3 or fairscale's sharded optimizer.

A script for ``training_job_script``, with role training_job's ``stripes.py`` in ``training_job_files``. It
needs no GPU. Nothing is kept of the shards, so a training that is interrupted begins anew.
"""

from __future__ import annotations

import argparse
import os
import typing as t
from functools import partial

import torch
from stripes import network, pictures
from torch import nn
from training_run import Run, together

Update = t.Callable[[torch.Tensor], None]


def deepspeed(model: nn.Module, args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, Update]:
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed as library

    config = {
        "train_micro_batch_size_per_gpu": args.batch_size,
        "zero_optimization": {"stage": args.zero},
        "optimizer": {"type": "Adam", "params": {"lr": args.learning_rate, "torch_adam": True}},
    }
    engine = library.initialize(model=model, config=config)[0]

    def update(loss: torch.Tensor) -> None:
        engine.backward(loss)
        engine.step()

    return engine, update


def fairscale(model: nn.Module, args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, Update]:
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim import OSS

    optimizer = OSS(model.to(device).parameters(), optim=torch.optim.Adam, lr=args.learning_rate)
    sharded = ShardedDataParallel(model, optimizer)

    def update(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return sharded, update


ENGINES = {"deepspeed": deepspeed, "fairscale": fairscale}


def train(args: argparse.Namespace, device: torch.device) -> None:
    torch.manual_seed(args.seed)
    model, update = ENGINES[args.engine](network(), args, device)
    run = Run(batch_size=args.batch_size, name=f"stripes by {args.engine}, ZeRO {args.zero}")
    for step in run.steps(args.steps):
        generator = torch.Generator().manual_seed((args.seed * 10_007 + run.rank) * 1_000_003 + step)
        data, labels = (tensor.to(device) for tensor in pictures(args.batch_size, generator))
        loss = nn.functional.cross_entropy(model(data), labels)
        update(loss)
        run.loss = loss.item()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("--zero", type=int, choices=range(4), default=1, help="stage, of DeepSpeed only")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    together(partial(train, arguments()))
