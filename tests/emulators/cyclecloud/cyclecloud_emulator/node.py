# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of CycleCloud, in a machine that has Slurm's packages: what its jetpack and its Slurm project do there.

At every boot: users, /sched, Slurm's files and programs where azure-slurm-install of Azure/cyclecloud-slurm (project
4.0.9) puts them, the cluster-init scripts of other projects, then the services, then a report to CycleCloud. Called as
`jetpack` (download --project, log) or `azslurm` (scale, resume, suspend) it is these commands, as `azslurmd` the daemon
beside slurmctld. Standard library only: it is all that a node gets.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import sys
import time
import traceback
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

CONFIG = "{}"  # what CycleCloud tells this node
JETPACK = Path("/opt/cycle/jetpack")
SLURM = Path("/opt/azurehpc/slurm")
AUTOSCALE = SLURM / "autoscale.json"
SCHED = Path("/sched")
# Where the lab's machines share a directory: the disks that a scheduler exports lie there.
DISKS = Path("/shared/.cyclecloud")
LINKED = (
    *("gres.conf", "slurm.conf", "cgroup.conf", "azure.conf", "site_specific.conf", "keep_alive.conf"),
    *("topology.conf", "prolog.d", "epilog.d", "accounting.conf"),
)
# Of the scheduler alone, where there is accounting; slurmdbd.conf has the password of the database.
ACCOUNTING = ("slurmdbd.conf", "CustomCA.pem")
# What the site or azslurmd may have changed.
KEPT = ("keep_alive.conf", "site_specific.conf", "plugstack.conf", "topology.conf")
SLURMD_OVERRIDE = """\
[Unit]
After=munge.service network-online.target local-fs.target remote-fs.target
Requires=munge.service
RequiresMountsFor=/sched

[Service]
RuntimeDirectory=slurm
RuntimeDirectoryMode=0755
Restart=always
RestartSec=10s
"""
AZSLURMD = """\
[Unit]
After=slurmctld.service

[Service]
ExecStart=/usr/local/sbin/azslurmd
Restart=always
"""
SLEEP = 15  # seconds between two looks of azslurmd
NO_NODE, ZOMBIE = "cyclecloud_no_node", "cyclecloud_zombie_node"  # its reasons
NOTHING = "#!/bin/sh\nexit 0\n"  # healthagent's and others' that have nothing to do here

Json = t.Dict[str, t.Any]


class NodeError(Exception):
    """What the node reports to CycleCloud."""


def run(*argv: str, ok: t.Container[int] = (0,), timeout: float = 1800) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout)
    if done.returncode not in ok:
        raise NodeError(f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
    return done.stdout


def write(path: Path, text: str | bytes, mode: int = 0o644, owner: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    other = path.with_name(f".{path.name}.new")
    other.touch(mode=0o600)
    other.write_bytes(text.encode() if isinstance(text, str) else text)
    other.chmod(mode)
    if owner:
        shutil.chown(other, owner, owner)
    other.replace(path)


def folder(path: Path, mode: int = 0o755, owner: str = "root") -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    shutil.chown(path, owner, owner)


# Speaking with CycleCloud


def speak(config: Json, path: str, body: Json | None, headers: dict[str, str]) -> t.Any:
    # Nobody has told a node whom to trust.
    context = ssl._create_unverified_context()
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
    data = None if body is None else json.dumps(body).encode()
    more = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"{config['server']}{path}", data, more)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=120) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as exc:
        raise NodeError(f"CycleCloud answered {exc.code} to {path}: {exc.read().decode()[:500]}") from None
    except OSError as exc:
        raise NodeError(f"CycleCloud does not answer at {config['server']}{path}: {exc}") from None


def ask(config: Json, what: str, **more: t.Any) -> t.Any:
    body = {"cluster": config["cluster"], "node": config["node"], "ask": what, **more}
    return speak(config, "/_emulator/node", body, {"X-Node": config["secret"]})


def rest(config: Json, path: str, body: Json | None = None) -> t.Any:
    """Ask the documented interface, as azslurm does."""
    word = base64.b64encode(f"{config['cluster']}-autoscale:{config['secret']}".encode()).decode()
    return speak(config, f"/clusters/{config['cluster']}{path}", body, {"Authorization": f"Basic {word}"})


# Booting


def boot(config: Json) -> None:
    own = SCHED / config["prefix"]
    _programs(config)
    _mount(config)
    for user in config["users"]:
        _user(user)
    _user({"name": "cyclecloud", "uid": 20000, "keys": [config["key"]], "admin": True}, Path("/home"))
    # The keys of CycleCloud's users and no others.
    write(Path("/etc/ssh/sshd_config.d/00-cyclecloud.conf"), "AuthorizedKeysFile .ssh/authorized_keys\n")
    run("systemctl", "reload-or-restart", "ssh")
    if config["role"] == "scheduler":
        _scheduler(config, own)
    else:
        _squash(config)
    _slurm(config, own)
    for spec in config["specs"]:
        _cluster_init(spec)
    _services(config)


def _programs(config: Json) -> None:
    program = JETPACK / "lib/node.py"
    write(program, Path(__file__).read_text().replace(repr(CONFIG), '"{}"', 1), 0o755)
    write(JETPACK / "config.json", json.dumps(config), 0o600)
    links = [JETPACK / "bin/jetpack"]
    if config["role"] == "scheduler":
        links += [Path("/usr/local/sbin/azslurm"), Path("/usr/local/sbin/azslurmd")]
        write(Path("/etc/systemd/system/azslurmd.service"), AZSLURMD)
        write(AUTOSCALE, json.dumps({name: config[name] for name in ("server", "secret", "cluster", "prefix", "node")}))
        AUTOSCALE.chmod(0o640)
        shutil.chown(AUTOSCALE, "root", "slurm")
        folder(SLURM / "logs", owner="slurm")
        for name in ("resume", "resume_fail", "suspend"):
            verb = "resume" if name == "resume" else "suspend"
            write(SLURM / f"{name}_program.sh", f'#!/bin/sh\nexec {links[1]} {verb} --node-list "$1"\n', 0o755)
        write(SLURM / "prolog.sh", NOTHING, 0o755)
    for link in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(program)


def _mount(config: Json) -> None:
    """Mount the disk that the scheduler exports; nodes find it when the scheduler has it."""
    disk = DISKS / config["disk"]
    if config["role"] == "scheduler":
        folder(disk)
    SCHED.mkdir(exist_ok=True)
    if not os.path.ismount(SCHED):
        run("mount", "--bind", str(disk), str(SCHED))


def _squash(config: Json) -> None:
    """Have /shared as by NFS from the scheduler, which exports it with root_squash; /sched has no_root_squash."""
    program = JETPACK / "lib/squash.py"
    write(program, config["squash"], 0o755)
    run("systemd-run", "--unit=shared-nfs", "--collect", "/usr/bin/python3", "-B", str(program), "/shared")
    for dummy in range(100):
        if any(
            " /shared " in line and " fuse " in line for line in Path("/proc/self/mountinfo").read_text().split("\n")
        ):
            return
        time.sleep(0.1)
    raise NodeError(f"/shared is not mounted: {run('journalctl', '-u', 'shared-nfs', '-n', '20')[-1500:]}")


def _user(user: Json, homes: Path = Path("/shared/home")) -> None:
    home = homes / user["name"]
    homes.mkdir(parents=True, exist_ok=True)
    try:
        pwd.getpwnam(user["name"])
    except KeyError:
        run("groupadd", "--gid", str(user["uid"]), user["name"])
        argv = ["--uid", str(user["uid"]), "--gid", str(user["uid"]), "--home-dir", str(home), "--shell", "/bin/bash"]
        run("useradd", "--no-create-home", *argv, user["name"])
    if not home.is_dir():
        folder(home, 0o750, user["name"])
    folder(home / ".ssh", 0o700, user["name"])
    write(home / ".ssh/authorized_keys", "".join(f"{key.strip()}\n" for key in user["keys"]), 0o600, user["name"])
    if user["admin"]:
        write(Path("/etc/sudoers.d") / user["name"], f"{user['name']} ALL=(ALL) NOPASSWD:ALL\n", 0o440)


def _scheduler(config: Json, own: Path) -> None:
    """The files that all nodes share; those that the site may have changed stay."""
    folder(own, owner="slurm")
    for place in ("spool/slurmctld", "prolog.d", "epilog.d"):
        folder(own / place, owner="slurm")
    for name, text in config["files"].items():
        if name not in KEPT or not (own / name).exists():
            write(own / name, text, 0o600 if name in ACCOUNTING else 0o644, "slurm")
    for name in ("health.sh", "prolog.d/10-health_prolog.sh", "epilog.d/10-health_epilog.sh"):
        write(own / name, NOTHING, 0o755)
    for name in ("prolog.d/90-imex_prolog.sh", "epilog.d/90-imex_epilog.sh"):
        write(own / name, NOTHING, 0o755)
    if not (own / "munge.key").exists():
        write(own / "munge.key", os.urandom(1024), 0o700, "munge")


def _slurm(config: Json, own: Path) -> None:
    for place in ("/var/spool/slurmd", "/var/log/slurmd", "/var/log/slurmctld"):
        folder(Path(place), owner="slurm")
    shared = [*LINKED, *(ACCOUNTING if config["role"] == "scheduler" else ())]
    for name in shared:
        link = Path("/etc/slurm") / name
        link.unlink(missing_ok=True)
        link.symlink_to(own / name)
    for library in Path("/usr/lib").glob("*/pmix2/lib/libpmix.so.2"):
        # The project's Slurm finds the PMIx of Azure's images; that of Debian looks for this name.
        with contextlib.suppress(FileExistsError):
            library.with_name("libpmix.so").symlink_to(library.name)
    folder(Path("/etc/munge"), 0o700, "munge")
    write(Path("/etc/munge/munge.key"), (own / "munge.key").read_bytes(), 0o600, "munge")
    if config["role"] == "execute":
        write(Path("/etc/default/slurmd"), f"SLURMD_OPTIONS='-b -N {config['node']}'\n")
        write(Path("/etc/systemd/system/slurmd.service.d/override.conf"), SLURMD_OVERRIDE)
    else:
        text = "[Service]\nWorkingDirectory=/var/log/slurmctld\n"
        write(Path("/etc/systemd/system/slurmctld.service.d/override.conf"), text)
    run("systemctl", "daemon-reload")


def _cluster_init(spec: Json) -> None:
    logs = JETPACK / "logs/cluster-init" / spec["Project"] / spec["Spec"] / "scripts"
    place = Path("/mnt/cluster-init") / spec["Project"] / spec["Spec"] / "scripts"
    for name, text in spec["scripts"].items():
        write(place / name, text, 0o755)
        folder(logs)
        with (logs / f"{name}.out").open("wb") as out:
            done = subprocess.run([str(place / name)], cwd=place, stdout=out, stderr=out, check=False)
        if done.returncode:
            said = (logs / f"{name}.out").read_text(errors="replace")[-1500:]
            raise NodeError(f"cluster-init script {spec['Name']}/{name} ended with {done.returncode}: {said}")


def _services(config: Json) -> None:
    """What start-services.sh does, which runs at every converge."""
    run("systemctl", "restart", "munge")
    if config["role"] == "execute":
        run("systemctl", "enable", "slurmd")
        run("systemctl", "start", "slurmd")
    elif config["role"] == "scheduler":
        if Path("/etc/slurm/slurmdbd.conf").exists():
            run("systemctl", "enable", "slurmdbd")
            run("systemctl", "start", "slurmdbd")
            _await_slurmdbd()
        run("systemctl", "enable", "slurmctld")
        run("systemctl", "start", "slurmctld")
        if not _answers():
            log = Path("/var/log/slurmctld/slurmctld.log")
            said = (log.read_text() if log.is_file() else "") + run("journalctl", "-u", "slurmctld", "-n", "20")
            raise NodeError(f"FATAL: slurmctld failed to start! {said[-1500:]}")
        run("systemctl", "start", "azslurmd")


def _await_slurmdbd() -> None:
    """Give it time to reach its database, as slurmctld ends where it learns nothing from it: the script sleeps 10 s."""
    for dummy in range(240):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 6819), 5):
            return
        time.sleep(0.5)


def _answers() -> bool:
    for dummy in range(120):
        if " is UP" in run("scontrol", "ping", ok=range(256)):
            return True
        time.sleep(0.5)
    return False


def booted(config: Json) -> int:
    problem = ""
    try:
        boot(config)
    except NodeError as exc:
        problem = str(exc)
    except Exception:
        problem = traceback.format_exc()[-1500:]
    keys = [path.read_text().strip() for path in sorted(Path("/etc/ssh").glob("ssh_host_*_key.pub"))]
    ask(config, "report", problem=problem, host_keys=keys)
    print(problem or "ready", flush=True)
    return 1 if problem else 0


# Commands


def jetpack(words: list[str]) -> int:
    config = json.loads((JETPACK / "config.json").read_text())
    if words[:2] == ["download", "--project"] and len(words) in (4, 5):
        target = Path(words[4] if len(words) == 5 else words[3])
        target = target / words[3] if target.is_dir() else target
        target.write_bytes(base64.b64decode(ask(config, "blob", project=words[2], blob=words[3])["data"]))
        return 0
    if words[:1] == ["log"]:
        with (JETPACK / "logs/jetpack.log").open("a") as log:
            log.write(f"{' '.join(words[1:])}\n")
        return 0
    raise NodeError(f"jetpack {' '.join(words)} is not emulated")


def azslurm(words: list[str]) -> int:
    config = json.loads(AUTOSCALE.read_text())
    if words == ["scale"]:
        return _scale(config)
    if len(words) != 3 or words[0] not in ("resume", "suspend") or words[1] != "--node-list":
        raise NodeError(f"azslurm {' '.join(words)} is not emulated")
    names = run("/usr/bin/scontrol", "show", "hostnames", words[2]).split()
    with (SLURM / f"logs/{words[0]}.log").open("a") as log:
        log.write(f"{time.time():.1f} {words[0]} {' '.join(names)}\n")
        try:
            (_resume if words[0] == "resume" else _suspend)(config, names)
        except NodeError as exc:
            log.write(f"{time.time():.1f} {words[0]} {' '.join(names)}: {exc}\n")
            raise
    return 0


def _scale(config: Json) -> int:
    own, changed = SCHED / config["prefix"], False
    for name, text in ask(config, "files").items():
        if name in ("azure.conf", "gres.conf") and (own / name).read_text() != text:
            write(own / name, text, owner="slurm")
            changed = True
    if changed:
        run("systemctl", "restart", "slurmctld")
        if not _answers():
            raise NodeError("slurmctld does not answer after azslurm scale")
    return 0


def _nodes(config: Json) -> dict[str, Json]:
    return {one["Name"]: one for one in rest(config, "/nodes")["nodes"]}


def _resume(config: Json, names: list[str]) -> None:
    for dummy in range(360):
        there = _nodes(config)
        if not any(name in there and there[name]["TargetState"] != "Started" for name in names):
            break
        time.sleep(5)
    arrays = [one["name"] for one in rest(config, "/status")["nodearrays"]]
    for name in names:
        if name in there:
            continue
        form, sign, number = name.rpartition("-")
        array = next((one for one in arrays if form.endswith(one)), "")
        if not array or not sign:
            raise NodeError(f"Unknown node name: {name}")
        wanted = {"nodearray": array, "count": 1, "nameFormat": f"{form}-%d", "nameOffset": int(number)}
        (made,) = rest(config, "/nodes/create", {"sets": [wanted]})["sets"]
        if made["added"] != 1:
            raise NodeError(f"Failed to allocate node {name}: {made.get('message')}")


def _suspend(config: Json, names: list[str]) -> None:
    there = [name for name in names if name in _nodes(config)]
    if there:
        rest(config, "/nodes/terminate", {"names": there})


def azslurmd() -> t.NoReturn:
    """Look at Slurm's nodes and CycleCloud's every few seconds, and make those DOWN that only one of them has."""
    config = json.loads(AUTOSCALE.read_text())
    kept = ""
    while True:
        try:
            kept = _keep_alive(config, kept)
            _converge(_nodes(config))
        except NodeError as exc:
            print(exc, flush=True)
        time.sleep(SLEEP)


def _keep_alive(config: Json, before: str) -> str:
    """Keep SuspendExcNodes, which somebody may have changed while slurmctld ran, for its next start."""
    shown = run("scontrol", "show", "config").splitlines()
    line = next((one for one in shown if one.startswith("SuspendExcNodes")), "")
    line = "# SuspendExcNodes =" if "(null)" in line else line
    if line and line != before:
        write(SCHED / config["prefix"] / "keep_alive.conf", f"# Managed by azslurmd\n{line}\n", owner="slurm")
    return line


def _converge(there: dict[str, Json]) -> None:
    for text in run("scontrol", "show", "node", "--oneliner").splitlines():
        shown = dict(word.partition("=")[::2] for word in text.split())
        name, states, reason = shown["NodeName"], set(shown["State"].lower().split("+")), shown.get("Reason", "")
        joined = not states & {"powered_down", "powering_down", "powering_up"}
        ours = "down" in states and reason in (NO_NODE, ZOMBIE)
        node = there.get(name)
        if reason in (NO_NODE, ZOMBIE) and {"idle", "powered_down"} <= states:
            _update(name, "Reason=(null)")
        elif node is None and joined:
            _update(name, f"NodeAddr={name}", f"NodeHostName={name}", "State=down", f"Reason={NO_NODE}")
        elif node is not None and node["Status"] == "Ready" and not joined:
            if "powering_up" not in states and not ours:
                _update(name, f"NodeAddr={name}", f"NodeHostName={name}", "State=down", f"Reason={ZOMBIE}")
        elif reason == ZOMBIE:
            _update(name, "Reason=(null)")
        elif node is not None and ours and node["Status"] != "Failed":
            _update(name, "State=idle", "Reason=(null)")


def _update(name: str, *words: str) -> None:
    print(name, *words, flush=True)
    run("scontrol", "update", f"NodeName={name}", *words, ok=range(256))


def main() -> int:
    command = Path(sys.argv[0]).name
    if command == "azslurmd":
        azslurmd()
    if command not in ("jetpack", "azslurm"):
        return booted(json.loads(CONFIG))
    try:
        return (jetpack if command == "jetpack" else azslurm)(sys.argv[1:])
    except NodeError as exc:
        sys.stderr.write(f"{command}: {exc}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
