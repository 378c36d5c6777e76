# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a test program, and start it on one node or on many: its options, its command line, its CPUs. Private."""

from __future__ import annotations

import glob
import math
import os
import posixpath
import re
import shutil
import sys
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome

# Command lines that start a program on one or many nodes. Pure.


IMMEDIATE = 60  # seconds that srun waits for nodes; a job that was faster is not waited for
# What srun prints when they are over; such a node is not broken, it is left for another time.
_BUSY = re.compile(r"^.*Unable to allocate resources: .*(?:nodes are busy|[Ii]mmediate execution impossible).*$", re.M)
# mpirun hands these on by itself and refuses or warns when -x names them.
_FORWARDED = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")


class LaunchError(ValueError):
    """The options of a launch make no sense together; the text is fit for the user."""


class Launch(t.NamedTuple):
    """One way to start a program; ``options`` are long options of the launcher that replace its defaults here."""

    kind: str = "local"
    path: str = ""
    nodes: int = 1
    ranks_per_node: int = 1
    hosts: t.Sequence[str] = ()
    hostfile: str | None = None
    options: t.Mapping[str, t.Any] = {}
    container_image: str | None = None
    container_mounts: t.Sequence[str] = ()
    environment: t.Mapping[str, str] = {}
    cpu_masks: t.Sequence[str] = ()
    job_name: str = "hpcai"
    timeout: float = 600
    root: bool = False
    in_job: bool = False

    @property
    def ranks(self) -> int:
        """Return how many processes start."""
        return self.nodes * self.ranks_per_node


class Command(t.NamedTuple):
    """What to run, and the variables to set for it."""

    argv: list[str]
    environment: dict[str, str]


def flags(options: t.Mapping[str, t.Any], joined: bool = True) -> list[str]:
    """Turn long options into arguments: underscores become dashes, true is a bare flag, false and none are left out.

    srun reads ``--name=value`` (``joined``), mpirun only ``--name value``. A list repeats the option.
    """
    words: list[str] = []
    for key, value in options.items():
        name = f"--{key.replace('_', '-')}"
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            if entry is None or entry is False:
                continue
            words += [name] if entry is True else [f"{name}={entry}"] if joined else [name, str(entry)]
    return words


def command(launch: Launch, argv: t.Sequence[str]) -> Command:
    """Return the whole command line for a program and its arguments."""
    front = {"mpirun": _mpirun, "srun": _srun}.get(launch.kind)
    return Command([*(front(launch) if front else []), *argv], dict(launch.environment))


def run(launch: Launch, argv: t.Sequence[str]) -> Outcome:
    """Run a program as the launch says, for as long as it says."""
    whole = command(launch, argv)
    return _process.run(whole.argv, launch.timeout, None, whole.environment)


def busy(text: str) -> str:
    """Return the line with which srun gave up because jobs have the nodes, empty when there is none."""
    match = _BUSY.search(text)
    return match.group().strip() if match else ""


def per_numa(masks: t.Sequence[str]) -> int:
    """Return N of ``ppr:N:numa``, which gives ranks to NUMA nodes in ascending order, as many to each."""
    groups: list[int] = []
    counts: list[int] = []
    for mask in (int(text, 16) for text in masks):
        if groups and mask == groups[-1]:
            counts[-1] += 1
            continue
        groups.append(mask)
        counts.append(1)
    lowest = [mask & -mask for mask in groups]
    if len(set(counts)) != 1 or lowest != sorted(set(lowest)):
        raise LaunchError(
            f"mpirun fills NUMA nodes in ascending order with as many ranks each, cpu_masks {', '.join(masks)} do not;"
            " give what the filter cpu_masks returns as rank_masks and visible_devices, or launcher_options with map_by"
        )
    return counts[0]


def _mpirun(launch: Launch) -> list[str]:
    where: dict[str, t.Any] = {"hostfile": launch.hostfile}
    # A job knows its own nodes; elsewhere there would be no more slots than cores.
    hosts = launch.hosts or ([] if launch.hostfile or launch.in_job else ["localhost"])
    if hosts:
        where["host"] = ",".join(f"{host}:{launch.ranks_per_node}" for host in hosts)
    mapping: dict[str, t.Any] = {"map_by": f"ppr:{launch.ranks_per_node}:node", "bind_to": "none"}
    if launch.cpu_masks and "map_by" not in launch.options:
        mapping = {"map_by": f"ppr:{per_numa(launch.cpu_masks)}:numa", "bind_to": "numa"}
    root = {"allow_run_as_root": launch.root}
    options = flags({**root, **mapping, **launch.options, **where, "np": launch.ranks}, joined=False)
    names = [name for name in launch.environment if not name.startswith(_FORWARDED)]
    return [launch.path, *options, *(word for name in names for word in ("-x", name))]


def _srun(launch: Launch) -> list[str]:
    defaults = {
        "job_name": launch.job_name,
        "kill_on_bad_exit": 1,
        "exclusive": not launch.in_job,  # of a step it means no CPUs but one per rank, whatever the masks say
        "immediate": None if launch.in_job else IMMEDIATE,
        "chdir": "/",  # the caller's directory need not exist on the nodes
        "time": math.ceil(launch.timeout / 60) + 1,
        "export": "ALL",
    }
    if launch.cpu_masks:
        defaults["cpu_bind"] = "mask_cpu:" + ",".join(f"0x{int(mask, 16):x}" for mask in launch.cpu_masks)
    if launch.container_image:
        # Without it a variable that the image sets as well keeps the value of the image.
        defaults["container_env"] = ",".join(launch.environment) or None
    own = {
        "nodes": launch.nodes,
        "ntasks_per_node": launch.ranks_per_node,
        "ntasks": launch.ranks,
        "nodelist": ",".join(launch.hosts) or None,
        "container_image": launch.container_image,
        "container_mounts": ",".join(mounts(launch)) or None,
    }
    return [launch.path, *flags({**defaults, **launch.options, **own})]


def mounts(launch: Launch) -> list[str]:
    """Return the mounts of a container; one without the topology file of NCCL would fail or be slow."""
    given = list(launch.container_mounts)
    topology = launch.environment.get("NCCL_TOPO_FILE")
    if not launch.container_image or not topology:
        return given
    covered = {(mount.split(":")[1:2] or [mount])[0].rstrip("/") for mount in given}
    folder = topology
    while folder not in covered and folder not in ("", "/"):
        folder = posixpath.dirname(folder)
    return given if folder in covered else [*given, f"{topology}:{topology}:ro"]


# Bind a program to the CPUs and the memory of one NUMA node.


# Without numactl and taskset the interpreter binds itself and becomes the program.
_BIND_ITSELF = (
    "import os, sys\n"
    "cpus = set()\n"
    "for part in sys.argv[1].split(','):\n"
    "    first, dash, last = part.partition('-')\n"
    "    cpus.update(range(int(first), int(last or first) + 1))\n"
    "os.sched_setaffinity(0, cpus)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class BindMethod(t.NamedTuple):
    """How this machine binds: numactl, taskset or own; only numactl binds memory, too."""

    name: str
    path: str


def _numactl_works(path: str) -> bool:
    """Return whether numactl may set a policy, which containers often forbid."""
    return _process.run([path, "--localalloc", sys.executable, "-c", ""], 10).rc == 0


def bind_method(
    find: t.Callable[[str], str | None] = shutil.which, works: t.Callable[[str], bool] = _numactl_works
) -> BindMethod:
    """Return the best method that works here: numactl, taskset, or the interpreter's own call."""
    numactl = find("numactl")
    if numactl and works(numactl):
        return BindMethod("numactl", numactl)
    taskset = find("taskset")
    return BindMethod("taskset", taskset) if taskset else BindMethod("own", sys.executable)


def bind(argv: t.Sequence[str], method: BindMethod, cpus: str, node: int | None = None) -> list[str]:
    """Return the command line bound to a CPU list as Linux writes it ("0-23,48") and to the memory of a node.

    CPUs or memory that are unknown (an empty list, no node or -1) are not bound.
    """
    known = node is not None and node >= 0
    if method.name == "numactl":
        binding = [f"--physcpubind={cpus}"] if cpus else [f"--cpunodebind={node}"] if known else []
        binding += [f"--membind={node}"] if known else []
        return [method.path, *binding, *argv] if binding else list(argv)
    if not cpus:
        return list(argv)
    if method.name == "taskset":
        return [method.path, "--cpu-list", cpus, *argv]
    return [method.path, "-c", _BIND_ITSELF, cpus, *argv]


# How a program is started on one or many nodes: the options that several modules share.


# HCOLL breaks or slows collectives of ranks that only use MPI to find each other.
ALWAYS = {"OMPI_MCA_coll_hcoll_enable": "0"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MASK = re.compile(r"(0x)?0*[1-9a-f][0-9a-f]*")
_OWN = {"np", "n", "host", "hostfile", "x", "nodes", "ntasks", "ntasks_per_node", "nodelist"}
_OWN |= {"container_image", "container_mounts"}
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

SPEC: dict[str, dict[str, t.Any]] = {
    "launcher": {"type": "str", "default": "local", "choices": ["local", "mpirun", "srun"]},
    "launcher_path": {"type": "path"},
    "launcher_options": {"type": "dict", "default": {}},
    "nodes": {"type": "int"},
    "ranks_per_node": {"type": "int", "default": 1},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "hostfile": {"type": "path"},
    "container_image": {"type": "str"},
    "container_mounts": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "cpu_masks": {"type": "list", "elements": "str", "default": []},
    "visible_devices": {"type": "list", "elements": "int", "default": []},
}


def read(params: t.Mapping[str, t.Any], **more: t.Any) -> Launch:
    """Make a launch of a module's options; ``more`` are the other fields: path, job_name, timeout, root, in_job."""
    kind, hosts = params["launcher"], params["hosts"]
    variables = environment(params["environment"])
    if params["visible_devices"] or params["cpu_masks"]:
        # CUDA would put the fastest first, nvidia-smi and the topology do not.
        variables.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if params["visible_devices"]:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in params["visible_devices"])
    launch = Launch(
        kind=kind,
        nodes=len(hosts) or 1 if params["nodes"] is None else params["nodes"],
        ranks_per_node=params["ranks_per_node"],
        hosts=hosts,
        hostfile=params["hostfile"],
        options=_named(params["launcher_options"]),
        container_image=params["container_image"],
        container_mounts=params["container_mounts"],
        environment={**({} if kind == "local" else ALWAYS), **variables},
        cpu_masks=params["cpu_masks"],
        **{"path": params["launcher_path"] or kind, **more},
    )
    _validate(launch)
    return launch


def here(params: t.Mapping[str, t.Any], **more: t.Any) -> Launch:
    """Make a launch as this machine can start it; raises `NotFound` where it has no such launcher."""
    launch = read(params, root=os.geteuid() == 0, in_job="SLURM_JOB_ID" in os.environ, **more)
    path, variables = launcher(launch.kind, params["launcher_path"])
    return launch._replace(path=path, environment={**variables, **launch.environment})


def with_mpi(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options of a program whose ranks must find each other: without PMIx each of them would run alone."""
    options = params["launcher_options"]
    if params["launcher"] != "srun" or {"mpi", "--mpi"} & set(options):
        return dict(params)
    return {**params, "launcher_options": {"mpi": "pmix", **options}}


def environment(variables: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return variables as text; what YAML made of an unquoted yes or nothing is refused instead of guessed."""
    for name, value in variables.items():
        if not _NAME.fullmatch(str(name)):
            raise LaunchError(f"{name!r} is no name of an environment variable")
        if value is None or isinstance(value, (bool, dict, list)) or "\0" in str(value):
            raise LaunchError(f"environment variable {name} is {value!r}; quote the text that is meant")
    return {name: str(value) for name, value in variables.items()}


def _named(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Spell options one way, so that one given with dashes replaces a default."""
    return {str(key).lstrip("-").replace("-", "_"): value for key, value in options.items()}


def _validate(launch: Launch) -> None:
    if launch.nodes < 1 or launch.ranks_per_node < 1:
        raise LaunchError(f"nodes {launch.nodes} and ranks_per_node {launch.ranks_per_node} must be at least 1")
    bad = [name for name in launch.hosts if not _HOST.fullmatch(name)]
    if bad or len(set(launch.hosts)) != len(launch.hosts):
        raise LaunchError(f"hosts must be plain host names, each once, not {', '.join(bad or launch.hosts)}")
    if launch.hosts and len(launch.hosts) != launch.nodes:
        raise LaunchError(f"nodes is {launch.nodes}, but hosts names {len(launch.hosts)}")
    bad = [mask for mask in launch.cpu_masks if not _MASK.fullmatch(mask.lower())]
    if bad:
        raise LaunchError(f"cpu_masks must be hexadecimal and not zero, not {', '.join(bad)}")
    if launch.cpu_masks and len(launch.cpu_masks) != launch.ranks_per_node:
        raise LaunchError(f"{launch.ranks_per_node} ranks per node need as many cpu_masks, not {len(launch.cpu_masks)}")
    taken = sorted(_OWN & set(launch.options))
    if taken:
        raise LaunchError(f"launcher_options {', '.join(taken)}: the module has options of its own for that")
    _fits(launch)


def _fits(launch: Launch) -> None:
    """Refuse options that another launcher has, rather than drop them in silence."""
    by_kind: dict[str, dict[str, t.Any]] = {
        "local": {"hosts": launch.hosts, "hostfile": launch.hostfile, "cpu_masks": launch.cpu_masks},
        "mpirun": {"container_image": launch.container_image},
        "srun": {"hostfile": launch.hostfile},
    }
    wrong = by_kind[launch.kind]
    if launch.kind == "local":
        wrong.update(container_image=launch.container_image, launcher_options=launch.options)
        wrong["more than one rank"] = launch.ranks > 1
    if not launch.container_image:
        wrong["container_mounts without container_image"] = launch.container_mounts
    names = [name for name, value in wrong.items() if value]
    if names:
        raise LaunchError(f"launcher {launch.kind} does not take {', '.join(names)}")
    if launch.kind == "mpirun":
        if launch.hosts and launch.hostfile:
            raise LaunchError("give mpirun either hosts or hostfile")
        if launch.nodes > 1 and not (launch.hosts or launch.hostfile or launch.in_job):
            raise LaunchError(f"mpirun needs hosts or hostfile for {launch.nodes} nodes")


# Where a program is: the given path, PATH, the usual install places.


ROLE = "gpu_test_tools"
# HPC-X is unpacked under its full version, is not on PATH without its module and looks for itself where it was built.
MPI_PLACES = ("/opt/hpcx*/ompi/bin", "/opt/openmpi*/bin", "/usr/mpi/gcc/openmpi-*/bin", "/usr/lib64/openmpi/bin")


class NotFound(ValueError):
    """The program is nowhere; the text says where it was looked for.

    ``missing`` has its names, and is empty where a given path is wrong: that is a mistake, and nothing to install.
    """

    def __init__(self, text: str, missing: t.Sequence[str] = ()) -> None:
        super().__init__(text)
        self.missing = list(missing)


def executable(path: str) -> bool:
    """Return whether a path is a file that may be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - injected as one function of a string


def find(
    programs: str | t.Sequence[str],
    given: str | None = None,
    places: t.Sequence[str] = (),
    *,
    role: str | None = ROLE,
    which: t.Callable[[str], str | None] = shutil.which,
    exists: t.Callable[[str], bool] = executable,
    expand: t.Callable[[str], t.Sequence[str]] = glob.glob,
    path: str | None = None,
) -> str:
    """Return the path of the first name that is found; ``places`` are directories, with ``*`` for versions.

    A given path is a file or the directory that holds the program. The first name is preferred wherever it is, of
    several versions the highest.
    """
    names = [programs] if isinstance(programs, str) else list(programs)
    if given:
        return _given(names, given, exists, role)
    for name in names:
        on_path = which(name)
        if on_path:
            return on_path
        folders = (folder for pattern in places for folder in sorted(expand(pattern), key=_version, reverse=True))
        held = next((folder for folder in folders if exists(f"{folder}/{name}")), None)
        if held is not None:
            return f"{held}/{name}"
    searched = os.environ.get("PATH", os.defpath) if path is None else path
    looked = ", ".join([f"PATH ({searched})", *places])
    raise NotFound(f"{' or '.join(names)} was not found in {looked}{_advice(role)}", names)


def launcher(kind: str, given: str | None = None) -> tuple[str, dict[str, str]]:
    """Return the path of mpirun or srun, and the variables without which it cannot run; none of it for local."""
    if kind == "local":
        return "", {}
    program = find(kind, given, MPI_PLACES if kind == "mpirun" else (), role=None)
    prefix = re.match(r"(.*/hpcx[^/]*/ompi)/bin/", program)
    return program, {"OPAL_PREFIX": prefix.group(1)} if prefix else {}


def _given(names: t.Sequence[str], given: str, exists: t.Callable[[str], bool], role: str | None) -> str:
    """A wrong path is an error: another program of the same name would be measured in its stead."""
    tried = [given, *(f"{given.rstrip('/')}/{name}" for name in names)]
    for path in tried:
        if exists(path):
            return path
    raise NotFound(f"no program at the given path: {', '.join(tried)} cannot be run{_advice(role)}")


def _advice(role: str | None) -> str:
    return f"; the role {role} builds it" if role else ""


def _version(text: str) -> list[tuple[int, int | str]]:
    """Sort 2.18 after 2.9."""
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]
