# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster needs of Google besides instances: which command makes it, and whether it is as wanted. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.gcloud import Gcloud, GcloudError

Record = t.Mapping[str, t.Any]


class Kind(t.NamedTuple):
    """``place``: flags that find it. ``flags``: what it may be made with. ``update``: flags that can be changed later,
    with the field of Google's description that they show in."""

    words: tuple[str, ...]
    flags: tuple[str, ...]
    place: tuple[str, ...] = ()
    update: t.Mapping[str, str] = {}


KINDS: dict[str, Kind] = {
    "network": Kind(("compute", "networks"), ("subnet-mode",)),
    "subnet": Kind(
        ("compute", "networks", "subnets"),
        ("network", "range", "region", "enable-private-ip-google-access"),
        ("region",),
    ),
    "firewall_rule": Kind(
        ("compute", "firewall-rules"),
        ("network", "direction", "allow", "source-ranges", "source-tags", "target-tags"),
        update={"source-ranges": "sourceRanges", "source-tags": "sourceTags", "target-tags": "targetTags"},
    ),
    "router": Kind(("compute", "routers"), ("network", "region"), ("region",)),
    "nat": Kind(
        ("compute", "routers", "nats"),
        ("router", "region", "nat-all-subnet-ip-ranges", "auto-allocate-nat-external-ips"),
        ("router", "region"),
    ),
    "service_account": Kind(("iam", "service-accounts"), ("display-name",)),
    "role_binding": Kind(("projects",), ("role",)),
}


def faults(kind: str, properties: Record) -> list[str]:
    """Say all that is wrong with a resource."""
    known = KINDS[kind]
    found = [f"{name} is no property of a {kind}" for name in sorted(set(properties) - set(known.flags))]
    needed = known.place if kind != "role_binding" else ("role",)
    return found + [f"a {kind} needs {name}" for name in needed if not properties.get(name)]


def perform(gcloud: Gcloud, kind: str, name: str, properties: Record, state: str, check: bool) -> dict[str, t.Any]:
    """Bring one resource to its state; return what an Ansible module returns."""
    wrong = faults(kind, properties)
    if wrong:
        raise GcloudError("; ".join(wrong))
    if kind == "role_binding":
        words, flags = _binding(gcloud, name, str(properties["role"]), state)
    else:
        words, flags = _resource(gcloud, KINDS[kind], name, properties, state)
    if words and not check:
        gcloud.ask(words, flags)
    return {"changed": bool(words), "command": gcloud.argv(words, flags)[1:] if words else []}


Step = t.Tuple[t.List[str], t.Dict[str, t.Any]]


def _resource(gcloud: Gcloud, kind: Kind, name: str, properties: Record, state: str) -> Step:
    address = f"{name}@{gcloud.project}.iam.gserviceaccount.com" if kind.words[0] == "iam" else name
    place = {key: properties[key] for key in kind.place}
    now = gcloud.find([*kind.words, "describe", address], place)
    if state == "absent":
        return ([*kind.words, "delete", address], place) if now is not None else ([], {})
    if now is None:
        return [*kind.words, "create", name], dict(properties)
    changes = {
        flag: properties[flag]
        for flag, field in kind.update.items()
        if flag in properties and sorted(properties[flag]) != sorted(now.get(field) or [])
    }
    return ([*kind.words, "update", address], {**place, **changes}) if changes else ([], {})


def _binding(gcloud: Gcloud, member: str, role: str, state: str) -> Step:
    policy = gcloud.ask(["projects", "get-iam-policy", gcloud.project], {}) or {}
    bindings = policy.get("bindings") or []
    held = any(one.get("role") == role and member in one.get("members", []) for one in bindings)
    if held == (state == "present"):
        return [], {}
    verb = "add-iam-policy-binding" if state == "present" else "remove-iam-policy-binding"
    return ["projects", verb, gcloud.project], {"member": member, "role": role, "condition": "None"}
