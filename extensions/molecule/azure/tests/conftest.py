# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulated subscription, and playbooks that are run on it as a user would run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import threading
import time
import typing as t
import urllib.request
from pathlib import Path

import pytest
import yaml
from patience import patience
from warm import SDKS, Warm

ROOT = Path(__file__).resolve().parents[4]

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-azure")))
LAB = {**yaml.safe_load((SCENARIO / "vars/lab.yml").read_text()), **json.loads(os.environ.get("LAB_VARS", "{}"))}
BIN = Path(os.environ.get("AZURE_BIN", str(ROOT / ".build/azure/bin")))
PACKAGES = next((ROOT / ".build/venv/lib").glob("*/site-packages"))  # has azure.azcollection
CLUSTER = "train"
PASSWORD = "Rehearse-7f3kQ9zW-only"  # of the emulated CycleCloud's first user


class Run(t.NamedTuple):
    """What a playbook said."""

    rc: int
    output: str
    seconds: float

    @property
    def changed(self) -> int:
        return sum(int(found) for found in re.findall(r"^\S+\s+: ok=.* changed=(\d+)", self.output, re.MULTILINE))

    @property
    def changes(self) -> set[str]:
        """Names of the tasks that changed something."""
        task, found = "", set()
        for line in self.output.splitlines():
            if named := re.match(r"(?:TASK|RUNNING HANDLER) \[(.*)\] \**$", line):
                task = named[1]
            elif line.startswith("changed: ["):
                found.add(task)
        return found

    @property
    def tail(self) -> str:
        return "\n".join(line[:400] for line in self.output.splitlines()[-40:])


class Cloud:
    """Azure as the emulator has it."""

    def __init__(self) -> None:
        self.tree = ROOT  # whose playbooks are run
        self.place = STATE / "azure"
        self.told = json.loads((self.place / "azure.json").read_text())
        self.environment: dict[str, str] = json.loads((self.place / "environment.json").read_text())
        self.database = (self.place / "database_password").read_text().strip()
        self.trust = ssl.create_default_context(cafile=self.told["ca"])
        # A copy, as a user makes one: provision.yml writes the way to the cluster beside it.
        self.inventory = STATE / "inventory"
        shutil.copytree(ROOT / "inventories/azure_ndv4", self.inventory, dirs_exist_ok=True)
        # What Azure's agent would read on the machine that plays the CycleCloud machine.
        known = re.findall(r"^([\d.]+) (ssh-\S+ \S+)", (STATE / "known_hosts").read_text(), re.MULTILINE)
        self.address = LAB["lab_subnet"].replace("0/24", "10")
        keys = [key for address, key in known if address == self.address]
        known_keys = self.ask("settings")["host_keys"]  # that of the scheduler, too, when it runs already
        self.ask("settings", {"host_keys": {**known_keys, f"{CLUSTER}-cyclecloud": keys}})
        # The modules of the control host find the SDKs imported, which each of them would do for seconds.
        self.warm = Warm(BIN / "python", SDKS, PYTHONPATH=str(PACKAGES))
        variables = self.inventory / "host_vars/localhost.yml"
        variables.parent.mkdir(exist_ok=True)
        variables.write_text(f"ansible_python_interpreter: {self.warm.interpreter}\n")
        self.planned: set[str] = set()  # what --check said would be made
        self.seen: dict[str, str] = {}  # every command line of a process that was seen while playbooks ran

    def ask(self, what: str, body: t.Any = None) -> t.Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-Emulator": "1", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.told['url']}/_emulator/{what}", data, headers)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trust)
        )
        with opener.open(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text.strip() else None

    @property
    def leftovers(self) -> list[str]:
        """Return the identifiers of all that was made and is there still."""
        return sorted(self.ask("state")["leftovers"])

    @property
    def secrets(self) -> dict[str, str]:
        azure = self.environment["AZURE_SECRET"]
        return {"client secret": azure, "password of CycleCloud": PASSWORD, "password of the database": self.database}

    def start(self, playbook: str, *options: str, **variables: t.Any) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a playbook; what it says goes into the file."""
        place = f"{BIN}:{os.environ['PATH']}"
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MOLECULE_"))}
        argv = [str(BIN / "ansible-playbook"), f"--inventory={self.inventory}"]
        given = {**LAB, "lab_state_dir": str(STATE), **variables}
        argv += [f"--extra-vars=@{SCENARIO}/vars/site.yml", f"--extra-vars={json.dumps(given)}"]
        log = STATE / "outputs" / f"{time.time():.1f}-{Path(playbook).name}.txt"
        log.parent.mkdir(exist_ok=True)
        environment = {
            **clean,
            **self.environment,
            "ANSIBLE_COLLECTIONS_PATH": f"{self.tree}/.build/collections:{PACKAGES}",
            "ANSIBLE_CONFIG": str(self.tree / "ansible.cfg"),
            "CYCLECLOUD_PASSWORD": PASSWORD,
            "HPCAI_REPORT_DIR": str(STATE / "report"),
            "PATH": place,
            "SLURM_DATABASE_PASSWORD": self.database,
        }
        argv = [*argv, *options, str(self.tree / "playbooks" / playbook)]
        with log.open("wb") as out:
            run = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True)
        return run, log

    def play(self, playbook: str, *options: str, timeout: float = 600, **variables: t.Any) -> Run:
        """Run a playbook to its end, and watch the command lines of all processes meanwhile."""
        begin = time.monotonic()
        run, log = self.start(playbook, *options, **variables)
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(done,))
        watch.start()
        try:
            run.wait(patience(timeout))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        finally:
            done.set()
            watch.join()
        return Run(run.returncode, log.read_text(errors="replace"), time.monotonic() - begin)

    def _watch(self, done: threading.Event) -> None:
        """Look at all processes four times a second; those of the container are processes of this machine, too."""
        while not done.wait(0.25):
            for place in Path("/proc").glob("[0-9]*"):
                try:
                    argv = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if any(secret in argv for secret in self.secrets.values()):
                    self.seen[place.name] = argv

    def provision(self, *options: str, **variables: t.Any) -> Run:
        """Run the whole way on the machines that are real here: emulated nodes cannot be configured."""
        here = ("--tags=provision", "--limit=azure_control:cyclecloud_server")
        return self.play("site.yml", *here, *options, **variables)

    def login(self, node: str = "") -> subprocess.CompletedProcess[str]:
        """Log in to the CycleCloud machine, or through it, with what is beside the inventory, asking nobody."""
        config = str(self.inventory / ".cyclecloud/ssh_config")
        words = ["ssh", "-F", config, "-i", str(STATE / "ssh_key"), "-o", "BatchMode=yes"]
        words += ["-J", f"hpcadmin@{self.address}", f"hpcadmin@{node}"] if node else [f"hpcadmin@{self.address}"]
        return subprocess.run([*words, "true"], capture_output=True, text=True, check=False, timeout=120)

    def destroy(self, *options: str, **variables: t.Any) -> Run:
        return self.play("destroy.yml", *options, **{"confirm": CLUSTER, **variables})


def machine(command: str, name: str = "ctl") -> subprocess.CompletedProcess[str]:
    """Run a shell command as root on the machine that plays the CycleCloud machine, or on one that CycleCloud made."""
    argv = ["podman", "exec", f"hpcai-{LAB['lab_name']}-{name}", "sh", "-c", command]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=patience(300))


def instances() -> list[str]:
    """Return which machines of the cluster there are, whatever CycleCloud says."""
    label = ["--filter", f"label=hpcai.lab={LAB['lab_name']}", "--filter", "label=hpcai.cluster"]
    listed = subprocess.run(["podman", "ps", "--format={{.Names}}", *label], capture_output=True, text=True, check=True)
    return sorted(name.removeprefix(f"hpcai-{LAB['lab_name']}-") for name in listed.stdout.split())


def scheduler(command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command as the cluster's user on the scheduler."""
    return machine(f"runuser -u hpcadmin -- sh -c {shlex.quote(command)}", "scheduler")


@pytest.fixture(scope="session")
def cloud() -> t.Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.warm.close()
