# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small convolutional network on several nodes and write down how it went.

The task is made up but real. Every rank draws pictures of its own, so the loss can only fall on all of them if
gradients really travel between the ranks.

Any launcher will do that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. What a step sees depends on
nothing but its number: a training that was interrupted gives the same losses as one that was not.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from stripes import CLASSES, PIXELS, network, pictures
from torch import nn
from training_run import Run, together


def train(args: argparse.Namespace, device: torch.device) -> None:
    torch.manual_seed(args.seed)
    model = nn.parallel.DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    name = f"CNN on {PIXELS}x{PIXELS} stripes, {CLASSES} classes"
    run = Run(batch_size=args.batch_size, name=name, pause=args.pause, model=model, optimizer=optimizer)
    for step in run.steps(args.steps):
        generator = torch.Generator().manual_seed((args.seed * 10_007 + run.rank) * 1_000_003 + step)
        data, labels = (tensor.to(device) for tensor in pictures(args.batch_size, generator))
        loss = nn.functional.cross_entropy(model(data), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.loss = loss.item()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps, to rehearse long trainings")
    return parser.parse_args()


if __name__ == "__main__":
    together(partial(train, arguments()))
