# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small model by DeepSpeed's ZeRO 0 to 3, by fairscale, Megatron's layers, Apex or PyTorch's own DDP.

A script for ``training_job_script``, with ``example_models.py`` and role training_job's ``stripes.py`` in
``training_job_files``; or for ``ddp_launch_script``, with both beside it. It needs no GPU. Nothing is kept of the
shards, so a training that is interrupted begins anew.
"""

from __future__ import annotations

import argparse
import os
import typing as t
from functools import partial

import torch
from example_models import MODELS
from stripes import CLASSES, PIXELS
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


def plain(optimizer: torch.optim.Optimizer) -> Update:
    """Return a step of an optimizer that needs nothing else."""

    def update(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return update


def ddp(model: nn.Module, args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, Update]:
    replica = nn.parallel.DistributedDataParallel(model.to(device))
    optimizer = torch.optim.Adam(replica.parameters(), lr=args.learning_rate)
    return replica, plain(optimizer)


def fairscale(model: nn.Module, args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, Update]:
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim import OSS

    optimizer = OSS(model.to(device).parameters(), optim=torch.optim.Adam, lr=args.learning_rate)
    sharded = ShardedDataParallel(model, optimizer)
    return sharded, plain(optimizer)


class Megatron(nn.Module):
    """Two layers of which each rank has a part: the columns of one, the rows of the next."""

    def __init__(self, ranks: int) -> None:
        from megatron.core import ModelParallelConfig
        from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

        super().__init__()
        on_cpu = not torch.cuda.is_available()
        config = ModelParallelConfig(tensor_model_parallel_size=ranks, use_cpu_initialization=on_cpu)
        shared = {"config": config, "init_method": nn.init.xavier_uniform_, "bias": True}
        self.wide = ColumnParallelLinear(PIXELS * PIXELS, 64 * ranks, gather_output=False, **shared)
        self.out = RowParallelLinear(64 * ranks, CLASSES, input_is_parallel=True, skip_bias_add=False, **shared)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return t.cast(torch.Tensor, self.out(torch.relu(self.wide(data.flatten(1))[0]))[0])


def megatron(dummy: nn.Module, args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, Update]:
    from megatron.core import parallel_state, tensor_parallel

    ranks = torch.distributed.get_world_size()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    if device.type == "cuda":
        tensor_parallel.model_parallel_cuda_manual_seed(args.seed)
    model = Megatron(ranks).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    return model, plain(optimizer)


def apex(model: nn.Module, args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, Update]:
    """Use what Apex compiles without CUDA: gradients go over the network in one piece."""
    import apex_C

    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    def update(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        gradients = [part.grad for part in model.parameters()]
        whole = apex_C.flatten(gradients)
        torch.distributed.all_reduce(whole)
        whole /= torch.distributed.get_world_size()
        for gradient, mean in zip(gradients, apex_C.unflatten(whole, gradients)):
            gradient.copy_(mean)
        optimizer.step()

    return model, update


ENGINES = {"apex": apex, "ddp": ddp, "deepspeed": deepspeed, "fairscale": fairscale, "megatron": megatron}


def train(args: argparse.Namespace, device: torch.device) -> None:
    torch.manual_seed(args.seed)
    make, batch = MODELS[args.model]
    model, update = ENGINES[args.engine](make(), args, device)
    stage = f", ZeRO {args.zero}" if args.engine == "deepspeed" else ""
    run = Run(batch_size=args.batch_size, name=f"{args.model} by {args.engine}{stage}")
    for step in run.steps(args.steps):
        # Ranks that share one model see the same batch.
        share = 0 if args.engine == "megatron" else run.rank
        generator = torch.Generator().manual_seed((args.seed * 10_007 + share) * 1_000_003 + step)
        data, labels = (tensor.to(device) for tensor in batch(args.batch_size, generator))
        loss = nn.functional.cross_entropy(model(data).flatten(0, -2), labels.flatten())
        update(loss)
        run.loss = loss.item()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("--model", choices=sorted(MODELS), default="stripes", help="Megatron has layers of its own")
    parser.add_argument("--zero", type=int, choices=range(4), default=1, help="stage, of DeepSpeed only")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.engine == "megatron" and args.model != "stripes":
        parser.error(f"megatron trains layers of its own on the stripes, not {args.model}")
    return args


if __name__ == "__main__":
    together(partial(train, arguments()))
