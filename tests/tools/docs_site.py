# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation site, offline: the pages of this repository, and a reference from what ansible-doc shows.

``docs_site.py <directory>`` collects the pages below ``<directory>/source``, with links to other files turned into
links to the repository, lets antsibull-docs draw the reference, and Sphinx write
``<directory>/html``. A warning is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = "https://github.com/hpcai/gpu_cluster/blob/main"
PATTERNS = ("*.md", "docs/*.md", "docs/howto/*.md", "roles/*/README.md", "lab/*.md", "lab/roles/*/README.md")
PATTERNS += ("inventories/*/README.md", "site_template/README.md", "tests/*/README.md", "benchmarks/*.md")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
# Labels in the reference that are no page of ours.
LABEL = re.compile(
    r"[<`]((?:ansible_collections\.(?!hpcai\.)[a-z0-9_.]+_[a-z]+)|common_return_values|[a-z]+_plugins|ansible_configuration_settings)[>`]"
)
ANSIBLE = "https://docs.ansible.com/ansible/latest"
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return sorted({path.relative_to(ROOT) for pattern in PATTERNS for path in ROOT.glob(pattern)})


def relinked(page: Path, text: str, known: set[Path]) -> str:
    """Turn links to what is no page into links to the repository; Sphinx refuses those to what is not there at all."""

    def link(found: re.Match[str]) -> str:
        goal, hash_, part = found[2].partition("#")
        if not goal or re.match(r"[a-z]+:", goal):
            return found[0]
        there = Path(os.path.normpath(page.parent / goal))
        if there in known or not (ROOT / there).exists():
            return found[0]
        readme = there / "README.md"
        if readme in known:
            return f"{found[1]}{os.path.relpath(readme, page.parent)}{hash_}{part}{found[3]}"
        if goal.endswith(".png"):
            return found[0]
        return f"{found[1]}{CODE}/{there}{hash_}{part}{found[3]}"

    pieces = FENCE.split(text)
    return "".join(piece if piece.startswith("```") else LINK.sub(link, piece) for piece in pieces)


def collect(source: Path) -> None:
    """Copy the pages, and write the index: the guides in the order of their page, then all roles, then the rest."""
    known = set(pages())
    for page in known:
        target = source / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(relinked(page, (ROOT / page).read_text(encoding="utf-8"), known), encoding="utf-8")
    for picture in ROOT.glob("docs/*.png"):
        shutil.copy(picture, source / "docs" / picture.name)
    sections = {
        "How to": [page for page in known if page.parts[:2] == ("docs", "howto")],
        "Guides": [page for page in known if page.parts[0] == "docs" and len(page.parts) == 2],
        "Roles": [page for page in known if page.parts[0] == "roles"],
        "Inventories, template, rehearsal": [
            page for page in known if page.parts[0] in ("inventories", "site_template", "lab", "tests", "benchmarks")
        ],
        "Project": [page for page in known if len(page.parts) == 1 and page.name != "README.md"],
    }
    first = "README\nreference/collections/hpcai/gpu_cluster/index"
    text = f"# hpcai.gpu_cluster\n\n```{{toctree}}\n:maxdepth: 1\n{first}\n```\n"
    for caption, members in sections.items():
        lines = "\n".join(str(page.with_suffix("")) for page in sorted(members))
        text += f"\n```{{toctree}}\n:caption: {caption}\n:maxdepth: 1\n{lines}\n```\n"
    (source / "index.md").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "docs/conf.py", source / "conf.py")


def reference(goal: Path) -> None:
    """Draw a page for each plugin and role from the specifications that users see with ansible-doc."""
    goal.mkdir(parents=True)
    goal.chmod(0o755)
    antsibull("collection", "--use-current", "--fail-on-error", "--dest-dir", str(goal), "hpcai.gpu_cluster")


def antsibull(*words: str) -> None:
    program = Path(sys.executable).with_name("antsibull-docs")
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    subprocess.run([str(program), *words], env=environment, check=True)


def elsewhere(source: Path) -> None:
    """Give the labels that the reference takes from Ansible's own documentation a page of links to it."""
    texts = [page.read_text(encoding="utf-8") for page in (source / "reference").rglob("*.rst")]
    labels = {label for text in texts for label in LABEL.findall(text)}
    lines = [":orphan:", "", "Documented elsewhere", "====================", ""]
    for label in sorted(labels):
        namespace, dot, name = label.removeprefix("ansible_collections.").rpartition(".")
        place = f"collections/{namespace.replace('.', '/')}/{name}.html" if dot else "index.html"
        title = f"{namespace}.{name}" if dot else label.replace("_", " ")
        lines += [f".. _{label}:", "", title, "-" * len(title), "", f"`{ANSIBLE}/{place} <{ANSIBLE}/{place}>`__", ""]
    (source / "elsewhere.rst").write_text("\n".join(lines), encoding="utf-8")


def main(folder: Path) -> int:
    source = folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    collect(source)
    # Galaxy shows the same specifications by rules of its own.
    antsibull(
        "lint-collection-docs", "--plugin-docs", "--skip-rstcheck", "--validate-collection-refs", "self", str(ROOT)
    )
    reference(source / "reference")
    elsewhere(source)
    build = ["-m", "sphinx", "-b", "html", "-j", "auto", "-q", "-W", "--keep-going", str(source), str(folder / "html")]
    return subprocess.run([sys.executable, *build], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
