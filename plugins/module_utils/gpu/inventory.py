# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a node: three calls of nvidia-smi, and which GPUs are there or missing."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_nvlink import NvlinkRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import TopologyRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import Gpu, XmlRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Address,
    CpuListError,
    Topology,
    address,
    bus_id,
)

# Three calls of nvidia-smi that return everything gpu_info needs.


Runner = t.Callable[..., Outcome]

# Containers and systemd units have a PATH without these.
PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/run/nvidia/driver/usr/bin")
_MOST = 400
_CALLS = {"query": ["-q", "-x"], "topo": ["topo", "-m"], "nvlink": ["nvlink", "-s"]}


class SmiReading(t.NamedTuple):
    """What nvidia-smi printed. ``problems`` has the reason for each call (query, topo, nvlink) that cannot be used.

    ``cause`` is the error that nvidia-smi printed instead of GPUs.
    """

    query: XmlRun | None
    matrix: TopologyRun | None
    nvlink: NvlinkRun | None
    problems: dict[str, str]
    cause: Cause | None
    commands: list[list[str]]


def read(
    program: str | None,
    timeout: float,
    environment: t.Mapping[str, str] | None = None,
    runner: Runner = run,
    find: t.Callable[..., str] = _launch.find,
) -> SmiReading:
    """Make the calls, one after the other."""
    try:
        path = find("nvidia-smi", program, PLACES, role=None)
    except _launch.NotFound as exc:
        return SmiReading(None, None, None, dict.fromkeys(_CALLS, str(exc)), None, [])
    caller = _Caller(path, timeout, environment or {}, runner)
    log = nvidia_smi.parse_xml(caller.ask("query"))
    query = log.runs[0] if log.runs else None
    if query is None or not query.gpus:
        cause = log.cause or nvidia_smi.message(caller.complaint) or nvidia_smi.status(caller.status)
        caller.give_up("query", cause.text if cause else "it showed no GPU")
        return SmiReading(query, None, None, caller.problems, cause, caller.commands)
    if not query.complete:
        caller.problems["query"] = "its output ends in the middle"
    topo = next(iter(nvidia_smi.parse_topo(caller.ask("topo")).runs), None)
    shown = caller.ask("nvlink")
    nvlink = next(iter(nvidia_smi.parse_nvlink(shown).runs), None)
    if nvlink is None:
        caller.keep("nvlink", shown)
    return SmiReading(query, topo, nvlink, caller.problems, None, caller.commands)


class _Caller:
    """Runs nvidia-smi until it hangs."""

    def __init__(self, path: str, timeout: float, environment: t.Mapping[str, str], runner: Runner) -> None:
        self.problems: dict[str, str] = {}
        self.commands: list[list[str]] = []
        self.status: int | None = None
        self.complaint = ""
        self._path, self._timeout, self._environment, self._runner = path, timeout, environment, runner
        self._hung = ""

    def ask(self, name: str) -> str:
        """Return what a call printed; its status alone is no problem, since one lost GPU changes it."""
        if self._hung:
            self.problems[name] = f"not asked, because {self._hung}"
            return ""
        argv = [self._path, *_CALLS[name]]
        self.commands.append(argv)
        outcome = self._runner(argv, self._timeout, None, self._environment)
        self.status, self.complaint = outcome.rc, outcome.err
        if outcome.rc is None:
            self._hung = f"{' '.join(argv)}: {outcome.problem}"
            self.problems[name] = self._hung
            return ""
        if not outcome.out.strip():
            self.problems[name] = f"{' '.join(argv)}: {outcome.problem or 'no output'}"
        return f"{outcome.err}\n{outcome.out}" if name == "query" else outcome.out

    def keep(self, name: str, text: str) -> None:
        """Keep what a call printed in place of what was asked for, unless it is known why."""
        first = next((line.strip() for line in f"{text}\n{self.complaint}".splitlines() if line.strip()), "")
        self.problems.setdefault(name, f"{' '.join(self.commands[-1])}: {first[:_MOST]}")

    def give_up(self, name: str, reason: str) -> None:
        """Give up the other calls, where the first one showed no GPU."""
        self.problems.setdefault(name, f"{' '.join(self.commands[-1])}: {reason}")
        for call in _CALLS:
            self.problems.setdefault(call, self.problems[name])


# Which GPUs a node has and which are missing. Pure.


_HIDDEN = "it is on the PCI bus, but the driver does not show it"
_UNKNOWN = "which one it is cannot be told"


class Expected(t.NamedTuple):
    """A GPU as a profile describes it."""

    pci_domain: int
    numa_node: int


@dataclass(frozen=True)
class MissingGpu:
    """A GPU that does not answer; ``index`` is its place among all GPUs of the node, if that is known."""

    index: int | None
    bus_id: str | None
    numa_node: int | None
    why: str

    def __str__(self) -> str:
        texts = [] if self.index is None else [f"GPU {self.index}"]
        texts += [self.bus_id] if self.bus_id else []
        texts += [] if self.numa_node is None else [f"NUMA node {self.numa_node}"]
        return f"{', '.join(texts) or 'a GPU'}: {self.why}"


class Inventory(t.NamedTuple):
    """GPUs by index, those that are missing, and how many metrics each check must have."""

    gpus: dict[int, Gpu]
    missing: list[MissingGpu]
    planned: list[int]


def expected(rows: t.Sequence[t.Any]) -> list[Expected]:
    """Read ``topology.gpus`` of a profile."""
    gpus = []
    for row in rows:
        domain, node = (row.get("pci_domain"), row.get("numa_node")) if isinstance(row, dict) else (None, None)
        gpu_address = address(f"{domain:0>4}:00:00.0") if isinstance(domain, str) else None
        if gpu_address is None or isinstance(node, bool) or not isinstance(node, int):
            raise CpuListError(f"a GPU of a topology is {{pci_domain: '000b' (in quotes), numa_node: 3}}, not {row!r}")
        gpus.append(Expected(gpu_address[0], node))
    return gpus


def nodes_of(profile: t.Sequence[Expected], addresses: t.Iterable[Address]) -> dict[Address, int | None]:
    """Return the NUMA node that a profile expects of each GPU; None where it does not say which GPU it means.

    On Azure every GPU has a PCI domain of its own. On bare metal all share domain 0000: there the order along the bus
    decides, which is known only while none is missing.
    """
    nodes_by_gpu: dict[Address, int | None] = {}
    for domain, group in itertools.groupby(sorted(addresses), key=lambda gpu_address: gpu_address[0]):
        members = list(group)
        nodes = [gpu.numa_node for gpu in profile if gpu.pci_domain == domain]
        if len(nodes) == len(members) or len(set(nodes)) == 1:
            nodes_by_gpu.update(zip(members, nodes if len(nodes) == len(members) else nodes[:1] * len(members)))
        elif nodes:
            nodes_by_gpu.update(dict.fromkeys(members))
    return nodes_by_gpu


def take(query: XmlRun, on_bus: t.Sequence[str], profile: t.Sequence[Expected], count: int) -> Inventory:
    """Give every GPU its index, and name each missing one by address, NUMA node and reason as far as they are known."""
    count = count or len(profile)
    alive = [gpu for gpu in query.gpus if gpu.error is None]
    present = [gpu_address for gpu_address in (address(gpu.bus_id) for gpu in alive) if gpu_address]
    lost, numbered = _lost(query, present)
    attached = query.attached_gpus or 0
    # A container may have only some of the host's GPUs, so the bus and the profile only explain a shortage.
    short = max(count, attached) - len(alive) - len(lost) - len(numbered)
    hidden = _explain(on_bus, [*present, *lost], short)
    absent = _absent(profile, [*present, *lost, *hidden], short - len(hidden), bool(on_bus))
    # A GPU that the driver counts without showing it has an index; the bus shows which GPU it is.
    counted = [*lost, *(hidden if attached >= len(alive) + len(lost) + len(hidden) else [])]
    gpus = _indexed(alive, present, counted, set(numbered))
    missing_gpus = _named({**lost, **hidden, **absent}, present, profile, count or attached)
    missing_gpus += [MissingGpu(index, None, None, reason) for index, reason in sorted(numbered.items())]
    missing_gpus += [MissingGpu(None, None, None, _UNKNOWN)] * (short - len(hidden) - len(absent))
    highest = max([count, len(alive) + len(counted), *(index + 1 for index in [*gpus, *numbered])])
    return Inventory(gpus, missing_gpus, list(range(highest)))


def _explain(on_bus: t.Sequence[str], addresses: t.Sequence[Address], short: int) -> dict[Address, str]:
    hidden = {
        gpu_address: _HIDDEN for gpu_address in map(address, on_bus) if gpu_address and gpu_address not in addresses
    }
    return hidden if len(hidden) <= short else {}


def _lost(query: XmlRun, present: t.Sequence[Address]) -> tuple[dict[Address, str], dict[int, str]]:
    """Return the GPUs that nvidia-smi complains about, or shows without values: by address, else by index."""
    by_address: dict[Address, str] = {}
    by_index: dict[int, str] = {}
    for gpu in query.gpus:
        gpu_address = address(gpu.bus_id)
        if gpu.error and gpu_address:
            by_address[gpu_address] = gpu.error
    for message in query.messages:
        gpu_address = address(message.bus_id or "")
        if gpu_address and gpu_address not in present:
            by_address.setdefault(gpu_address, message.text)
        elif not gpu_address and message.index is not None:
            by_index.setdefault(message.index, message.text)
    return by_address, by_index


def _indexed(
    alive: t.Sequence[Gpu], present: t.Sequence[Address], counted: t.Sequence[Address], taken: set[int]
) -> dict[int, Gpu]:
    free = (index for index in itertools.count() if index not in taken)
    if len(present) < len(alive):
        # A document that was cut off: the last GPU may lack its address.
        return dict(zip(free, alive))
    gpus = dict(zip(present, alive))
    return {
        index: gpus[gpu_address]
        for index, gpu_address in zip(free, sorted({*present, *counted}))
        if gpu_address in gpus
    }


def _absent(profile: t.Sequence[Expected], addresses: t.Sequence[Address], short: int, bus: bool) -> dict[Address, str]:
    """Return the GPUs of the profile whose PCI domain the node lacks; ``bus`` says whether the bus was read."""
    domains = {gpu_address[0] for gpu_address in addresses}
    observer = "there is" if bus else "the driver shows"
    missing = {
        (gpu.pci_domain, 0, 0, 0): f"{observer} no GPU in PCI domain {gpu.pci_domain:04x}"
        for gpu in profile
        if gpu.pci_domain not in domains
    }
    return missing if len(missing) <= short else {}


def _named(
    gone: t.Mapping[Address, str], present: t.Sequence[Address], profile: t.Sequence[Expected], count: int
) -> list[MissingGpu]:
    """Give missing GPUs their index among all, where the known addresses are as many as the GPUs of the node."""
    addresses = sorted([*gone, *present])
    complete = len(addresses) == (len(profile) or count)
    nodes = nodes_of(profile, addresses)
    return [
        MissingGpu(
            addresses.index(gpu_address) if complete else None, bus_id(gpu_address), nodes.get(gpu_address), reason
        )
        for gpu_address, reason in sorted(gone.items())
    ]


# The input and the output of the checks of gpu_info.


class GpuCheckOptions(t.NamedTuple):
    """What is expected of the node; ``gpus`` 0 and no model or places expect nothing."""

    node: str
    gpus: int = 0
    model: str | None = None
    places: t.Sequence[Expected] = ()
    expect: t.Sequence[Json] = ()
    run: str | None = None
    profile: str | None = None

    def expects(self, check: str) -> bool:
        """Return whether any expectation is about this check."""
        return any(expectation.get("check") == check for expectation in self.expect)


class PinnedProcess(t.NamedTuple):
    """A process, the GPUs that it uses and the CPUs that it may run on; None if its status cannot be read."""

    pid: int
    gpus: t.Sequence[int]
    cpus: str | None


class ObservedGpus(t.NamedTuple):
    """What was read of a node's GPUs."""

    reading: SmiReading
    inventory: Inventory
    topology: Topology
    processes: t.Sequence[PinnedProcess] = ()

    @property
    def gpus(self) -> dict[int, Gpu]:
        return self.inventory.gpus

    def problem(self, call: str) -> str:
        return self.reading.problems.get(call, "")


class GpuFinding(t.NamedTuple):
    """The result of one check; without a verdict the expectations decide. ``gpus`` are those at fault by the check."""

    metrics: t.Sequence[Json] = ()
    verdict: str | None = None
    reason: str = ""
    blame: str = "hardware"
    gpus: t.Sequence[int] = ()
    samples: t.Sequence[Json] = ()


Measure = t.Callable[[ObservedGpus, GpuCheckOptions], GpuFinding]


def listing(numbers: t.Iterable[int]) -> str:
    """Write indexes for people: GPU 3, GPUs 3 and 5, GPUs 1, 3 and 5."""
    texts = [str(number) for number in sorted(set(numbers))]
    if len(texts) < 2:
        return f"GPU {''.join(texts)}"
    return f"GPUs {', '.join(texts[:-1])} and {texts[-1]}"
