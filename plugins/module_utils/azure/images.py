# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and versions of marketplace images. No I/O. Private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.finding import Finding

_URN = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+:[\w.-]+")


class Urn(t.NamedTuple):
    """A marketplace image."""

    publisher: str
    offer: str
    sku: str
    version: str

    def __str__(self) -> str:
        return ":".join(self)


class Image(t.NamedTuple):
    """What Azure says about one version of an image."""

    urn: Urn
    plan: t.Mapping[str, str] | None = None
    generation: str = ""
    architecture: str = ""
    accepted: bool | None = None


def parse(text: str) -> Urn | None:
    """Read publisher:offer:sku:version; anything else, such as a resource id, is not a marketplace image."""
    return Urn(*text.split(":")) if _URN.fullmatch(text) else None


def order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return what versions are sorted by: as numbers where they are numbers, so 9 comes before 10."""
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in version.split("."))


def resolve(urn: Urn, versions: t.Iterable[str]) -> str | None:
    """Return the version that is meant, or None where there is none."""
    known = sorted(versions, key=order)
    if urn.version.lower() == "latest":
        return known[-1] if known else None
    return urn.version if urn.version in known else None


def absent(urn: Urn, subject: str, location: str, versions: t.Iterable[str]) -> Finding:
    """Return what is told when there is no such version."""
    newest = sorted(versions, key=order)[-3:]
    if not newest:
        action = "Check publisher, offer and sku (az vm image list-skus)."
    else:
        action = f"The newest are {', '.join(newest)}; the very newest is meant by latest."
    return Finding("image", subject, f"There is no image {urn} in {location}.", action, True)


def judge(image: Image, subject: str, generations: t.Sequence[str], architecture: str | None) -> list[Finding]:
    """Return what stands against an image on a size."""
    found = []
    urn = str(image.urn)
    if image.architecture and architecture and image.architecture.lower() != architecture.lower():
        problem = f"{urn} is for {image.architecture}, the size is {architecture}."
        found.append(Finding("image", subject, problem, "Choose an image of that architecture.", True))
    if image.generation and generations and image.generation.upper() not in {one.upper() for one in generations}:
        problem = f"{urn} is of generation {image.generation}, the size starts only {', '.join(generations)}."
        found.append(Finding("image", subject, problem, "Choose the other generation of the image.", True))
    if image.plan and not image.accepted:
        place = f"{image.plan['publisher']}:{image.plan['product']}:{image.plan['name']}"
        known = "are not accepted" if image.accepted is False else "cannot be read"
        action = (
            f"Accept them (az vm image terms accept --urn {urn}), or let the role do it where it has an option for it."
        )
        found.append(Finding("terms", subject, f"The terms of {place} {known}.", action, True))
    return found
