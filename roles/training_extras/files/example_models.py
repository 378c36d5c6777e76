# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small models of the kinds that clusters train, with made-up tasks: a ResNet over pictures, a GPT over tokens.

Beside role training_job's ``stripes.py``. A task makes a batch of inputs and labels; logits have the classes last.
"""

from __future__ import annotations

import typing as t

import torch
from stripes import CLASSES, network, pictures
from torch import nn

Batch = t.Tuple[torch.Tensor, torch.Tensor]
TOKENS = 64
LENGTH = 32
CERTAIN = 0.9


class Block(nn.Module):
    """Two convolutions and what goes past them (He et al., 2015)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        same = before == after and stride == 1
        self.past = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(data) + self.past(data))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    stages = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def resnet18() -> nn.Module:
    """The model of torchvision, which takes pictures of three colours."""
    from torchvision.models import resnet18 as of_torchvision

    return nn.Sequential(nn.Conv2d(1, 3, 1), of_torchvision(num_classes=CLASSES))


class Gpt(nn.Module):
    """Layers of attention to what came before, over embeddings of tokens and places (Radford et al., 2018)."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.logits = nn.Linear(width, TOKENS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf"), device=tokens.device), 1)
        hidden = self.token(tokens) + self.place.weight[:length]
        return t.cast(torch.Tensor, self.logits(self.layers(hidden, mask=mask, is_causal=True)))


def sentences(count: int, generator: torch.Generator) -> Batch:
    """Return tokens that mostly follow one rule, and for each what comes next."""
    tokens = torch.randint(TOKENS, (count, LENGTH + 1), generator=generator)
    certain = torch.rand(count, LENGTH, generator=generator) < CERTAIN
    for place in range(LENGTH):
        follows = (5 * tokens[:, place] + 17) % TOKENS
        tokens[:, place + 1] = torch.where(certain[:, place], follows, tokens[:, place + 1])
    return tokens[:, :-1], tokens[:, 1:]


MODELS: t.Mapping[str, tuple[t.Callable[[], nn.Module], t.Callable[[int, torch.Generator], Batch]]] = {
    "stripes": (network, pictures),
    "resnet": (resnet, pictures),
    "resnet18": (resnet18, pictures),
    "gpt": (Gpt, sentences),
}
