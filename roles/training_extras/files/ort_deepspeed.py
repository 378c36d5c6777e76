# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ONNX Runtime and DeepSpeed together, in the one order that works: ONNX Runtime first.

ORTModule replaces a module's forward and backward by graphs that it makes of them. DeepSpeed then wraps what it is
given and owns its parameters from there on: their partitions, their precision, the optimizer's step. The other way
round ORTModule would export DeepSpeed's engine, hooks and all. So a training program calls ``accelerate`` instead of
``deepspeed.initialize``.
"""

from __future__ import annotations

import importlib
import typing as t


class OrderError(RuntimeError):
    """DeepSpeed has the module already; the text says what to do."""


def accelerate(model: t.Any, ort: bool = True, **initialize: t.Any) -> tuple[t.Any, ...]:
    """Wrap the model by ONNX Runtime, then hand it to ``deepspeed.initialize`` with all else that that takes."""
    # Named here, for DeepSpeed would take those of the wrapper.
    initialize.setdefault("model_parameters", [one for one in model.parameters() if one.requires_grad])
    deepspeed = importlib.import_module("deepspeed")
    wrapped = wrap(model, deepspeed) if ort else model
    return t.cast("tuple[t.Any, ...]", deepspeed.initialize(model=wrapped, **initialize))


def wrap(model: t.Any, deepspeed: t.Any = None) -> t.Any:
    """Return the model in ORTModule; one that is in it is left as it is, one that DeepSpeed has is refused."""
    engine = getattr(deepspeed, "DeepSpeedEngine", None)
    if _is(model, engine) or any(_is(part, engine) for part in model.modules()):
        raise OrderError(
            "DeepSpeed has this module already: apply ONNX Runtime to the module first and give the result to"
            " deepspeed.initialize, as accelerate() does"
        )
    module = importlib.import_module("torch_ort").ORTModule
    return model if isinstance(model, module) else module(model)


def _is(thing: t.Any, kind: t.Any) -> bool:
    return kind is not None and isinstance(thing, kind)
