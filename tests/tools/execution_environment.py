# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment of site_template, built where no registry and no Galaxy can be reached.

The base comes from Debian's packages, in place of the template's; other collections come out of the Python package
``ansible`` of the environment that runs this. All else is what a user gets: the template's definition, this tree's
tarball, ansible-builder. The image is named after what it was made of, so that an unchanged one is never built again.

    execution_environment.py build    build the image if it is not there, check it, and print its name
    execution_environment.py check    say what the collections ask for and the image has not, and print its name
    execution_environment.py built    end with an error if there is no image of what is here
    execution_environment.py units    run the unit tests in it, with its ansible-core and its Python (words: pytest's)
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import typing as t
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "site_template"
BUILDER = ROOT / ".build/galaxy/bin/ansible-builder"
OTHERS = Path(sysconfig.get_path("purelib")) / "ansible_collections"
NAME = "localhost/hpcai-execution-environment"
BASE = "localhost/hpcai-execution-environment-base"
# Debian's newest release has the Python that the newest ansible-core asks for. Python and pip are what ansible-builder
# expects of a base, certificates are what pip expects.
DEBOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--mode=root",
    "--variant=minbase",
    "--format=tar",
    "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
    '--aptopt=Acquire::Languages "none"',
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=force-unsafe-io",
    "--include=ca-certificates,python3,python3-pip",
    "trixie",
    "-",
)
# What podman sets by itself may be more than whoever runs this has, in a container for example.
LIMITS = ("--ulimit=nofile=16384:16384", "--ulimit=nproc=32768:32768")
# Where a proxy signs for others, a build trusts what this machine trusts.
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What unit tests need beside what is in the image: Debian's programs, Python packages as in the dev environment.
PROGRAMS = ("cpio", "fio", "g++", "make", "shellcheck", "systemd", "unzip")
TESTING = (
    "antsibull-changelog",
    "ClusterShell",
    "hypothesis",
    "prometheus-client",
    "pytest",
    "pytest-xdist",
    "xmlschema",
)
Json = t.Dict[str, t.Any]


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]


def wanted() -> list[str]:
    """Return the collections that the image has beside ours, as the template and our galaxy.yml name them."""
    asked = yaml.safe_load((TEMPLATE / "collections/requirements.yml").read_text())["collections"]
    ours = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    names = {entry["name"] for entry in asked} - {f"{ours['namespace']}.{ours['name']}"}
    return sorted(names | set(ours["dependencies"]))


def metadata(collection: str) -> Json:
    manifest: Json = json.loads((OTHERS / collection.replace(".", "/") / "MANIFEST.json").read_text())
    return manifest


def pack(collection: str, directory: Path) -> Path:
    """Make a tarball of an installed collection again; the package ansible leaves out some of its files."""
    home, manifest = OTHERS / collection.replace(".", "/"), metadata(collection)
    listed: Json = json.loads((home / "FILES.json").read_text())
    listed["files"] = [entry for entry in listed["files"] if (home / entry["name"]).exists()]
    files = json.dumps(listed).encode()
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(files).hexdigest()
    path = directory / f"{collection.replace('.', '-')}-{manifest['collection_info']['version']}.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in (("MANIFEST.json", json.dumps(manifest).encode()), ("FILES.json", files)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
        for name in (entry["name"] for entry in listed["files"]):
            archive.add(home / name, name, recursive=False)
    return path


def definition(collections: t.Sequence[str]) -> Json:
    """Return the template's definition, with this base and these tarballs in place of what comes from elsewhere."""
    given: Json = yaml.safe_load((TEMPLATE / "execution-environment.yml").read_text())
    given["images"]["base_image"]["name"] = BASE
    given["dependencies"]["galaxy"] = {"collections": [{"name": name, "type": "file"} for name in collections]}
    # Debian's Python has pip as a package, and no ensurepip.
    given["options"] = {"package_manager_path": "/usr/bin/apt-get", "skip_pip_install": True}
    given["build_arg_defaults"] = {"ANSIBLE_GALAXY_CLI_COLLECTION_OPTS": "--offline"}
    given["additional_build_files"] = [{"src": "collections", "dest": "collections"}]
    given["additional_build_steps"] = {
        "prepend_builder": ["RUN apt-get update -qq"],
        "prepend_final": ["RUN apt-get update -qq"],
        "append_final": ["RUN rm -rf /var/lib/apt/lists/*"],
    }
    return given


def recipe() -> tuple[str, str]:
    """Return the names of base and image. Our code does not count: a project's tarball shadows that of the image."""
    base = f"{BASE}:{digest(DEBOOTSTRAP)}"
    own = [
        (ROOT / name).read_text()
        for name in ("meta/execution-environment.yml", "bindep.txt", "requirements/execution-environment.txt")
    ]
    others = [metadata(name)["collection_info"]["version"] for name in wanted()]
    return base, f"{NAME}:{digest(base, own, definition(wanted()), others)}"


def run(*words: t.Any, cwd: Path = ROOT) -> None:
    """Run a step of the build; what it prints goes to standard error, since the image's name alone is the output."""
    subprocess.run([str(word) for word in words], cwd=cwd, check=True, stdout=sys.stderr)


def exists(image: str) -> bool:
    return subprocess.run(["podman", "image", "exists", image], check=False).returncode == 0


def make_base(image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="hpcai-base-", dir=ROOT / ".build") as directory:
        archive = Path(directory) / "base.tar"
        run(*DEBOOTSTRAP[:-1], archive)
        run("podman", "import", "--quiet", archive, image)


def make(base: str, image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="hpcai-image-", dir=ROOT / ".build") as name:
        directory = Path(name)
        (directory / "collections").mkdir()
        galaxy = [sys.executable, "-m", "ansible.cli.galaxy", "collection"]
        run(*galaxy, "build", ROOT, "--output-path", directory / "collections")
        for collection in wanted():
            pack(collection, directory / "collections")
        # The context has a directory _build, which the definition's files go to, and the build's stages work in.
        tarballs = sorted(f"collections/{path.name}" for path in (directory / "collections").iterdir())
        given = definition(tarballs)
        given["images"]["base_image"]["name"] = base
        (directory / "execution-environment.yml").write_text(yaml.safe_dump(given, sort_keys=False))
        run(BUILDER, "create", "--file", "execution-environment.yml", "--context", "context", cwd=directory)
        volume = trusted()[:1]
        run("podman", "build", "--network=host", "--pull=never", *volume, "--tag", image, directory / "context")


def build() -> str:
    missing = [f"{program} is not installed" for program in ("podman", "mmdebstrap") if not shutil.which(program)]
    missing += [] if BUILDER.exists() else [f"{BUILDER.relative_to(ROOT)} is not there (make galaxy-venv)"]
    if missing:
        raise SystemExit(f"The image cannot be built here: {', '.join(missing)}.")
    base, image = recipe()
    if not exists(image):
        if not exists(base):
            make_base(base)
        make(base, image)
    return image


def inside(image: str, *words: str) -> str:
    """Run a program in the image, where nothing can be fetched."""
    command = ["podman", "run", "--rm", *LIMITS, "--network=none", image, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def trusted() -> list[str]:
    """Return what lets a container trust what this machine trusts."""
    if not CERTIFICATES.is_file():
        return []
    return [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", f"--env=PIP_CERT={CERTIFICATES}"]


def testing(image: str) -> str:
    """Return an image that has what unit tests need besides; it is built if it is not there."""
    pinned = dict(re.findall(r"^([\w.-]+)(==[\w.]+)", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    packages = [f"{name}{versions[canonicalize_name(name)]}" for name in TESTING]
    steps = [
        f"FROM {image}",
        "USER root",
        f"RUN apt-get update -qq && apt-get install -qq --no-install-recommends {' '.join(PROGRAMS)}",
        f"RUN python3 -m pip install --quiet --break-system-packages {' '.join(packages)}",
    ]
    name = f"{NAME}-units:{digest(steps)}"
    if not exists(name):
        with tempfile.TemporaryDirectory(prefix="hpcai-units-", dir=ROOT / ".build") as directory:
            (Path(directory) / "Containerfile").write_text("\n".join(steps))
            run("podman", "build", "--network=host", "--pull=never", *trusted()[:1], "--tag", name, directory)
    return name


def units(image: str, words: list[str]) -> int:
    """Run the unit tests of this tree in the image, without a network."""
    podman = ["podman", "run", "--rm", "--user=root", *LIMITS, f"--volume={ROOT}:{ROOT}", f"--workdir={ROOT}"]
    inside = ["--network=none", testing(image), "python3", "-m", "pytest", "-rfEs", *words]
    return subprocess.run([*podman, *inside], check=False).returncode


def asked(home: Path) -> tuple[list[str], list[str]]:
    """Return the Python packages and the Debian packages that a collection asks for, as ansible-builder finds them."""
    meta = home / "meta/execution-environment.yml"
    names = yaml.safe_load(meta.read_text())["dependencies"] if meta.exists() else {}
    if not meta.exists():
        names = {"python": "requirements.txt", "system": "bindep.txt"}
    texts = [home / names[kind] if names.get(kind) else Path() for kind in ("python", "system")]
    python, system = (
        [line for line in (re.sub(r"(^|\s)#.*", "", row) for row in text.read_text().splitlines()) if line.strip()]
        if text.is_file()
        else []
        for text in texts
    )
    debian = [line.split()[0] for line in system if "platform:" not in line or "platform:dpkg" in line]
    return python, debian


def lacks(image: str) -> list[str]:
    """Say what the collections in the image ask for, and the image has not."""
    listed = json.loads(inside(image, "python3", "-m", "pip", "list", "--format=json"))
    python = {canonicalize_name(entry["name"]): entry["version"] for entry in listed}
    debian = inside(image, "dpkg-query", "--show", "--showformat=${Package}\\n").split()
    found = []
    for home in (ROOT, *(OTHERS / name.replace(".", "/") for name in wanted())):
        packages, programs = asked(home)
        for requirement in map(Requirement, packages):
            version = python.get(canonicalize_name(requirement.name))
            if not version or not requirement.specifier.contains(version, prereleases=True):
                found.append(f"{home.name}: {requirement}, there is {version or 'none'}")
        found += [f"{home.name}: package {name}, there is none" for name in programs if name not in debian]
        name = "hpcai.gpu_cluster" if home == ROOT else f"{home.parent.name}.{home.name}"
        print(f"{name} asks for {len(packages)} Python packages and {len(programs)} programs", file=sys.stderr)
    return found


def main(words: list[str]) -> int:
    known = words in (["build"], ["check"], ["built"]) or words[:1] == ["units"]
    image = build() if words == ["build"] else recipe()[1]
    if not known or not exists(image):
        print(f"{image} is not there: make execution-environment" if known else __doc__)
        return 2
    if words[0] == "units":
        return units(image, words[1:] or ["-n", "auto", "tests/unit"])
    if words != ["built"]:
        missing = lacks(image)
        if missing:
            print(f"{image} lacks:", *missing, sep="\n  ", file=sys.stderr)
            return 1
        print(image)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
