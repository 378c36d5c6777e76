# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OPT benchmark of metaseq: its models, whether a number of GPUs can train one, and its record. No I/O.

Sizes are those of metaseq/launcher/opt_job_constants.py, the arithmetic is that of metaseq/launcher/opt_baselines.py,
both at f7ffa5fd61cf90f498a36d365c13dd7f1a912ff7. There the benchmark is 50 updates with made-up data, logged every 5.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.metaseq import MetaseqRun

CHECK = "opt_benchmark"
SEQUENCE = 2048
UPDATES = 50
_M = 1024 * 1024


# Words per second of each GPU that others published, for models of these layers and widths, sequences of 2048 tokens,
# by the name of the GPU in profiles; of 8 GPUs, of 2.7b on the H100 of 16.
PUBLISHED: dict[str, dict[str, int]] = {
    "A100-SXM4-80GB": {
        "125m": 141737,
        "350m": 58782,
        "760m": 32434,
        "1.3b": 20513,
        "2.7b": 10811,
        "6.7b": 4641,
        "13b": 2262,
        "30b": 916,
    },
    "A100-SXM4-40GB": {"6.7b": 3679, "13b": 1668},
    "H100 80GB HBM3": {"760m": 63147, "1.3b": 45455, "2.7b": 24142, "6.7b": 10643, "13b": 4792, "30b": 2002},
}
PUBLISHED_IN = (
    "mosaicml/llm-foundry scripts/train/benchmarking/README.md (061f2c7), tables of BF16: MPT by PyTorch FSDP with "
    "flash attention, which metaseq does not have"
)


class OptError(ValueError):
    """These GPUs cannot train that model; the text is fit for the user."""


class Size(t.NamedTuple):
    """A model; `batch` is in tokens, of all GPUs together."""

    layers: int
    width: int
    heads: int
    batch: int
    model_parallel: int


SIZES: dict[str, Size] = {
    "8m": Size(4, 128, 2, _M // 8, 2),
    "125m": Size(12, 768, 12, _M // 2, 2),
    "350m": Size(24, 1024, 16, _M // 2, 2),
    "760m": Size(24, 1536, 16, _M // 2, 2),
    "1.3b": Size(24, 2048, 32, _M, 2),
    "2.7b": Size(32, 2560, 32, _M, 4),
    "6.7b": Size(32, 4096, 32, 2 * _M, 2),
    "13b": Size(40, 5120, 40, 4 * _M, 2),
    "30b": Size(48, 7168, 56, 4 * _M, 2),
    "66b": Size(64, 9216, 72, 2 * _M, 8),
    "175b": Size(96, 12288, 96, 2 * _M, 8),
}


def plan(model: str, nodes: int, gpus_per_node: int) -> Json:
    """Return what each GPU gets; metaseq itself would go on with a batch of 0 where there are too many of them."""
    if model not in SIZES:
        raise OptError(f"model {model!r} is none of {', '.join(SIZES)}")
    for name, value in (("nodes", nodes), ("gpus_per_node", gpus_per_node)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptError(f"{name} is {value!r}; a whole number from 1 is needed")
    size, gpus = SIZES[model], nodes * gpus_per_node
    if gpus_per_node < 2:
        raise OptError("metaseq's model-parallel code needs at least 2 GPUs in a node")
    if gpus % size.model_parallel:
        raise OptError(f"{model} is split among {size.model_parallel} GPUs, and {gpus} cannot be divided by that")
    replicas = gpus // size.model_parallel
    batch = size.batch // replicas // SEQUENCE
    if not batch:
        most = size.batch // SEQUENCE * size.model_parallel
        raise OptError(
            f"{gpus} GPUs are too many for {model}: its batch has {size.batch // SEQUENCE} sequences for {replicas}"
            f" replicas. Take at most {most} GPUs or a larger model"
        )
    return {
        **size._asdict(),
        "model": model,
        "parameters": parameters(size),
        "gpus": gpus,
        "sequences_per_gpu": batch,
        "words_per_update": batch * replicas * SEQUENCE,
    }


def parameters(size: Size, vocabulary: int = 51200) -> int:
    """Return how many parameters there are: attention and feed-forward of each layer, and the embeddings."""
    layer = 12 * size.width**2 + 13 * size.width
    return size.layers * layer + (vocabulary + SEQUENCE) * size.width


def check(
    log: Log[MetaseqRun],
    planned: Json,
    job: t.Mapping[str, t.Any],
    expected: t.Sequence[Json],
    *,
    time: float,
    gpu: str = "",
    **about: t.Any,
) -> Json:
    """Return the record of a benchmark; a job that failed has no speed, whatever its log says."""
    run = log.runs[-1] if log.runs else None
    fields: Json = {
        **about,
        "time": time,
        "seconds": run.seconds if run else None,
        "scope": {"group": job.get("nodes") or []},
        "context": {"tool": "metaseq", "job_id": job.get("job_id"), "model": planned["model"], "gpus": planned["gpus"]},
    }
    cause = log.cause or (run.cause if run else None)
    if job.get("state") != "COMPLETED":
        reason = f"job {job.get('job_id')} ended as {job.get('state')}, exit code {job.get('exit_code')}"
        reason += f": {cause.text}" if cause else ""
        return record(CHECK, None, verdict="fail", blame=cause.kind if cause else "software", reason=reason, **fields)
    if run is None or not run.ok:
        reason = cause.text if cause else "the log holds no training" if run is None else _unfinished(run)
        return record(CHECK, None, verdict="error", reason=reason, **fields)
    published = PUBLISHED.get(gpu, {}).get(planned["model"])
    if published:
        fields["context"].update(gpu=gpu, published={"words_per_second_per_gpu": published, "source": PUBLISHED_IN})
    judged = judge(CHECK, measure(run, planned, published), expected, len(job.get("nodes") or []))
    return record(CHECK, None, metrics=judged, blame="software", **fields)


def _unfinished(run: MetaseqRun) -> str:
    torn = f"{run.torn} intervals in the log cannot be read, so that its numbers are not those of the whole training"
    return torn if run.torn and run.seconds is not None else "the training did not end"


def measure(run: MetaseqRun, planned: Json, published: int | None = None) -> list[Json]:
    """Return what a complete training measured, and how much that is of what others published for this GPU."""
    speed = run.words_per_second
    model = planned["model"]
    of_each = None if speed is None else speed / planned["gpus"]
    share = (
        [] if of_each is None or not published else [metric("share_of_published", of_each / published, "", model=model)]
    )
    return [
        metric("words_per_second", speed, "words/s", model=model),
        metric("words_per_second_per_gpu", of_each, "words/s", model=model),
        *share,
        metric("updates", run.rows[-1].updates, "updates", model=model),
    ]


def expectations(profile: t.Sequence[Json], model: str) -> list[Json]:
    """Return what is expected: the profile's for this model, and that all updates were made."""
    source = "metaseq/launcher/opt_baselines.py (f7ffa5f): a benchmark is 50 updates"
    complete = {"check": CHECK, "metric": "updates", "op": ">=", "value": UPDATES, "unit": "updates", "source": source}
    matching = [
        expectation
        for expectation in profile
        if expectation.get("check") == CHECK and expectation.get("model") in (None, model)
    ]
    return [*matching, complete]
