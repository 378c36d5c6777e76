# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove a build of Apex: standard library and torch only.

This very file is given to ``python -`` with the wheel's content on its path, through srun on another node when there is
one with a GPU, so it may import nothing of the collection. Every extension's modules are imported by name; what they
compute is compared with what PyTorch computes.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import sys
import typing as t

MARK = "HPCAI_APEX "
Numbers = t.Sequence[float]

# (relative, absolute). Apex's own tests allow 1e-3 between its optimizers and PyTorch's
# (tests/L0/run_optimizers/test_fused_optimizer.py) and 1e-3, 1e-4 for the gradients of its layer norm
# (tests/L0/run_fused_layer_norm/test_fused_layer_norm.py). That would hide a wrong step here:
OPTIMIZER = (1e-5, 1e-5)
FORWARD = (1e-4, 1e-5)
GRADIENT = (1e-3, 1e-4)


def excess(ours: Numbers, theirs: Numbers, tolerance: tuple[float, float]) -> float:
    """Return the largest difference in units of the allowed one: up to 1 passes; infinity for values not finite."""
    if len(ours) != len(theirs) or not ours:
        return math.inf
    relative, absolute = tolerance
    largest = 0.0
    for ours_value, theirs_value in zip(ours, theirs):
        allowed = absolute + relative * abs(theirs_value)
        off = abs(ours_value - theirs_value) / allowed
        largest = max(largest, off) if math.isfinite(off) else math.inf
    return largest


def load(names: t.Sequence[str], optional: t.Sequence[str]) -> dict[str, t.Any]:
    """Import modules by name; an optional one may be absent, but not broken."""
    imported, failed, absent = [], {}, []
    for name in (*names, *optional):
        if name in optional and importlib.util.find_spec(name) is None:
            absent.append(name)
            continue
        try:
            importlib.import_module(name)
            imported.append(name)
        except Exception as exc:
            failed[name] = f"{type(exc).__name__}: {exc}"
    return {"imported": imported, "failed": failed, "absent": absent}


def flatten(torch: t.Any) -> float:
    """Compare apex_C with plain concatenation; it needs no GPU."""
    native = importlib.import_module("apex_C")
    parts = [torch.arange(6.0).reshape(2, 3), torch.ones(5), torch.full((1, 1), -2.5)]
    flat = native.flatten(parts)
    again = native.unflatten(flat, parts)
    if [tensor.shape for tensor in again] != [tensor.shape for tensor in parts]:
        return math.inf
    expected = [number for tensor in parts for number in tensor.flatten().tolist()]
    restored = [number for tensor in again for number in tensor.flatten().tolist()]
    return max(excess(flat.tolist(), expected, (0.0, 1e-12)), excess(restored, expected, (0.0, 1e-12)))


def fused_adam(torch: t.Any, device: str = "cuda") -> float:
    """Compare five steps of FusedAdam with five of AdamW, over tensors that fill no block evenly."""
    fused = importlib.import_module("apex.optimizers").FusedAdam
    torch.manual_seed(7)
    start = [torch.randn(shape, device=device) for shape in ((33,), (257, 65), (1,))]
    pairs = [[torch.nn.Parameter(tensor.clone()) for tensor in start] for dummy in range(2)]
    options = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    steppers = [fused(pairs[0], **options), torch.optim.AdamW(pairs[1], **options)]
    for dummy in range(5):
        for ours, theirs in zip(*pairs):
            ours.grad = torch.randn_like(ours)
            theirs.grad = ours.grad.clone()
        for stepper in steppers:
            stepper.step()
    moved = excess(_numbers(pairs[1]), _numbers(start), OPTIMIZER)
    return excess(_numbers(pairs[0]), _numbers(pairs[1]), OPTIMIZER) if moved > 1 else math.inf


def fused_layer_norm(torch: t.Any, device: str = "cuda") -> float:
    """Compare FusedLayerNorm and its gradients with LayerNorm and its gradients."""
    fused = importlib.import_module("apex.normalization").FusedLayerNorm
    torch.manual_seed(7)
    width = 1031
    layers = [fused(width).to(device), torch.nn.LayerNorm(width).to(device)]
    with torch.no_grad():
        weight, bias = torch.randn(width, device=device), torch.randn(width, device=device)
        for layer in layers:
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    source = torch.randn(37, width, device=device)
    inputs = [source.clone().requires_grad_(True) for dummy in layers]
    outputs = [layer(tensor) for layer, tensor in zip(layers, inputs)]
    pull = torch.randn_like(source)
    for tensor in outputs:
        tensor.backward(pull)
    differences = [excess(_numbers(outputs[:1]), _numbers(outputs[1:]), FORWARD)]
    gradients = [[tensor.grad, layer.weight.grad, layer.bias.grad] for tensor, layer in zip(inputs, layers)]
    differences += [excess(_numbers([ours]), _numbers([theirs]), GRADIENT) for ours, theirs in zip(*gradients)]
    return max(differences)


def _numbers(tensors: t.Iterable[t.Any]) -> list[float]:
    return [number for tensor in tensors for number in tensor.detach().flatten().tolist()]


CHECKS: t.Mapping[str, tuple[str, bool, t.Callable[[t.Any], float]]] = {
    "flatten": ("apex_C", False, flatten),
    "FusedAdam": ("amp_C", True, fused_adam),
    "FusedLayerNorm": ("fused_layer_norm_cuda", True, fused_layer_norm),
}


def compute(torch: t.Any, imported: t.Collection[str], gpu: bool) -> dict[str, float | str]:
    """Return the deviation of each computation in units of the allowed one, or why it could not be made."""
    results: dict[str, float | str] = {}
    for name, (module, needs_gpu, check) in CHECKS.items():
        if module in imported and (gpu or not needs_gpu):
            try:
                results[name] = check(torch)
            except Exception as exc:
                results[name] = f"{type(exc).__name__}: {exc}"
    return results


def main() -> None:
    request = json.loads(sys.argv[1])
    torch = importlib.import_module("torch")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    proof = load(["apex", *request["modules"]], request["maybe"])
    proof["computed"] = compute(torch, proof["imported"], gpu is not None)
    sys.stdout.write(f"\n{MARK}{json.dumps({**proof, 'gpu': gpu})}\n")


if __name__ == "__main__":
    main()
