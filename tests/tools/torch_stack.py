# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The training stack as its roles state it, and what is known of it from runs.

``torch_stack.py check`` asks the package index (``UV_DEFAULT_INDEX``, else PyPI) for each pinned version: whether it is
there and not withdrawn, for which Python, and which is the newest. It lets uv resolve each build's PyTorch and the
packages that go with it, for each of its Pythons. Where ``HPCAI_APEX_GIT`` names a clone of Apex, it compares the list
of its releases with that.

``torch_stack.py cached`` ends with 0 where the control host has what the part ``training`` of the tests installs, and
else says what is missing.

``torch_stack.py table`` takes over what that part wrote to ``.build/training/records.json``, and draws the tables of
docs/training_stack.md: what was built and trained with, and which versions belong together.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import versions  # noqa: E402
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import (  # noqa: E402
    CUDA_MAJORS,
    CUDA_RELEASES,
    CudaBuild,
    Driver,
    EnvironmentRefused,
    choose,
    misfits,
    numbers,
    version_for,
    within,
)

ROLES = ROOT / "roles"
RECORDS = ROOT / "tests/training/records.json"
NEW = ROOT / ".build/training/records.json"
PAGE = ROOT / "docs/training_stack.md"
Json = t.Dict[str, t.Any]


def known() -> dict[str, Json]:
    """Return the packages of role training_extras by name."""
    text = (ROLES / "training_extras/vars/main.yml").read_text()
    return {package["name"]: package for package in yaml.safe_load(text)["__training_extras_known"]}


def version(name: str) -> str:
    return str(known()[name]["version"])


def modules(name: str) -> list[str]:
    """Return what is imported as proof of a package."""
    return list(known()[name].get("imports", [name.replace("-", "_")]))


def origin(name: str) -> str:
    return "from source" if "source" in known()[name] else "wheel of the index"


def apex() -> Json:
    """Return the source of role apex."""
    # Values of other variables are Jinja; this one is plain.
    return dict(yaml.safe_load((ROLES / "apex/defaults/main.yml").read_text())["apex_source"])


def cached() -> Path:
    """Return the directory of what the control host keeps."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcai.gpu_cluster"
    return Path(os.environ.get("HPCAI_CACHE_DIR") or own)


def fetched(name: str, digest: str) -> Path:
    """Return where role pinned_source keeps a source."""
    return cached() / "sources" / f"{name}-{digest}"


def missing() -> list[str]:
    """Return what the control host would have to download."""
    cache = cached()
    python = f"py{sys.version_info[0]}.{sys.version_info[1]}"
    patterns = {
        "PyTorch for CPUs": f"wheelhouse/cpu-{python}-*/torch-*.whl",
        "megatron-core": f"wheelhouse/extras-*-{python}-*/megatron_core-{version('megatron-core')}-*.whl",
        "ninja": f"wheelhouse/extras-*-{python}-*/ninja-*.whl",
        "the tools of builds": f"wheelhouse/training-extras-tools-{python}-*/setuptools-*.whl",
    }
    for name in ("deepspeed", "fairscale"):
        patterns[f"the source of {name}"] = str(fetched(name, known()[name]["source"]["sha256"]).relative_to(cache))
    return [f"{what} ({cache}/{pattern})" for what, pattern in patterns.items() if not any(cache.glob(pattern))]


def table(records: t.Sequence[Json]) -> list[str]:
    lines = [
        "| Package | Version | PyTorch | Python | Resolved | Built | Loaded | Trained on CPU | Run on GPU | Date |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for record in sorted(records, key=lambda one: str(one["package"])):
        trained = "; ".join(
            f"{one['name']}: {one['nodes']} nodes, {one['steps']} steps, loss to {one['loss_ratio']} of what it was"
            for one in record["trained"]
        )
        lines.append(
            "| "
            + " | ".join(
                [
                    f"`{record['package']}`",
                    record["version"],
                    record["torch"],
                    record["python"],
                    "yes" if record["resolved"] else "no",
                    record["built"] or "no",
                    ", ".join(f"`{name}`" for name in record["loaded"]) or "no",
                    trained or "no",
                    record.get("gpu") or "no",
                    record["date"],
                ]
            )
            + " |"
        )
    return lines


def builds() -> dict[str, Json]:
    """Return role pytorch's builds with the version of PyTorch that each has locked."""
    variables = yaml.safe_load((ROLES / "pytorch/vars/main.yml").read_text())["__pytorch_builds"]
    return {name: {**build, "torch": _locked(name)} for name, build in variables.items()}


def _locked(name: str) -> str:
    lock = (ROLES / f"pytorch/files/{name}.txt").read_text()
    torch = re.search(r"^torch==(\S+)", lock, re.MULTILINE)
    return torch[1] if torch else ""


# What belongs to a build of PyTorch.
COMPANIONS = ("torchvision", "torchaudio", "deepspeed", "megatron-core", "onnxruntime-training")


def companions(build: Json, python: str) -> dict[str, str]:
    """Return the version of each companion that goes with a build, for those that do."""
    packages = {name: known()[name] for name in COMPANIONS}
    return {
        name: version_for(package, build["torch"])
        for name, package in packages.items()
        if not misfits([package], build["torch"], python, {})
    }


def matrix() -> list[str]:
    """Say which versions belong together, by the builds of role pytorch."""
    head = ["Build", "PyTorch", "CUDA", "Driver at least", "Driver of its CUDA", "GPUs", "Python", *COMPANIONS]
    lines = [head, ["---"] * len(head)]
    for name, build in builds().items():
        cuda = build["cuda"]
        # One Python for all, as a package may be limited to some.
        own = companions(build, "3.11")
        lines.append(
            [
                f"`{name}`",
                build["torch"],
                cuda or "none",
                CUDA_MAJORS[numbers(cuda)[0]] if cuda else "none",
                CUDA_RELEASES[cuda] if cuda else "none",
                ", ".join(build.get("capabilities", [])) or "none",
                ", ".join(build["pythons"]),
                *(own.get(companion, "no") for companion in COMPANIONS),
            ]
        )
    return [f"| {' | '.join(cells)} |" for cells in lines]


GPUS = {"V100": "7.0", "A100": "8.0", "H100": "9.0", "B200": "10.0"}


def chosen() -> list[str]:
    """Say which build pytorch_build: auto takes for each driver and GPU, by the role's own choice."""
    known_builds = {
        name: CudaBuild(name, "lock", build["cuda"], build.get("capabilities", ()), build["pythons"], build["machines"])
        for name, build in builds().items()
    }
    lines = [["Driver", *GPUS], ["---"] * (len(GPUS) + 1)]
    for driver in sorted({*CUDA_MAJORS.values(), *CUDA_RELEASES.values()}, key=numbers):
        cells = [driver]
        for capability in GPUS.values():
            try:
                build, dummy = choose(known_builds, "auto", [Driver("node", driver, [capability])], "3.11", "x86_64")
                cells.append(f"`{build.name}`")
            except EnvironmentRefused:
                cells.append("refused")
        lines.append(cells)
    return [f"| {' | '.join(cells)} |" for cells in lines]


def releases() -> list[str]:
    """Say what no release of Apex works with until when."""
    lines = [["Extension", "Works with", "In releases before", "Why"], ["---"] * 4]
    names = [release.name for release in versions.APEX_RELEASES.values()]
    mended = [release.mended for release in versions.APEX_RELEASES.values()]
    for number, fault in enumerate(versions.APEX_FAULTS):
        first = names[next(index for index, count in enumerate(mended) if count > number)]
        extensions = ", ".join(f"`{name}`" for name in sorted(fault.extensions)) or "all"
        kind = {"torch": "PyTorch", "cuda": "CUDA"}[fault.kind]
        lines.append([extensions, f"{kind} {fault.works}", first.partition(",")[0], fault.because])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def drawn(page: str, records: t.Sequence[Json]) -> str:
    """Return the page with its tables, that of these records among them."""
    tables = {"records": table(records), "matrix": matrix(), "drivers": chosen(), "releases": releases()}
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: drawn by make training-table -->", f"<!-- end of {name} -->"
        body = "\n".join([begin, "", *lines, "", end])
        page, count = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda dummy, body=body: body, page, flags=re.DOTALL
        )
        assert count == 1, f"{PAGE.name} has no place for the table {name}"
    return page


def merged(old: t.Sequence[Json], new: t.Sequence[Json]) -> list[Json]:
    """Return the newest records of each package with each PyTorch; an older one stays where it has further modules.

    So does one that has code for further GPUs.
    """

    def has(one: Json) -> set[str]:
        return {*one["loaded"], *re.findall(r"\bsm_\d+", one["built"])}

    def stays(one: Json) -> bool:
        beside = [other for other in new if (other["package"], other["torch"]) == (one["package"], one["torch"])]
        return not any(has(one) <= has(other) for other in beside)

    found = [*(one for one in old if stays(one)), *new]
    return sorted(found, key=lambda one: (one["package"], one["torch"], one["loaded"]))


INDEX = "https://pypi.org/simple"
_JSON = "application/vnd.pypi.simple.v1+json"


def pinned() -> dict[str, tuple[str, str]]:
    """Return the versions that are pinned to an index, and the Pythons that we say they are for, by what pins them."""
    found = {}
    for name, package in known().items():
        if package["version"] and "git" not in package.get("source", {}):
            found[name] = (f"{name}=={package['version']}", str(package.get("fits", {}).get("python", "")))
    for name, build in builds().items():
        # What has a local version is of PyTorch's own index, and made of the same release.
        found[f"build {name}"] = (
            f"torch=={build['torch'].partition('+')[0]}",
            ",".join(f"=={one}" for one in build["pythons"]),
        )
    return found


def sets() -> list[tuple[str, str, list[str]]]:
    """Return what has to resolve together, with the build and the Python; PyPI has no build for CPUs."""
    found = []
    for name, build in builds().items():
        for python in build["pythons"] if build["cuda"] else []:
            own = companions(build, python)
            found.append((name, python, [f"torch=={build['torch']}", *(f"{key}=={own[key]}" for key in own)]))
    return found


def unresolved(
    name: str, python: str, requirements: t.Sequence[str], run: t.Callable[..., t.Any] = subprocess.run
) -> str:
    """Let uv resolve; return what stands against it."""
    # DeepSpeed is built from its source, which uv would have to run.
    wanted = "".join(f"{one}\n" for one in requirements if not one.startswith("deepspeed=="))
    argv = [Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--only-binary=:all:", "-"]
    argv += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    done = run(argv, input=wanted, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"build {name}, Python {python}: {' '.join(done.stderr.split())[:600]}"


def of_index(project: str, fetch: t.Callable[[str], Json]) -> list[Json]:
    """Return the files of a project."""
    return list(fetch(f"{(os.environ.get('UV_DEFAULT_INDEX') or INDEX).rstrip('/')}/{project}/")["files"])


def fetch(address: str) -> Json:
    request = urllib.request.Request(address, headers={"Accept": _JSON})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return t.cast(Json, json.load(answer))


def release(file: str) -> str:
    """Return the version in the name of a wheel or of a source."""
    name = file.removesuffix(".whl").removesuffix(".tar.gz").removesuffix(".zip")
    return name.split("-")[1] if file.endswith(".whl") else name.rpartition("-")[2]


def judged(what: str, pin: str, pythons: str, files: t.Sequence[Json]) -> tuple[str, list[str]]:
    """Return a line about a pinned version, and what is wrong with it."""
    wanted = pin.rpartition("==")[2]
    own = [one for one in files if release(one["filename"]) == wanted]
    finals = {release(one["filename"]) for one in files if re.fullmatch(r"\d+(\.\d+)*", release(one["filename"]))}
    newest = max(finals, key=numbers, default="none")
    problems = [] if own else [f"{what}: the index has no {pin}"]
    if own and all(one.get("yanked") for one in own):
        problems.append(f"{what}: {pin} is withdrawn: {own[0]['yanked']}")
    says = {str(one["requires-python"]) for one in own if one.get("requires-python")}
    tags = sorted({tag[1] for one in own for tag in re.finditer(r"-cp(3\d+)-cp3", one["filename"])}, key=int)
    compiled = [f"3.{tag[1:]}" for tag in tags]
    for python in (f"3.{minor}" for minor in range(8, 20)):
        ours = any(within(python, one) for one in pythons.split(",")) if "==" in pythons else within(python, pythons)
        theirs = all(within(python, one) for one in says) and (not compiled or python in compiled)
        if pythons and ours and own and not theirs and (compiled or says):
            has = ", ".join([*says, *(f"wheels for {one}" for one in compiled)])
            problems.append(f"{what}: we say that {pin} is for Python {python}, the index has {has}")
    return f"{what}: {pin}, newest {newest}; Python {', '.join([*says, *compiled]) or 'any'}", problems


def of_clone(place: str, run: t.Callable[..., t.Any] = subprocess.run) -> list[str]:
    """Return where a clone of Apex has it otherwise than the list of its releases."""

    def git(*words: str) -> tuple[int, str]:
        done = run(["git", "-C", place, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip()

    problems = []
    for commit, release in versions.APEX_RELEASES.items():
        if git("cat-file", "-e", f"{commit}^{{commit}}")[0]:
            problems.append(f"Apex {release.name}: the clone has no {commit}")
            continue
        for tag in re.findall(r"\b\d\d\.\d\d(?:\.\d+)?\b", release.name):
            found = git("rev-parse", f"refs/tags/{tag}^{{commit}}")[1]
            problems += [] if found == commit else [f"Apex {tag}: we say {commit}, the clone {found}"]
        for number, fault in enumerate(versions.APEX_FAULTS):
            mended = git("merge-base", "--is-ancestor", fault.mended, commit)[0] == 0
            if mended != (number < release.mended):
                problems.append(f"Apex {release.name}: {fault.mended[:10]} is {'' if mended else 'not '}in it")
    return problems


def check(fetch: t.Callable[[str], Json] = fetch, resolve: t.Callable[..., str] = unresolved) -> int:
    problems = []
    for what, (pin, pythons) in pinned().items():
        line, wrong = judged(what, pin, pythons, of_index(pin.partition("==")[0], fetch))
        print(line)
        problems += wrong
    for build, python, requirements in sets():
        conflict = resolve(build, python, requirements)
        print(f"{build}, Python {python}: {', '.join(requirements)}: {'in conflict' if conflict else 'resolved'}")
        problems += [conflict] if conflict else []
    place = os.environ.get("HPCAI_APEX_GIT", "")
    if place:
        problems += of_clone(place)
    print(f"Apex: {len(versions.APEX_RELEASES)} commits, {f'compared with {place}' if place else 'not compared'}")
    print("\n".join(["", *problems]) if problems else "\nAll that is pinned is there, for the Pythons that we say.")
    return 1 if problems else 0


def main() -> int:
    if sys.argv[1:] == ["check"]:
        return check()
    if sys.argv[1:] == ["cached"]:
        lacking = missing()
        if lacking:
            print(f"the training stack is neither built nor trained with; not yet downloaded: {', '.join(lacking)}.")
            print("`make training` downloads it, about 250 MB, where PyPI and download.pytorch.org can be reached")
        return 1 if lacking else 0
    if sys.argv[1:] != ["table"]:
        print(__doc__, file=sys.stderr)
        return 2
    old = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    records = merged(old, json.loads(NEW.read_text()) if NEW.exists() else [])
    RECORDS.write_text(json.dumps(records, indent=1) + "\n")
    PAGE.write_text(drawn(PAGE.read_text(), records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
