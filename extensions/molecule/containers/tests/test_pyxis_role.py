# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pyxis comes, does not fit, and goes; jobs run meanwhile."""

from __future__ import annotations

import json
import struct
import subprocess
import typing as t

from conftest import MEMORY, SQUASHED, STATE, Lab, changed, done, eventually, finished

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._elf import Library

PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"
DROP_IN = "/etc/slurm/plugstack.conf.d/pyxis.conf"
IN_CONTAINER = "test -e /usr/sbin/slurmd || echo in a container"


def role(lab: Lab, *args: str, **variables: t.Any) -> subprocess.Popen[str]:
    """Start the role pyxis with other inputs than the scenario's."""
    play: dict[str, t.Any] = {"hosts": "slurm_login:slurm_compute", "become": True, "gather_facts": True}
    play.update({"gather_subset": ["!all", "!min", "platform"], "roles": ["hpcai.gpu_cluster.pyxis"]})
    return lab.role_play([play], *args, **{"pyxis_build_host": "ctl", **variables})


def started(lab: Lab, node: str) -> str:
    return lab.root("systemctl show slurmd --property=ExecMainStartTimestampMonotonic,ExecMainPID", node)


def test_two_runs_at_once_are_one_build(healthy: Lab) -> None:
    healthy.root("rm -rf /var/cache/hpcai/packages/nvslurm*")
    for run in [role(healthy), role(healthy)]:
        done(run)
    kept = healthy.root("ls /var/cache/hpcai/packages | grep nvslurm").split()
    assert [name.rpartition(".")[2] for name in kept] == ["deb", "json"]
    manifest = json.loads(healthy.root("cat /var/cache/hpcai/packages/nvslurm*.json"))
    assert manifest["proof"] == "srun loaded it"
    assert manifest["inputs"]["slurm"] == healthy.root("slurmd -V").split()[1]


def test_a_pyxis_for_another_slurm_is_refused_before_slurmd_starts_with_it(healthy: Lab) -> None:
    node = healthy.compute[0]
    running = healthy.root("slurmd -V", node).split()[1]
    data = bytearray(healthy.host(node).file(PLUGIN).content)
    symbol = Library(bytes(data)).symbols["plugin_version"]
    number = struct.pack("<I", Library(bytes(data)).number("plugin_version"))
    assert data.count(number) == 1 and symbol.size == 4
    other = bytes(data).replace(number, struct.pack("<I", 0x170B04))  # 23.11.4
    (STATE / "shared/images/other.so").write_bytes(other)
    before = started(healthy, node)
    healthy.root(f"cp -p {PLUGIN} /root/kept.so && install -m 644 /shared/images/other.so {PLUGIN}", node)
    try:
        # Slurm 22.05 runs nothing, says that the job completed, and drains the node as its epilog fails, too.
        assert "ran" not in healthy.srun("echo ran", f"-w {node}").stdout
        eventually(lambda: "drain" in healthy.root(f"sinfo -h -n {node} -o %T"), 60, f"{node} is drained")
        status, output = finished(healthy.start("configure.yml", "--tags=slurm_compute", f"--limit={node},localhost"))
        assert status != 0 and "was built for Slurm 23.11.4" in output and f"slurmd here is {running}" in output
        status, output = finished(role(healthy))
        assert status != 0 and "was built for Slurm 23.11.4" in output
        assert started(healthy, node) == before
    finally:
        healthy.root(f"mv /root/kept.so {PLUGIN}; rm /shared/images/other.so", node)
        healthy.root(f"scontrol update nodename={node} state=resume")


def test_wrong_sources_change_nothing(healthy: Lab) -> None:
    before = healthy.root(f"cat {DROP_IN}; ls /var/cache/hpcai/packages")
    wrong = {"archive": f"{STATE}/hosts.yml", "sha256": "0" * 64}
    status, output = finished(role(healthy, pyxis_source=wrong))
    assert status != 0 and f"not {'0' * 64}" in output
    packages = [{"path": f"{STATE}/hosts.yml", "sha256": "0" * 64}]
    status, output = finished(role(healthy, pyxis_origin="packages", pyxis_packages=packages))
    assert status != 0 and f"not {'0' * 64}" in output
    assert healthy.root(f"cat {DROP_IN}; ls /var/cache/hpcai/packages") == before
    assert healthy.srun("true", "-N2").rc == 0


def test_it_goes_and_comes_back_while_a_job_runs(healthy: Lab) -> None:
    over = "/shared/images/pyxis.over"
    options = f"-N2 {MEMORY} --container-image={SQUASHED} --container-mounts=/shared"
    job = healthy.submit(f"until [ -e {over} ]; do sleep 1; done", options)
    try:
        healthy.runs(job)
        before = [started(healthy, node) for node in healthy.compute]
        done(role(healthy, pyxis_state="absent"))
        assert changed(done(role(healthy, pyxis_state="absent"))) == 0
        for node in ["ctl", *healthy.compute]:
            assert not healthy.host(node).file(DROP_IN).exists and not healthy.host(node).file(PLUGIN).exists
        # srun ends with 255, which testinfra takes for trouble with SSH.
        assert "unrecognized option" in healthy.run(f"srun --container-image={SQUASHED} true 2>&1; true").stdout
        assert healthy.run("srun -n1 --mem=100 --overlap true </dev/null").rc == 0
        done(role(healthy))
        assert all(started(healthy, node) != then for node, then in zip(healthy.compute, before))
        assert healthy.account(job, "State") == "RUNNING"
        healthy.root(f"touch {over}")
        healthy.done(job)
    finally:
        healthy.run(f"scancel {job}")
        healthy.root(f"rm -f {over}")
    assert healthy.srun(IN_CONTAINER, f"-N2 --container-image={SQUASHED}").stdout.count("in a container") == 2
