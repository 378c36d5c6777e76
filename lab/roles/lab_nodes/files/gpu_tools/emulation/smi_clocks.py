# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi: what changes a GPU (persistence, locked clocks, application clocks)."""

from __future__ import annotations

from emulation.machine import Gpu, Machine
from emulation.smi_tree import supported_clocks
from emulation.smi_values import State, persistent

CHANGES = ("-pm", "-lgc", "-rgc", "-lmc", "-rmc", "-ac", "-rac")
NOT_PERSISTENT = (
    "\nWarning: persistence mode is disabled on device {}. See the Known Issues section of the nvidia-smi(1) man page "
    "for more information. Run with [--help | -h] switch to get more information on how to enable persistence mode."
)
LOCKS = ("-lgc", "-rgc", "-lmc", "-rmc")


class Refused(Exception):
    """The change is not made; the text is what the tool prints, the number its exit status."""


def change(machine: Machine, what: str, value: str, gpus: list[tuple[int, Gpu]]) -> int:
    """Apply one change to GPUs, one after the other, until one refuses."""
    state, status = State(), 0
    for dummy, gpu in gpus:
        if what in LOCKS and machine.faults.get("no_locked_clocks"):
            kind = "GPU" if what in ("-lgc", "-rgc") else "Memory"
            print(
                f"Setting locked {kind} clocks is not supported for GPU {gpu.bus_id}.\n"
                "Treating as warning and moving on."
            )
            status = 3
            continue
        try:
            said = _apply(machine, state, what, value, gpu)
        except Refused as exc:
            print(f"{exc}\nTerminating early due to previous errors.")
            return 2
        except PermissionError:
            print(_denied(what, gpu.bus_id))
            return 4
        if said:
            print(said)
        if what != "-pm" and not persistent(state.of(gpu)):
            print(NOT_PERSISTENT.format(gpu.bus_id))
    print("All done.")
    return status


def _denied(what: str, bus_id: str) -> str:
    if what == "-pm":
        return (
            f"Unable to set persistence mode for GPU {bus_id}: Insufficient Permissions\n"
            "Terminating early due to previous errors."
        )
    return (
        f"The current user does not have permission to change clocks for GPU {bus_id}.\n"
        "Terminating early due to previous errors."
    )


def _apply(machine: Machine, state: State, what: str, value: str, gpu: Gpu) -> str:
    """Make one change to one GPU and return what is said about it; a reset says nothing."""
    resets = {"-rgc": "graphics", "-rmc": "memory", "-rac": "application"}
    if what in resets:
        state.put(gpu, **{resets[what]: None})
        return ""
    if what == "-pm":
        return _persistence(state, value, gpu)
    numbers = _numbers(what, value)
    if what == "-ac":
        memory, graphics = numbers
        if (memory, graphics) not in {(mem, clock) for mem, clocks in [_supported(machine)] for clock in clocks}:
            raise Refused(
                f'Specified clock combination "(MEM {memory}, SM {graphics})" is not supported for GPU {gpu.bus_id}. '
                "Run 'nvidia-smi -q -d SUPPORTED_CLOCKS' to see list of supported clock combinations"
            )
        state.put(gpu, application={"memory": memory, "graphics": graphics})
        return f'Applications clocks set to "(MEM {memory}, SM {graphics})" for GPU {gpu.bus_id}'
    name, kind, short = ("graphics", "GPU", "gpu") if what == "-lgc" else ("memory", "Memory", "mem")
    state.put(gpu, **{name: numbers})
    return f'{kind} clocks set to "({short}ClkMin {numbers[0]}, {short}ClkMax {numbers[-1]})" for GPU {gpu.bus_id}'


def _supported(machine: Machine) -> tuple[int, list[int]]:
    return supported_clocks(**machine["gpu"]["max_clocks"])


def _numbers(what: str, value: str) -> list[int]:
    words = value.split(",")
    if not all(word.strip().isdigit() for word in words) or len(words) not in ((2,) if what == "-ac" else (1, 2)):
        raise Refused(f'Invalid clock specification "{value}".')
    found = [int(word) for word in words]
    return found if len(found) == 2 else found * 2


def _persistence(state: State, value: str, gpu: Gpu) -> str:
    wanted = {"1": True, "ENABLED": True, "0": False, "DISABLED": False}.get(value.upper())
    if wanted is None:
        raise Refused(f'Invalid argument "{value}" for persistence mode.')
    word = "Enabled" if wanted else "Disabled"
    if persistent(state.of(gpu)) == wanted:
        return f"Persistence mode is already {word} for GPU {gpu.bus_id}."
    state.put(gpu, persistence=wanted)
    return f"{word} persistence mode for GPU {gpu.bus_id}."
