# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A made-up task: tell from a noisy picture which way its stripes run."""

from __future__ import annotations

import math

import torch
from torch import nn

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
