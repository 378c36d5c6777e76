# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q -x``: DTD v10 to v13, whatever stands before, between and after the documents."""

from __future__ import annotations

import itertools
import re
import typing as t
from dataclasses import dataclass, field
from xml.parsers import expat

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log, log_of

# One GPU as ``nvidia-smi -q -x`` describes it, under names that do not change with the driver's version.


@dataclass(frozen=True)
class GpuClocks:
    graphics_mhz: float | None
    sm_mhz: float | None
    memory_mhz: float | None


@dataclass(frozen=True)
class Pcie:
    """The current generation drops when a GPU idles; the width does not."""

    generation: int | None
    generation_max: int | None
    width: float | None
    width_max: float | None
    replays: int | None


@dataclass(frozen=True)
class Ecc:
    """Errors since the driver was loaded (volatile) and in the GPU's life (aggregate), of SRAM and DRAM together.

    ``counts`` has them apart, such as ``volatile_sram_uncorrected``; V100 and older do not tell them apart.
    """

    enabled: bool | None
    volatile_corrected: int | None
    volatile_uncorrected: int | None
    aggregate_corrected: int | None
    aggregate_uncorrected: int | None
    sram_threshold_exceeded: bool | None
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Repairs:
    """Rows that were remapped (A100 and newer), pages that were retired (V100 and older)."""

    remapped_correctable: int | None
    remapped_uncorrectable: int | None
    remap_pending: bool | None
    remap_failed: bool | None
    retired_pages: int | None
    retirement_pending: bool | None


@dataclass(frozen=True)
class Fabric:
    """What the fabric manager did; without NVSwitch all is None.

    ``status`` is the error of the registration, in NVML's words: ``Unknown Error`` is a value here. ``health`` is the
    summary, and ``conditions`` are those of NVML's health mask that are not as they should be, such as
    ``{"bandwidth": "Degraded"}``.
    """

    state: str | None
    status: str | None
    clique_id: str | None
    cluster_uuid: str | None
    health: str | None
    conditions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuProcess:
    """``kind`` is C (compute), G (graphics) or M+C (through MPS)."""

    pid: int
    kind: str | None
    name: str | None
    memory_mib: float | None


@dataclass(frozen=True)
class Gpu:
    """``complete`` is false where the document ends in the midst of this GPU.

    ``error`` is why it does not answer: ``GPU is lost``, ``GPU requires reset``, or that nothing of it can be read.
    ``unread`` has the errors of a GPU that answers, by the place of the value that could not be read.
    """

    bus_id: str
    name: str | None
    architecture: str | None
    uuid: str | None
    serial: str | None
    minor: int | None
    vbios: str | None
    persistence: bool | None
    mig: bool | None
    virtualization: str | None
    performance_state: str | None
    reset_required: bool | None
    recovery_action: str | None
    memory_total_mib: float | None
    memory_used_mib: float | None
    temperature_c: float | None
    memory_temperature_c: float | None
    power_w: float | None
    power_limit_w: float | None
    throttle_mask: int | None
    throttle: list[str]
    clocks: GpuClocks
    max_clocks: GpuClocks
    application_clocks: GpuClocks
    pcie: Pcie
    ecc: Ecc
    repairs: Repairs
    fabric: Fabric
    processes: list[GpuProcess]
    error: str | None
    unread: dict[str, str]
    complete: bool


# Make a GPU of the texts of a <gpu> element, whatever the driver's version calls them.


Fields = t.Mapping[str, str]
# What every GPU has: where all of it is errors, the GPU does not answer.
_VITAL = (
    "performance_state",
    "fb_memory_usage/total",
    "temperature/gpu_temp",
    "clocks/graphics_clock",
    "clocks/sm_clock",
    "clocks/mem_clock",
)
# How the conditions of NVML's fabric health mask read on a sound GPU; one that is not supported is N/A. Whether a
# partition is assigned is none: where one is needed, its absence is an incorrect configuration.
_FABRIC_SOUND = {
    "bandwidth": "full",
    "route_recovery_in_progress": "false",
    "route_unhealthy": "false",
    "access_timeout_recovery": "false",
    "incorrect_configuration": "none",
}
_NO_STATUS = ("", "N/A", "[N/A]", "Not Supported", "[Not Supported]")
_MOST_UNREAD = 64
_TEXTS = {
    "name": "product_name",
    "architecture": "product_architecture",
    "uuid": "uuid",
    "serial": "serial",
    "vbios": "vbios_version",
    "virtualization": "gpu_virtualization_mode/virtualization_mode",
    "performance_state": "performance_state",
    "recovery_action": "gpu_recovery_action",
}
# The same section under its names in DTD v10/v11 and since v12.
_REASONS = (("clocks_event_reasons", "clocks_event_reason_"), ("clocks_throttle_reasons", "clocks_throttle_reason_"))
_POWER = (
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/average_power_draw",
    "gpu_power_readings/power_draw",
    "power_readings/power_draw",
)
_LIMIT = ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit", "power_readings/power_limit")


def build(fields: Fields, processes: t.Sequence[Fields], complete: bool) -> Gpu:
    """Make a GPU of the texts of a <gpu> element by their path in it."""
    bits = _throttle(fields)
    get = fields.get
    texts = {name: nvidia_smi_values.plain(get(path)) for name, path in _TEXTS.items()}
    return Gpu(
        **texts,
        bus_id=(get("pci/pci_bus_id") or get("@id") or "").strip().upper(),
        minor=nvidia_smi_values.count(get("minor_number")),
        persistence=nvidia_smi_values.flag(get("persistence_mode")),
        mig=nvidia_smi_values.flag(get("mig_mode/current_mig")),
        reset_required=nvidia_smi_values.flag(get("gpu_reset_status/reset_required")),
        memory_total_mib=nvidia_smi_values.measured(get("fb_memory_usage/total"), "MiB", "MB"),
        memory_used_mib=nvidia_smi_values.measured(get("fb_memory_usage/used"), "MiB", "MB"),
        temperature_c=nvidia_smi_values.measured(get("temperature/gpu_temp"), "C"),
        memory_temperature_c=nvidia_smi_values.measured(get("temperature/memory_temp"), "C"),
        power_w=_first(fields, _POWER, "W"),
        power_limit_w=_first(fields, _LIMIT, "W"),
        throttle_mask=bits,
        throttle=nvidia_smi_values.throttle_names(bits or 0),
        clocks=_clocks(fields, "clocks"),
        max_clocks=_clocks(fields, "max_clocks"),
        application_clocks=_clocks(fields, "applications_clocks"),
        pcie=_pcie(fields),
        ecc=_ecc(fields),
        repairs=_repairs(fields),
        fabric=_fabric(fields),
        processes=[process for process in map(_process, processes) if process],
        error=nvidia_smi_values.silent(fields.values(), [fields[path] for path in _VITAL if path in fields]),
        unread=_unread(fields),
        complete=complete,
    )


def _unread(fields: Fields) -> dict[str, str]:
    """Return the errors in place of values; the status of the fabric is an error by nature."""
    errors = ((path, nvidia_smi_values.failed(text)) for path, text in fields.items() if path != "fabric/status")
    return dict(itertools.islice(((path, error) for path, error in errors if error), _MOST_UNREAD))


def _first(fields: Fields, paths: t.Sequence[str], unit: str) -> float | None:
    numbers = (nvidia_smi_values.measured(fields.get(path), unit) for path in paths)
    return next((number for number in numbers if number is not None), None)


def _clocks(fields: Fields, section: str) -> GpuClocks:
    graphics, sm, memory = (
        nvidia_smi_values.measured(fields.get(f"{section}/{name}_clock"), "MHz") for name in ("graphics", "sm", "mem")
    )
    return GpuClocks(graphics, sm, memory)


def _pcie(fields: Fields) -> Pcie:
    link = "pci/pci_gpu_link_info"
    return Pcie(
        generation=nvidia_smi_values.count(fields.get(f"{link}/pcie_gen/current_link_gen")),
        generation_max=nvidia_smi_values.count(fields.get(f"{link}/pcie_gen/max_link_gen")),
        width=nvidia_smi_values.measured(fields.get(f"{link}/link_widths/current_link_width"), "x"),
        width_max=nvidia_smi_values.measured(fields.get(f"{link}/link_widths/max_link_width"), "x"),
        replays=nvidia_smi_values.count(fields.get("pci/replay_counter")),
    )


def _ecc(fields: Fields) -> Ecc:
    return Ecc(
        enabled=nvidia_smi_values.flag(fields.get("ecc_mode/current_ecc")),
        volatile_corrected=_errors(fields, "volatile", "correctable", "single_bit"),
        volatile_uncorrected=_errors(fields, "volatile", "uncorrectable", "double_bit"),
        aggregate_corrected=_errors(fields, "aggregate", "correctable", "single_bit"),
        aggregate_uncorrected=_errors(fields, "aggregate", "uncorrectable", "double_bit"),
        sram_threshold_exceeded=nvidia_smi_values.flag(fields.get("ecc_errors/aggregate/sram_threshold_exceeded")),
        counts=_counts(fields),
    )


def _counts(fields: Fields) -> dict[str, int]:
    """Return the errors of SRAM and of DRAM; what a GPU does not count is left out."""
    counts: dict[str, int] = {}
    for period in ("volatile", "aggregate"):
        for kind, name in (("correctable", "corrected"), ("uncorrectable", "uncorrected")):
            base = f"ecc_errors/{period}"
            sram = [
                nvidia_smi_values.count(fields.get(f"{base}/sram_{kind}{part}")) for part in ("", "_parity", "_secded")
            ]
            known = [number for number in sram if number is not None]
            dram = nvidia_smi_values.count(fields.get(f"{base}/dram_{kind}"))
            counts.update({f"{period}_sram_{name}": sum(known)} if known else {})
            counts.update({} if dram is None else {f"{period}_dram_{name}": dram})
    return counts


def _errors(fields: Fields, period: str, kind: str, old: str) -> int | None:
    """Sum SRAM and DRAM; newer drivers count SRAM's uncorrectable ones by parity and SECDED, V100 has one total."""
    base = f"ecc_errors/{period}"
    sram = [f"{base}/sram_{kind}"]
    if f"{base}/sram_{kind}" not in fields:
        sram = [f"{base}/sram_{kind}_parity", f"{base}/sram_{kind}_secded"]
    counts = [
        nvidia_smi_values.count(fields.get(path)) for path in (*sram, f"{base}/dram_{kind}", f"{base}/{old}/total")
    ]
    known = [number for number in counts if number is not None]
    return sum(known) if known else None


def _repairs(fields: Fields) -> Repairs:
    """``remapped_rows`` is the text N/A before A100, and the page counts are N/A since."""
    rows, pages = "remapped_rows/remapped_row", "retired_pages"
    retired = [
        nvidia_smi_values.count(fields.get(f"{pages}/{kind}/retired_count"))
        for kind in ("multiple_single_bit_retirement", "double_bit_retirement")
    ]
    known = [number for number in retired if number is not None]
    return Repairs(
        remapped_correctable=nvidia_smi_values.count(fields.get(f"{rows}_corr")),
        remapped_uncorrectable=nvidia_smi_values.count(fields.get(f"{rows}_unc")),
        remap_pending=nvidia_smi_values.flag(fields.get(f"{rows}_pending")),
        remap_failed=nvidia_smi_values.flag(fields.get(f"{rows}_failure")),
        retired_pages=sum(known) if known else None,
        retirement_pending=nvidia_smi_values.flag(
            fields.get(f"{pages}/pending_retirement") or fields.get(f"{pages}/pending_blacklist")
        ),
    )


def _fabric(fields: Fields) -> Fabric:
    state, clique, cluster, health = (
        nvidia_smi_values.plain(fields.get(f"fabric/{name}"))
        for name in ("state", "cliqueId", "clusterUuid", "health/summary")
    )
    status = (fields.get("fabric/status") or "").strip()
    shown = {name: nvidia_smi_values.plain(fields.get(f"fabric/health/{name}")) for name in _FABRIC_SOUND}
    conditions = {name: text for name, text in shown.items() if text and text.lower() != _FABRIC_SOUND[name]}
    return Fabric(state, None if status in _NO_STATUS else status, clique, cluster, health, conditions)


def _throttle(fields: Fields) -> int | None:
    for section, prefix in _REASONS:
        named = {path.rpartition(prefix)[2]: text for path, text in fields.items() if path.startswith(f"{section}/")}
        flags = {name: nvidia_smi_values.flag(text) for name, text in named.items()}
        if any(active is not None for active in flags.values()):
            return nvidia_smi_values.throttle_mask(name for name, active in flags.items() if active)
    return None


def _process(fields: Fields) -> GpuProcess | None:
    pid = nvidia_smi_values.count(fields.get("pid"))
    if pid is None:
        return None
    memory = nvidia_smi_values.measured(fields.get("used_memory"), "MiB", "MB")
    return GpuProcess(
        pid, nvidia_smi_values.value(fields.get("type")), nvidia_smi_values.value(fields.get("process_name")), memory
    )


# One document of ``nvidia-smi -q -x``, read line by line so that of a broken one everything up to there is kept.


# Names of processes are printed as they are, whatever characters they hold.
_NAME = ("<process_name>", "</process_name>")
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")
_DEPTH = 32
_LONGEST = 4096


@dataclass(frozen=True)
class XmlRun:
    """One document. ``attached_gpus`` is what the driver counts: more than ``gpus`` when one does not answer."""

    dtd: str | None
    timestamp: str | None
    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    gpus: list[Gpu]
    messages: list[nvidia_smi_values.Message]
    complete: bool

    @property
    def cause(self) -> Cause | None:
        return self.messages[0] if self.messages else None

    @property
    def ok(self) -> bool:
        missing = self.attached_gpus is not None and self.attached_gpus > len(self.gpus)
        answered = bool(self.gpus) and all(gpu.bus_id and gpu.error is None for gpu in self.gpus)
        return self.complete and answered and not self.messages and not missing


def _well_formed(line: str) -> str:
    """Escape what nvidia-smi does not."""
    if not line.isprintable():
        line = _CONTROL.sub("", line)
    if "&" in line:
        line = _AMPERSAND.sub("&amp;", line)
    begin, end = line.find(_NAME[0]) + len(_NAME[0]), line.rfind(_NAME[1])
    if len(_NAME[0]) <= begin < end:
        line = line[:begin] + line[begin:end].replace("<", "&lt;") + line[end:]
    return line


class _TooDeepError(Exception):
    """No nvidia-smi nests like this."""


@dataclass
class Document:
    """Collects what expat reports about one document."""

    dtd: str | None
    fields: dict[str, str] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)
    complete: bool = False
    broken: bool = False

    def __post_init__(self) -> None:
        self._path: list[str] = []
        self._text: list[str] = []
        self._size = 0
        self._gpu: dict[str, str] = {}
        self._processes: list[dict[str, str]] = []
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        self._feed = parser.Parse

    def feed(self, line: str) -> None:
        if self.broken:
            return
        line = _well_formed(line)
        try:
            self._feed(f"{line}\n".encode("utf-8", "replace"), False)
        except (expat.ExpatError, _TooDeepError):
            self.broken = True

    def run(self, messages: list[nvidia_smi_values.Message]) -> XmlRun:
        """Return what was read, with the GPU in whose midst the document ends."""
        if self._path[1:2] == ["gpu"]:
            self.gpus.append(build(self._gpu, self._processes, False))
        return XmlRun(
            self.dtd,
            nvidia_smi_values.value(self.fields.get("timestamp")),
            nvidia_smi_values.plain(self.fields.get("driver_version")),
            nvidia_smi_values.plain(self.fields.get("cuda_version")),
            nvidia_smi_values.count(self.fields.get("attached_gpus")),
            self.gpus,
            messages,
            self.complete,
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _DEPTH:
            raise _TooDeepError
        self._path.append(name)
        self._text, self._size = [], 0
        if self._path[1:] == ["gpu"]:
            self._gpu, self._processes = {"@id": attributes.get("id", "")}, []
        elif name == "process_info":
            self._processes.append({})

    def _data(self, data: str) -> None:
        if self._size < _LONGEST:
            self._text.append(data)
            self._size += len(data)

    def _end(self, name: str) -> None:
        path, text = self._path[1:], "".join(self._text).strip()[:_LONGEST]
        self._path.pop()
        self._text, self._size = [], 0
        if path == ["gpu"]:
            self.gpus.append(build(self._gpu, self._processes, True))
        elif not path:
            self.complete = True
        elif path[0] != "gpu":
            self.fields.setdefault("/".join(path), text)
        elif path[1:3] == ["processes", "process_info"]:
            if len(path) == 4 and self._processes:
                self._processes[-1].setdefault(name, text)
        # Thousands of supported clocks say nothing about the state; MIG devices repeat the GPU's sections.
        elif path[1] not in ("supported_clocks", "mig_devices", "processes", "accounted_processes"):
            self._gpu.setdefault("/".join(path[1:]), text)


# ``nvidia-smi -q -x``: DTD v10 to v13, whatever stands before, between and after the documents.


_OPEN, _CLOSE = "<nvidia_smi_log", "</nvidia_smi_log>"
_TYPE = re.compile(r"nvsmi_device_(v\d{1,3})\.dtd")


class _Scanner:
    """Tells documents from the text around them."""

    def __init__(self) -> None:
        self.runs: list[XmlRun] = []
        self.messages: list[nvidia_smi_values.Message] = []
        self._document: Document | None = None
        self._dtd: str | None = None
        self._inside = False

    def see(self, line: str) -> None:
        """Read one line, which may begin or end a document and have text beside it."""
        begin = line.find(_OPEN)
        if begin >= 0:
            self._outside(line[:begin])
            self._begin()
            line = line[begin:]
        if self._document is None or not self._inside:
            self._outside(line)
            return
        complaint = None if line.startswith("<") else nvidia_smi_values.complaint(line)
        if complaint:
            self.messages.append(complaint)
            return
        head, close, rest = line.partition(_CLOSE)
        self._document.feed(head + close)
        if close:
            self._inside = False
            self._outside(rest)

    def end(self) -> Log[XmlRun]:
        self._flush()
        return log_of(self.runs, self.messages)

    def _begin(self) -> None:
        """What was complained about before the first document is about that document."""
        dtd = self._dtd
        if self._document:
            self._flush()
        self._document, self._dtd, self._inside = Document(dtd), None, True

    def _outside(self, line: str) -> None:
        kind = _TYPE.search(line) if "nvsmi_device" in line else None
        self._dtd = kind.group(1) if kind else self._dtd
        complaint = nvidia_smi_values.complaint(line)
        if complaint:
            self.messages.append(complaint)

    def _flush(self) -> None:
        if self._document:
            self.runs.append(self._document.run(self.messages))
            self._document, self.messages = None, []


def parse_xml(source: words.Source) -> Log[XmlRun]:
    """Read one or several documents; never raises, whatever the text."""
    scanner = _Scanner()
    for line in words.lines(source):
        scanner.see(line)
    return scanner.end()
