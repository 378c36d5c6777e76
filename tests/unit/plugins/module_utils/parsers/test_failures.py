# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CLASSES
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import failures as table
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause, find

FAILURES = [
    # CUDA
    ("node-1: Test CUDA failure common.cu:1046 'out of memory'", "config"),
    (
        "node-1: Test CUDA failure util.cu:674 'CUDA driver version is insufficient for CUDA runtime version'",
        "software",
    ),
    ("node-1: Test CUDA failure common.cu:5 'uncorrectable ECC error encountered'", "hardware"),
    ("node-1: Test CUDA failure common.cu:5 'an illegal memory access was encountered'", "software"),
    ("node-1: Test CUDA failure common.cu:5 'all CUDA-capable devices are busy or unavailable'", "config"),
    ("Cuda failure common.cu:77 'unknown error'", "software"),
    ('CUDA error at ../src/x.cu:12 code=214(cudaErrorECCUncorrectable) "cudaMemcpy(..)"', "hardware"),
    ("cudaGetDeviceProperties returned 999", "software"),
    (
        "[CUDA_ERROR_ILLEGAL_ADDRESS] an illegal memory access was encountered in expression cuCtxSynchronize()",
        "software",
    ),
    ("NVRM: Xid (PCI:0001:00:00): 79, pid=1, GPU has fallen off the bus.", "hardware"),
    ("Unable to determine the device handle for GPU4: 000B:00:00.0: GPU is lost.  Reboot the system", "hardware"),
    ("Failed to initialize NVML: Driver/library version mismatch", "software"),
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "software"),
    # NCCL
    (
        "node-1: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '",
        "fabric",
    ),
    ("node-1: Test NCCL failure common.cu:9 'unhandled cuda error / Cuda failure 2 'out of memory''", "config"),
    (
        "node-1: Test NCCL failure common.cu:9 'internal error - please report this issue to the NCCL developers'",
        "software",
    ),
    ("node-1: Test NCCL failure common.cu:9 'invalid usage (run with NCCL_DEBUG=WARN for details)'", "config"),
    ("NCCL failure common.cu:77 'unhandled system error'", "fabric"),
    (
        "node-1:7:9 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer x with status=12 opcode=0",
        "fabric",
    ),
    ("node-1:7:9 [3] net_ib.cc:94 NCCL WARN NET/IB : Got async event : CQ error", "fabric"),
    ("n:7:9 [3] net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : local catastrophic error", "fabric"),
    (
        "n:7:9 [3] net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : invalid request local work queue error",
        "fabric",
    ),
    ("n:7:9 [3] net_ib.cc:140 NCCL WARN NET/IB : mlx5_2:1 async fatal event: local catastrophic error", "fabric"),
    (
        "n:7:9 [3] common.cc:127 NCCL WARN NET/IB : mlx5_2:1 async fatal event on CQ (0x5) handle=1 cqe=8: CQ error",
        "fabric",
    ),
    ("n:7:9 [3] net_ib.cc:111 NCCL WARN communicator encountered a fatal error (detected in ncclIbTest)", "fabric"),
    ("n:7:9 [3] x.cc:64 NCCL WARN NET/IB: The error is fatal (No functional devices left). Cannot continue.", "fabric"),
    (
        "node-1:7:9 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 100000",
        "config",
    ),
    (
        "node-1:7:9 [0] misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x",
        "config",
    ),
    ("node-1: Test timeout (60s) common.cu:523", "infra"),
    # loader and shell
    ("./x: error while loading shared libraries: libnccl.so.2: cannot open shared object file", "software"),
    ("./x: symbol lookup error: ./x: undefined symbol: ncclCommSplit", "software"),
    ("./x: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by ./x)", "software"),
    ("bash: ./x: cannot execute binary file: Exec format error", "software"),
    ("slurmstepd: error: execve(): /opt/x: No such file or directory", "infra"),
    ("slurmstepd: error: execve(): /opt/x: Permission denied", "infra"),
    ("./x: invalid option -- 'q'", "config"),
    ("x: unrecognized option '--foo'", "config"),
    ("x: option requires an argument -- 'b'", "config"),
    # launchers
    ("mpirun was unable to find the specified executable file, and therefore", "infra"),
    ("mpirun was unable to launch the specified application as it could not access", "infra"),
    ("There are not enough slots available in the system to satisfy the 64", "config"),
    ("mpirun has detected an attempt to run as root.", "config"),
    ("ORTE was unable to reliably start one or more daemons.", "infra"),
    ("ORTE has lost communication with a remote daemon.", "infra"),
    ("ssh: connect to host node-2 port 22: Connection refused", "infra"),
    ("ssh: Could not resolve hostname node-2: Name or service not known", "infra"),
    ("trainer@node-2: Permission denied (publickey,password).", "infra"),
    ("Host key verification failed.", "infra"),
    ("srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification", "config"),
    ("srun: error: Unable to allocate resources: Requested node configuration is not available", "config"),
    ("srun: error: Unable to create step for job 7: More processors requested than permitted", "config"),
    ("srun: error: Unable to allocate resources: Invalid partition name specified", "config"),
    ("srun: error: Unable to allocate resources: Socket timed out on send/recv operation", "infra"),
    ("srun: error: Task launch for StepId=7.0 failed on node gpu-2: Communication connection failure", "infra"),
    ("slurmstepd: error: pyxis: failed to import docker image", "config"),
    ("[ERROR] enroot-import: [ERROR] Could not process JSON input", "config"),
    ("slurmstepd: error: *** STEP 7.0 ON gpu-1 CANCELLED AT 2026-03-14T09:26:53 DUE TO TIME LIMIT ***", "infra"),
    ("slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-03-14T09:26:53 DUE TO NODE FAILURE ***", "hardware"),
    ("slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-03-14T09:26:53 DUE TO PREEMPTION ***", "infra"),
    ("/opt/nccl-tests/all_reduce_perf did not end within 60 s", "infra"),
    # the kernel's and the library's last words
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "config",
    ),
    ("Out of memory: Killed process 4711 (all_reduce_perf) total-vm:1kB", "config"),
    ("srun: error: gpu-1: task 3: Out Of Memory", "config"),
    ("srun: error: gpu-1: tasks 0-3: Out Of Memory", "config"),
    ("ibv_create_cq failed: Cannot allocate memory", "config"),
    ("write: No space left on device", "config"),
    ("socket: Too many open files", "config"),
    ("[node-1:7] Signal: Bus error (7)", "config"),
    ("[node-1:7] Signal: Segmentation fault (11)", "software"),
    ("Illegal instruction (core dumped)", "software"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "software"),
    ("*** stack smashing detected ***: terminated", "software"),
    ("double free or corruption (!prev)", "software"),
    ("Floating point exception (core dumped)", "software"),
    # fabric
    ("Abort(1) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init_thread: Other MPI error", "fabric"),
    ("[1:2] ib_mlx5_log.c:177 Transport retry count exceeded on mlx5_ib0:1/IB (synd 0x15 vend 0x81)", "fabric"),
    ("The InfiniBand retry count between two MPI processes has been exceeded: RETRY EXCEEDED ERROR", "fabric"),
]
CONSEQUENCES = [
    ("bash: line 1: all_reduce_perf: command not found", "infra"),
    ("sh: 1: all_reduce_perf: not found", "infra"),
    ("env: 'all_reduce_perf': No such file or directory", "infra"),
    ("n: Test NCCL failure common.cu:9 'remote process exited or there was a network error / '", "fabric"),
    (" .. node-1 pid 27273: Test failure common.cu:1454", "software"),
    (" .. node-1: Test failure common.cu:404", "software"),
    ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "software"),
    ("srun: error: gpu-1: task 3: Exited with exit code 3", "software"),
    ("mpirun detected that one or more processes exited with non-zero status, thus causing", "software"),
    ("mpirun noticed that process rank 1 with PID 0 on node gpu001 exited on signal 9 (Killed).", "software"),
    ("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "software"),
    ("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)", "software"),
    ("srun: error: gpu-1: tasks 0,2-3: Killed", "software"),
    ("srun: error: gpu-1: task 3: Terminated", "software"),
    ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "software"),
    ("slurmstepd: error: *** STEP 7.0 ON gpu-1 CANCELLED AT 2026-03-14T09:26:53 ***", "software"),
    ("[node-1:7] *** Process received signal ***", "software"),
    ("Aborted (core dumped)", "software"),
    ("Abort(15) on node 3 (rank 3 in comm 0): application called MPI_Abort", "software"),
    ("Killed", "software"),
]
NOISE = [
    "",
    "node-1:7:9 [0] NCCL INFO Call to connect returned Connection refused, retrying",
    "node-1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_ib0:1/IB [RO]; OOB eth0:10.0.0.4<0>",
    "node-1:7:9 [0] NCCL INFO NCCL_DEBUG set by environment, Test CUDA failure",
    "NCCL version 2.21.5+cuda12.4",
    "# Out of bounds values : 0 OK",
    "   1048576        262144     float     sum      -1    30.81   34.03   59.56       0",
    "Warning: Permanently added 'node-2' (ED25519) to the list of known hosts.",
    "Device 0: Tesla with error correction, no errors found",
    "srun: job 7 queued and waiting for resources",
    "gpu-1: task 3: Exited with exit code 0",
    "rank=3 #wrong=12",
    "The operation completed successfully",
]


@pytest.mark.parametrize("line, kind", [*FAILURES, *CONSEQUENCES])
def test_find(line: str, kind: str) -> None:
    assert find(line) == Cause(line.strip(), kind)


@pytest.mark.parametrize("line", [line for line in NOISE if "NCCL INFO" not in line])
def test_noise_is_no_failure(line: str) -> None:
    assert find(line) is None


@pytest.mark.parametrize("line, kind", FAILURES)
def test_a_failure_is_the_cause_whatever_stands_around_it(line: str, kind: str) -> None:
    first = FirstCause()
    others = [other for other, dummy in CONSEQUENCES]
    for said in (*NOISE, "n:1:2 [0] x.cc:1 NCCL WARN something", *others, line, *(other for other, dummy in FAILURES)):
        first.see(said)
    assert first.cause == Cause(line, kind)


@pytest.mark.parametrize("line, kind", CONSEQUENCES)
def test_a_consequence_counts_if_there_is_nothing_better(line: str, kind: str) -> None:
    first = FirstCause()
    for said in (*NOISE, line, *(other for other, dummy in CONSEQUENCES)):
        first.see(said)
    assert first.cause == Cause(line.strip(), kind)


def test_a_warning_explains_a_consequence_and_is_none() -> None:
    first = FirstCause()
    warning = "n:1:2 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n2<4>"
    first.see(warning)
    first.see("n:1:2 [0] x.cc:1 NCCL WARN another")
    assert first.cause is None
    first.see("srun: error: gpu-1: task 3: Exited with exit code 3")
    assert first.cause == Cause(warning, "fabric")


def test_what_a_warning_after_the_consequence_says_does_not_count() -> None:
    first = FirstCause()
    first.see("Killed")
    first.see("n:1:2 [0] x.cc:1 NCCL WARN Timeout waiting for RAS")
    assert first.cause == Cause("Killed", "software")


def test_noise_alone_is_no_cause() -> None:
    first = FirstCause()
    for line in NOISE:
        first.see(line)
    assert first.cause is None


def test_a_warning_about_cuda_is_none_yet() -> None:
    first = FirstCause()
    first.see("n:1:2 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 801 'operation not supported'")
    assert (first.cause, first.failure) == (None, None)
    first.see("Killed")
    assert first.cause == Cause(
        "n:1:2 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 801 'operation not supported'", "software"
    )
    assert first.failure is None


def test_own_patterns_come_first() -> None:
    first = FirstCause([(r"^USAGE: ", "config"), (r"free of (\w+)", "hardware")])
    first.see("USAGE: x")
    assert first.cause == Cause("USAGE: x", "config")


def test_a_failure_found_by_other_means() -> None:
    wrong, better, late = Cause("12 wrong", "hardware"), Cause("3 FAILED", "hardware"), Cause("late", "infra")
    first = FirstCause()
    first.see("Killed")
    first.add(wrong)
    first.add(late)
    assert first.cause == wrong
    first.add(better, instead_of=wrong)
    first.add(late, instead_of=wrong)
    assert first.cause == better


def test_a_long_line_is_looked_at_for_a_bounded_time() -> None:
    assert find("x" * 10_000 + "Segmentation fault") is None
    found = find("Segmentation fault" + "x" * 10_000)
    assert found is not None
    assert len(found.text) == 400


RULES = [*table.FAILURES, *table.CONSEQUENCES, *table.HINTS]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.literal)
def test_no_rule_is_passed_over(rule: table.FailureRule) -> None:
    """The search that comes before all rules must let every line pass that a rule could know."""
    assert table.SUSPECT.search(rule.literal)
    assert rule.kind in (*CLASSES, "?")


@pytest.mark.parametrize("rule", [*table.FAILURES, *table.CONSEQUENCES], ids=lambda rule: rule.literal)
def test_every_rule_is_needed(rule: table.FailureRule) -> None:
    lines = [line for line, dummy in (*FAILURES, *CONSEQUENCES)]
    assert any(rule.literal in line and (not rule.pattern or rule.pattern.search(line)) for line in lines)


# Of NCCL 2.8, 2.22, 2.23, 2.28 and 2.30.
HARMLESS = [
    "n:7:9 [3] transport/net_ib.cc:74 NCCL WARN NET/IB : Got async event : GID table change",
    "n:7:9 [3] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : SM change",
    "n:7:9 [3] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : LID change",
    "n:7:9 [3] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : client reregistration",
    "n:7:9 [3] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : port active",
    "n:7:9 [3] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : SRQ catastrophic error",
    "n:7:9 [3] transport/net_ib.cc:171 NCCL WARN NET/IB : mlx5_0:1 Got async error event: P_Key change",
    "n:7:9 [3] transport/net_ib.cc:157 NCCL WARN NET/IB : mlx5_0:1 async fatal event on SRQ, unused for now (0x5): x",
    "n:7:9 [3] transport/net_ib.cc:176 NCCL WARN NET/IB : mlx5_0:1 unknown event type (18)",
    "n:7:9 [3] net_ib/common.cc:179 NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: last WQE reached(16)",
    "n:7:9 [3] net_ib/common.cc:153 NCCL WARN NET/IB : mlx5_0:1 GID table changed",
]
DOWN = [
    "n:7:9 [3] transport/net_ib.cc:74 NCCL WARN NET/IB : Got async event : port error",
    "n:7:9 [3] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
    "n:7:9 [3] transport/net_ib.cc:171 NCCL WARN NET/IB : mlx5_0:1 Got async error event: port error",
    "n:7:9 [3] net_ib/common.cc:179 NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_an_event_is_a_note_and_explains_nothing(line: str) -> None:
    first = FirstCause()
    first.see(line)
    assert (find(line), first.cause, first.failure, first.port_error, first.notes) == (None, None, None, None, [line])
    first.see("Killed")
    assert first.cause == Cause("Killed", "software")


@pytest.mark.parametrize("line", DOWN)
@pytest.mark.parametrize(
    "failure, explained",
    [
        ("n:7:9 [3] x.cc:5 NCCL WARN NET/IB: Got completion from peer x with status=12 opcode=0", True),
        ("n: Test NCCL failure common.cu:9 'unhandled system error'", True),
        ("n: Test timeout (60s) common.cu:523", True),
        ("slurmstepd: error: *** STEP 7.0 ON gpu-1 CANCELLED AT 2026-03-14T09:26:53 DUE TO TIME LIMIT ***", True),
        ("srun: error: gpu-1: task 3: Exited with exit code 3", True),
        ("n: Test CUDA failure common.cu:5 'out of memory'", False),
        ("NVRM: Xid (PCI:0001:00:00): 79, pid=1, GPU has fallen off the bus.", False),
        ("slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-03-14T09:26:53 DUE TO PREEMPTION ***", False),
    ],
)
def test_a_port_that_went_down_explains_what_can_follow_from_it(line: str, failure: str, explained: bool) -> None:
    first = FirstCause()
    first.see(line)
    assert (first.cause, first.failure, first.port_error) == (None, None, Cause(line, "fabric"))
    first.see(failure)
    assert first.cause is not None
    assert (first.cause.text, first.notes) == (line if explained else failure, [line])


def test_a_port_that_went_down_after_the_failure_is_not_its_cause() -> None:
    for failure in ("n: Test NCCL failure common.cu:9 'unhandled system error'", "Killed"):
        first = FirstCause()
        first.see(failure)
        first.see(DOWN[0])
        assert first.cause is not None
        assert (first.cause.text, first.port_error) == (failure, None)
