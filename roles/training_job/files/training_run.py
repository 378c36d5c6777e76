# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a training that can be interrupted, watched and judged; it travels with every job of role training_job.

In a script::

    def train(device):
        run = Run(model=model, optimizer=optimizer)
        for step in run.steps(1000):
            ...
            run.loss = loss.item()

    together(train)

The steps go on from the newest sound checkpoint. On SIGUSR1 and SIGTERM all ranks end after the same step and a
checkpoint, by SystemExit: what follows the loop is for a training that came to its end. A loss that is not finite ends
the training and names the rank that was first. At the end rank 0 writes the result that the job is judged by.
"""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import socket
import sys
import time
import typing as t
from functools import partial
from pathlib import Path

import torch
from checkpoints import LEAVE, STOPPED, Checkpoints, Journal, Stop, done, replace, starts
from stalls import Stalls
from torch import distributed, nn

Json = t.Dict[str, t.Any]


def together(train: t.Callable[[torch.device], None]) -> t.NoReturn:
    """Join the other ranks, train on the device of this one, and leave them; end with the status that it ended with."""
    device, status = join(), t.cast("str | int | None", 0)
    try:
        train(device)
    except SystemExit as exc:
        status = exc.code
    part()
    sys.exit(status)


def join() -> torch.device:
    """Join the other ranks, by NCCL where there are GPUs; return the device of this rank.

    What is imported by now is never garbage, and the collector leaves it out from here on: to look through all of
    PyTorch takes it 0.1 s between two steps, and 0.5 s at the end.
    """
    gc.freeze()
    if not torch.cuda.is_available():
        distributed.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", device_id=device)
    return device


def part() -> None:
    """Leave the other ranks. Models have to be gone, so call it where none is in scope.

    DDP's reducer sits in a reference cycle and holds the process group. Still held when the interpreter ends, gloo's
    threads abort with "terminate called": 4 of 10 short runs on a busy machine, none of 28 with this.
    """
    gc.collect()
    gc.freeze()  # what is imported since, such as torch._dynamo by an optimizer
    distributed.barrier()
    distributed.destroy_process_group()


class Run:
    """One training of one job, over all its starts.

    ``state`` is what a checkpoint holds, by name: whatever has ``state_dict`` and ``load_state_dict``, the same on all
    ranks. Without any, nothing is kept, and a start begins at step 0. What the role says is in the environment:
    ``HPCAI_RESULT`` and ``HPCAI_CHECKPOINTS`` (paths), ``HPCAI_CHECKPOINT_EVERY`` (steps), ``HPCAI_CHECKPOINTS_KEPT``,
    ``HPCAI_STALL`` (seconds).
    """

    def __init__(self, batch_size: int = 0, name: str = "", pause: float = 0, **state: t.Any) -> None:
        self.batch_size, self.name, self.pause = batch_size, name, pause
        self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()
        self.loss = math.nan
        self.history: list[float] = []
        self._device = torch.device("cuda", torch.cuda.current_device()) if _on_gpus() else torch.device("cpu")
        self._state = {key: getattr(part, "module", part) if _wrapped(part) else part for key, part in state.items()}
        self._result = os.environ.get("HPCAI_RESULT", "")
        self._every = int(os.environ.get("HPCAI_CHECKPOINT_EVERY") or 50)
        folder = Path(os.environ.get("HPCAI_CHECKPOINTS") or "/nonexistent")
        self._folder = folder if self.rank == 0 and os.environ.get("HPCAI_CHECKPOINTS") else None
        kept = int(os.environ.get("HPCAI_CHECKPOINTS_KEPT") or 2)
        self._checkpoints = Checkpoints(self._folder, kept) if self._folder else None
        self._journal = Journal(self._folder) if self._folder else None
        self._stalls = self._watched()
        self._stop = Stop()
        if self._folder and (self._folder / LEAVE).exists():
            self._stop.flags = [1.0, 1.0]
        self.first = self._resume()

    def _watched(self) -> Stalls | None:
        """Return what notices that no step ends any more; the job script ends the training then."""
        seconds, folder = float(os.environ.get("HPCAI_STALL") or 0), os.environ.get("HPCAI_CHECKPOINTS")
        if not seconds or not folder:
            return None
        watched = Stalls(Path(folder), self.rank, self.ranks, _host(), seconds)
        if self._result:
            watched.tell = partial(_write, self._result)
        return watched

    def _resume(self) -> int:
        """Go on from the newest sound checkpoint, if there is one; all ranks take the one that rank 0 has found."""
        found: list[t.Any] = [self._checkpoints.newest() if self._checkpoints and self._state else None]
        distributed.broadcast_object_list(found, device=self._device)
        step, path = found[0] or (0, None)
        if path:
            kept = torch.load(path, map_location=self._device, weights_only=True)
            for name, part in self._state.items():
                part.load_state_dict(kept[name])
            self.history = kept["loss"]
        if self._journal:
            self._journal.add("start", step=step, lost=max(0, done(self._journal.read()) - step), ranks=self.ranks)
            print(f"begin at step {step}" + (f" of {path}" if path else ""), flush=True)
        return step

    def save(self, step: int) -> None:
        """Keep the state after so many steps."""
        if self._checkpoints and self._journal and self._state:
            state = {name: part.state_dict() for name, part in self._state.items()}
            path = self._checkpoints.save(step, lambda file: torch.save({**state, "loss": self.history}, file))
            self._journal.add("checkpoint", step=step)
            print(f"step {step} is kept in {path}", flush=True)

    def steps(self, count: int) -> t.Iterator[int]:
        """Go through the steps that are left; the caller trains one and sets ``loss``."""
        if not self._stalls:
            yield from self._steps(count)
            return
        self._stalls.start()
        try:
            for number in self._steps(count):
                self._stalls.step(number)
                yield number
        finally:
            self._stalls.over.set()

    def _steps(self, count: int) -> t.Iterator[int]:
        begin = time.perf_counter()
        for number in range(self.first, count):
            self.loss = math.nan
            yield number
            stop, again = self._agree(number)
            begin = time.perf_counter() if number == self.first else begin
            after = number + 1
            if stop and after < count:
                self.save(after)
                self._leave(after, "USR1" if again else "TERM")
            if after % self._every == 0:
                self.save(after)
            time.sleep(self.pause)
        refuse_drift(self._state.get("model"))
        self._finish(count, time.perf_counter() - begin)

    def _agree(self, number: int) -> tuple[float, float]:
        """Tell the other ranks how the step went; return what any rank was told, which all ranks then know."""
        own = torch.tensor([self.loss, *self._stop.flags], dtype=torch.float64, device=self._device)
        every = [torch.empty_like(own) for dummy in range(self.ranks)]
        distributed.all_gather(every, own)
        losses = [float(one[0]) for one in every]
        wrong = next((rank for rank, loss in enumerate(losses) if not math.isfinite(loss)), None)
        mean = math.fsum(losses) / self.ranks if wrong is None else math.nan
        self.history.append(mean)
        if self._journal:
            self._journal.add("step", step=number + 1, loss=mean if wrong is None else None)
        if self.rank == 0 and number % 20 == 0:
            print(f"step {number} loss {mean:.4f}", flush=True)
        if wrong is not None:
            self._fail(wrong, number, losses[wrong])
        return max(float(one[1]) for one in every), max(float(one[2]) for one in every)

    def _fail(self, rank: int, number: int, loss: float) -> t.NoReturn:
        """End a training that has no loss any more. Nothing is kept of it: the checkpoints before are sound."""
        host = members()[rank]["host"]
        problem = f"the loss of rank {rank} on {host} is {loss} at step {number}"
        if len(self.history) == 1 and math.isnan(loss):
            problem += "; the script has to set run.loss in each step"
        print(problem, file=sys.stderr, flush=True)
        if self.rank == 0 and self._result:
            _write(self._result, {"problem": problem, "rank": rank, "host": host, "step": number})
        sys.exit(1)

    def _leave(self, step: int, name: str) -> t.NoReturn:
        """End before the end. Who sends TERM is not told that all is done; USR1 is answered with a file."""
        if self._journal and self._folder:
            self._journal.add("stop", step=step, signal=name)
            if name == "USR1":
                replace(self._folder / STOPPED, lambda file: file.write(str(step).encode()))
        sys.exit(128 + signal.SIGTERM if name == "TERM" else 0)

    def _finish(self, count: int, seconds: float) -> None:
        """Write what is known at the end; the speed is that of the last start."""
        ranks, steps = members(), count - self.first
        found = {
            "model": self.name or Path(sys.argv[0]).name,
            "backend": distributed.get_backend(),
            "torch": torch.__version__,
            "world_size": self.ranks,
            "ranks": ranks,
            "steps": count,
            "batch_size": self.batch_size,
            "samples": self.batch_size * self.ranks * count,
            "loss": self.history,
            "seconds": seconds,
            "samples_per_second": self.batch_size * self.ranks * (steps - 1) / seconds if steps > 1 else None,
            **starts(self._journal.read() if self._journal else []),
        }
        if self.rank == 0 and self._result:
            _write(self._result, found)


def _on_gpus() -> bool:
    return "nccl" in str(distributed.get_backend())


def _wrapped(part: t.Any) -> bool:
    return isinstance(part, nn.parallel.DistributedDataParallel)


def _write(path: str, found: Json) -> None:
    text = json.dumps(found, indent=1, allow_nan=False) + "\n"
    replace(Path(path), lambda file: file.write(text.encode()))


def refuse_drift(model: nn.Module | None) -> None:
    """Stop when the replicas are not the same model: then nothing was synchronised."""
    if model is None:
        return
    total = torch.stack([value.detach().double().sum() for value in model.parameters()]).sum()
    low, high = total.clone(), total.clone()
    distributed.all_reduce(low, op=distributed.ReduceOp.MIN)
    distributed.all_reduce(high, op=distributed.ReduceOp.MAX)
    if low.item() != high.item():
        raise RuntimeError(f"replicas differ: sums of parameters from {low.item()} to {high.item()}")


def members() -> list[Json]:
    """Return rank and host of everyone who takes part, and the CPUs that it may use."""
    found: list[t.Any] = [None] * distributed.get_world_size()
    cpus = sorted(os.sched_getaffinity(0))
    distributed.all_gather_object(found, {"rank": distributed.get_rank(), "host": _host(), "cpus": cpus})
    return found


def _host() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
