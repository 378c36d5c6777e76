# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The training stack as its roles state it, and what is known of it from runs.

``torch_stack.py check`` asks the package index (``UV_DEFAULT_INDEX``, else PyPI) for each pinned version: whether it is
there and not withdrawn, for which Python, and which is the newest.

``torch_stack.py cached`` ends with 0 where the control host has what the part ``training`` of the tests installs, and
else says what is missing.

``torch_stack.py table`` takes over what that part wrote to ``.build/training/records.json``, and draws the table of
docs/training_stack.md.
"""

from __future__ import annotations

import json
import os
import re
import sys
import typing as t
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.cuda_driver import numbers  # noqa: E402
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.fitting import within  # noqa: E402

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


def drawn(page: str, records: t.Sequence[Json]) -> str:
    """Return the page with the table of these records."""
    begin, end = "<!-- records: drawn by make training-table -->", "<!-- end of records -->"
    body = "\n".join([begin, "", *table(records), "", end])
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda dummy: body, page, flags=re.DOTALL)


def merged(old: t.Sequence[Json], new: t.Sequence[Json]) -> list[Json]:
    """Return the newest record of each package with each PyTorch."""
    by = {(one["package"], one["torch"]): one for one in [*old, *new]}
    return [by[key] for key in sorted(by)]


INDEX = "https://pypi.org/simple"
_JSON = "application/vnd.pypi.simple.v1+json"


def pinned() -> dict[str, tuple[str, str]]:
    """Return the versions that are pinned to an index, and the Pythons that we say they are for, by what pins them."""
    found = {}
    for name, package in known().items():
        if package["version"] and "git" not in package.get("source", {}):
            found[name] = (f"{name}=={package['version']}", str(package.get("fits", {}).get("python", "")))
    variables = yaml.safe_load((ROLES / "pytorch/vars/main.yml").read_text())
    for name, build in variables["__pytorch_builds"].items():
        lock = (ROLES / f"pytorch/files/{name}.txt").read_text()
        torch = re.search(r"^torch==([\d.]+)(\+\S+)?", lock, re.MULTILINE)
        # What has a local version is of PyTorch's own index, and made of the same release.
        found[f"build {name}"] = (
            f"torch=={torch[1] if torch else ''}",
            ",".join(f"=={one}" for one in build["pythons"]),
        )
    return found


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


def check(fetch: t.Callable[[str], Json] = fetch) -> int:
    problems = []
    for what, (pin, pythons) in pinned().items():
        line, wrong = judged(what, pin, pythons, of_index(pin.partition("==")[0], fetch))
        print(line)
        problems += wrong
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
