# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that every rank of collective_test runs: private, stdlib and torch only.

srun passes this very file to ``python -`` on the nodes, so it may import nothing of the collection. Definitions are
those of nccl-tests: ``size`` is the bytes of one rank's whole buffer, algbw is size over time, busbw is algbw times
a factor that makes it comparable with the speed of the wire whatever the number of ranks.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import re
import socket
import sys
import time
import typing as t

MARK = "HPCAI_COLLECTIVE "
ELEMENT = 4
OPERATIONS = ("all_reduce", "all_to_all")


def sizes(smallest: int, largest: int, factor: int) -> list[int]:
    """Return the sizes from smallest to largest; the largest is always among them."""
    sizes = []
    while smallest < largest:
        sizes.append(smallest)
        smallest *= factor
    return [*sizes, largest]


def bus_factor(operation: str, ranks: int) -> float:
    """Return busbw / algbw."""
    return {"all_reduce": 2.0, "all_to_all": 1.0}[operation] * (ranks - 1) / ranks


def elements(operation: str, size: int, ranks: int) -> int:
    """Return how many elements one rank holds; an all-to-all needs the same number for every partner."""
    count = size // ELEMENT
    return count // ranks * ranks if operation == "all_to_all" else count


def repeats(once: float, warmup: int, iterations: int, limit: float) -> tuple[int, int]:
    """Return how often to warm up and to measure what takes ``once`` seconds, so that all stays near the limit."""
    share = min(1.0, limit / (once * (warmup + iterations)))
    return int(warmup * share), max(2, int(iterations * share))


def row(operation: str, size: int, count: int, seconds: float, ranks: int, wrong: int) -> dict[str, t.Any]:
    """Return one line of the result, bandwidths in GB/s (decimal)."""
    algbw = count * ELEMENT / seconds / 1e9
    return {
        "collective": operation,
        "size": size,
        "bytes": count * ELEMENT,
        "time_us": seconds * 1e6,
        "algbw": algbw,
        "busbw": algbw * bus_factor(operation, ranks),
        "wrong": wrong,
    }


def first_host(hostlist: str) -> str:
    """Return the first name of a Slurm host list."""
    name = re.match(r"(?:[^,\[]|\[[^\]]*\])*", hostlist)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", name.group()) if name else ""


def rendezvous(env: t.Mapping[str, str]) -> dict[str, str]:
    """Return torch's variables from those of a Slurm step; variables that are set already win."""
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "localhost"
    # Above the ports that the kernel hands out by itself, and another one for every job.
    port = 61000 + (int(env.get("SLURM_JOB_ID", "0")) + int(env.get("SLURM_STEP_ID", "0"))) % 4536
    variables = {
        "MASTER_ADDR": first_host(nodes),
        "MASTER_PORT": str(port),
        "RANK": env.get("SLURM_PROCID", "0"),
        "WORLD_SIZE": env.get("SLURM_NTASKS", "1"),
        "LOCAL_RANK": env.get("SLURM_LOCALID", "0"),
    }
    return {key: env.get(key, value) for key, value in variables.items()}


class Bench:
    """The collectives of one process group."""

    def __init__(self, torch: t.Any, backend: str) -> None:
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()
        self.device = f"cuda:{torch.cuda.current_device()}" if backend == "nccl" else "cpu"

    def synchronize(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def pattern(self, count: int, shift: int) -> t.Any:
        """Return small whole numbers, whose sums over thousands of ranks are still exact in float32."""
        period = self.torch.arange(251, dtype=self.torch.float32, device=self.device) + shift
        return period.repeat(-(-count // 251))[:count]

    def call(self, operation: str, count: int) -> tuple[t.Callable[[], None], t.Any]:
        """Return the operation over zeros (sums stay finite however often it runs) and its result's buffer."""
        source = self.torch.zeros(count, device=self.device)
        if operation == "all_reduce":
            return (lambda: self.dist.all_reduce(source)), source
        target = self.torch.empty_like(source)
        return (lambda: self.dist.all_to_all_single(target, source)), target

    def count_wrong(self, operation: str, count: int) -> int:
        """Run once with known numbers and count, over all ranks, those that came back different."""
        if operation == "all_reduce":
            target = self.pattern(count, self.rank)
            self.dist.all_reduce(target)
            total = self.ranks * (self.ranks - 1) // 2
            expected = self.pattern(count, 0) * self.ranks + total
        else:
            share = count // self.ranks
            source = self.torch.cat([self.pattern(share, (self.rank * 31 + to) % 4093) for to in range(self.ranks)])
            target = self.torch.empty_like(source)
            self.dist.all_to_all_single(target, source)
            expected = self.torch.cat([self.pattern(share, (by * 31 + self.rank) % 4093) for by in range(self.ranks)])
        wrong = (target != expected).sum().to(self.torch.float64)
        self.dist.all_reduce(wrong)
        return int(wrong.item())

    def timed(self, call: t.Callable[[], None], iterations: int) -> float:
        """Return the time of one call, averaged over iterations and ranks, and so the same on every rank."""
        self.synchronize()
        self.dist.barrier()
        begin = time.perf_counter()
        for _dummy in range(iterations):
            call()
        self.synchronize()
        spent = self.torch.tensor([(time.perf_counter() - begin) / iterations], dtype=self.torch.float64)
        spent = spent.to(self.device)
        self.dist.all_reduce(spent)
        return float(spent.item()) / self.ranks

    def seconds(self, operation: str, count: int, warmup: int, iterations: int, limit: float) -> float:
        """Return the time of one operation; with a ``limit`` in seconds a slow one is repeated less often."""
        call = self.call(operation, count)[0]
        if limit:
            warmup, iterations = repeats(self.timed(call, 1), warmup, iterations, limit)
        for _dummy in range(warmup):
            call()
        return self.timed(call, iterations)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--operations", nargs="+", default=list(OPERATIONS))
    for name, default in (
        ("min-size", 8),
        ("max-size", 64 * 1024**2),
        ("factor", 4),
        ("warmup", 5),
        ("iterations", 20),
        ("turns", 1),
        ("seconds", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def measured(bench: Bench, args: argparse.Namespace) -> t.Iterator[dict[str, t.Any]]:
    """Yield a row for each operation and size."""
    for operation in args.operations:
        for size in sizes(args.min_size, args.max_size, args.factor):
            count = elements(operation, size, bench.ranks)
            if count == 0:
                continue
            wrong = bench.count_wrong(operation, count)
            spent = bench.seconds(operation, count, args.warmup, args.iterations, args.seconds)
            yield row(operation, size, count, spent, bench.ranks, wrong)


def main() -> None:
    """Measure, and let rank 0 print one marked line of JSON."""
    args = _arguments()
    os.environ.update(rendezvous(os.environ))
    gc.disable()
    torch = importlib.import_module("torch")  # here, so that the pure functions above load where there is no torch
    gc.freeze()  # all that stays: to look through it for garbage, above all at the end, takes as long as to measure
    gc.enable()
    if args.backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.distributed.init_process_group(args.backend)
    bench = Bench(torch, args.backend)
    turns = [list(measured(bench, args)) for _dummy in range(args.turns)]
    members: list[t.Any] = [None] * bench.ranks
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    own_entry = {"rank": bench.rank, "host": name, "machine": socket.gethostname()}
    torch.distributed.all_gather_object(members, own_entry)
    if bench.rank == 0:
        result = {"rows": turns[0], "turns": turns, "ranks": members, "torch": torch.__version__}
        sys.stdout.write(f"{MARK}{json.dumps(result)}\n")
        sys.stdout.flush()
    torch.distributed.barrier()  # a connection that somebody still uses must not be torn down: gloo would abort
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
