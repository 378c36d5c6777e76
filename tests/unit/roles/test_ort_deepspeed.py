# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ort_deepspeed with stand-ins for DeepSpeed and ONNX Runtime: what is applied to what, in which order."""

from __future__ import annotations

import importlib.util
import sys
import types
import typing as t
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "roles/training_extras/files/ort_deepspeed.py"


class Model:
    def __init__(self, *parts: t.Any) -> None:
        self.parts = parts

    def modules(self) -> list[t.Any]:
        return [self, *self.parts]

    def parameters(self) -> list[t.Any]:
        return [types.SimpleNamespace(requires_grad=True), types.SimpleNamespace(requires_grad=False)]


class ORTModule(Model):
    pass


class DeepSpeedEngine(Model):
    pass


def initialize(**options: t.Any) -> tuple[t.Any, ...]:
    return DeepSpeedEngine(options["model"]), options, None, None


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> t.Any:
    deepspeed, torch_ort = types.ModuleType("deepspeed"), types.ModuleType("torch_ort")
    vars(deepspeed).update(DeepSpeedEngine=DeepSpeedEngine, initialize=initialize)
    vars(torch_ort).update(ORTModule=ORTModule)
    for module in (deepspeed, torch_ort):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("ort_deepspeed", FILE)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_onnx_runtime_comes_first(helper: t.Any) -> None:
    model = Model()
    engine, options, *dummy = helper.accelerate(model, config="ds.json")
    assert isinstance(options["model"], ORTModule) and options["model"].parts == (model,)
    assert isinstance(engine, DeepSpeedEngine) and options["config"] == "ds.json"
    assert len(options["model_parameters"]) == 1


def test_without_onnx_runtime(helper: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_ort", None)
    model = Model()
    assert helper.accelerate(model, ort=False, model_parameters=[1])[1] == {"model": model, "model_parameters": [1]}
    with pytest.raises(ImportError):
        helper.accelerate(model)


def test_what_is_wrapped_is_left_as_it_is(helper: t.Any) -> None:
    wrapped = ORTModule(Model())
    assert helper.wrap(wrapped) is wrapped


@pytest.mark.parametrize("model", [DeepSpeedEngine(), Model(DeepSpeedEngine())])
def test_the_other_order_is_refused(helper: t.Any, model: t.Any) -> None:
    with pytest.raises(helper.OrderError, match="apply ONNX Runtime to the module first"):
        helper.accelerate(model)
