# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Syntax and unit tests with Ubuntu 24.04's Python 3.12, with the locked ansible-core and with the newest supported.

The image is made of Ubuntu's packages and the locked packages for development. Python 3.13 with the newest ansible-core
is what the execution environment has (execution_environment.py units).

    other_pythons.py [WORDS]    pytest's words, in place of all unit tests
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import yaml
from execution_environment import LIMITS, PROGRAMS, ROOT, TEMPLATE, digest, exists, run, trusted

NAME = "localhost/hpcai-other-pythons"
BASE = "localhost/hpcai-other-pythons-base"
RELEASE: dict[str, t.Any] = yaml.safe_load((ROOT / "lab/roles/lab/vars/main.yml").read_text())
NOBLE = RELEASE["lab_releases"]["noble"]
PACKAGES = ("ca-certificates", "git", "openssh-client", "python3", "python3-venv", *PROGRAMS)
DEBOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--format=tar",
    f"--keyring={NOBLE['keyring']}",
    *RELEASE["lab_debootstrap_options"],
    f"--include={','.join(PACKAGES)}",
    "noble",
)
LOCK = ROOT / "requirements/dev.txt"
OLDEST, NEWEST = "/opt/oldest", "/opt/newest"


def cores() -> tuple[str, str]:
    """Return what pip is asked for: the ansible-core of the lock, and the newest below the limit of the template."""
    locked = re.search(r"^(ansible-core==[\w.]+)", LOCK.read_text(), re.MULTILINE)
    asked = yaml.safe_load((TEMPLATE / "execution-environment.yml").read_text())
    assert locked
    return locked[1], asked["dependencies"]["ansible_core"]["package_pip"]


def make_base(image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="hpcai-base-", dir=ROOT / ".build") as place:
        archive = Path(place) / "base.tar"
        run(*DEBOOTSTRAP, archive, *NOBLE["sources"])
        run("podman", "import", "--quiet", archive, image)


def make_image() -> str:
    """Return the name of an image that has both environments; it is built if it is not there."""
    locked, newest = cores()
    base = f"{BASE}:{digest(DEBOOTSTRAP, NOBLE)}"
    steps = [
        f"FROM {base}",
        "COPY dev.txt /opt/dev.txt",
        f"RUN python3 -m venv {OLDEST} && {OLDEST}/bin/python -m pip install --quiet --require-hashes -r /opt/dev.txt",
        # The package ansible wants its own ansible-core, which is a warning: its collections are what is used.
        f"RUN cp -a {OLDEST} {NEWEST} && sed -i s,{OLDEST}/,{NEWEST}/, {NEWEST}/bin/[a-z]*",
        f"RUN {NEWEST}/bin/python -m pip install --quiet --upgrade '{newest}'",
    ]
    image = f"{NAME}:{digest(steps, locked, LOCK.read_text())}"
    if not exists(image):
        if not exists(base):
            make_base(base)
        with tempfile.TemporaryDirectory(prefix="hpcai-pythons-", dir=ROOT / ".build") as place:
            (Path(place) / "Containerfile").write_text("\n".join(steps))
            (Path(place) / "dev.txt").write_text(LOCK.read_text())
            run("podman", "build", "--network=host", "--pull=never", *trusted(), "--tag", image, place)
    return image


def inside(name: str, environment: str, *words: str) -> int:
    """Run a program of one of the environments on this tree, without a network."""
    podman = ["podman", "run", "--rm", "--user=root", *LIMITS, f"--volume={ROOT}:{ROOT}", f"--workdir={ROOT}"]
    path = f"--env=PATH={environment}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # The first process of a container is the parent of what others left, and has to ask how that ended.
    first = ["sh", "-c", '"$@"; exit $?', "sh"]
    return subprocess.run([*podman, path, "--network=none", name, *first, "python", *words], check=False).returncode


def main(words: t.Sequence[str]) -> int:
    name = make_image()
    failed = []
    for environment in (OLDEST, NEWEST):
        inside(name, environment, "-m", "ansible.cli.playbook", "--version")
        for what in (
            ["tests/tools/lint.py", "--syntax"],
            ["-m", "pytest", "-rfEs", *(words or ["-n", "auto", "tests/unit"])],
        ):
            if inside(name, environment, *what):
                failed.append(f"{environment}: {' '.join(what)}")
    print(*(f"failed: {one}" for one in failed), sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
