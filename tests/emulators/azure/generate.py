# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the property names of providers/*.json anew from the models of the installed SDKs.

Run with a Python that has azure.azcollection's SDKs. The "types" part of a file is written by hand and kept. A property
is "type", with "!" when required and "~" when only the service sets it; [x] is a list, {x} a dictionary, a|b a choice.
"""

from __future__ import annotations

import importlib
import json
import re
import typing as t
from pathlib import Path

PLAIN = {"str": "str", "int": "int", "long": "int", "float": "float", "bool": "bool", "object": "object"}
# What a body may point at but this emulator does not keep: any properties.
FOREIGN = """ApplicationGatewayIPConfiguration ApplicationGatewayBackendAddressPool BackendAddressPool InboundNatRule
LoadBalancer PrivateEndpoint PrivateLinkService VirtualNetworkTap ServiceEndpointPolicy NetworkInterfaceTapConfiguration
DdosSettings DscpConfiguration IpAllocation FlowLog VirtualNetworkGateway""".split()

# A longer list is no closed set (VM sizes); what newer api-versions have that the SDK's models lack.
LONGEST = 40
NEWER = {"RunbookTypeEnum": ["PowerShell72", "Python"]}
MORE = {"RunbookCreateOrUpdateParameters": {"runtimeEnvironment": "str"}}
# Models that the SDK of azure.azcollection lacks altogether, written by hand; they are kept.
OWN = ("RuntimeEnvironment",)


class Reader:
    """Collects the models that a model needs."""

    def __init__(self) -> None:
        self.models: dict[str, t.Any] = {}

    def type_of(self, said: str, module: t.Any, enum: str) -> str:
        if said[0] in "[{":
            return f"{said[0]}{self.type_of(said[1:-1], module, enum)}{said[-1]}"
        if said == "str" and enum and hasattr(module, enum):
            known = [item.value for item in getattr(module, enum)] + NEWER.get(enum, [])
            return "|".join(known) if len(known) <= LONGEST else "str"
        if said in FOREIGN:
            return "object"
        if said not in PLAIN and hasattr(module, said):
            self.add(said, module)
            return said
        return PLAIN.get(said, "str")

    def add(self, name: str, module: t.Any) -> None:
        if name in self.models:
            return
        model = getattr(module, name)
        self.models[name] = {}
        told = "\n".join(c.__doc__ or "" for c in model.__mro__)
        for attribute, detail in model._attribute_map.items():
            rule = model._validation.get(attribute, {})
            found = re.search(rf":(?:vartype|ivar|paramtype) {attribute}: [^:]*?~[\w.]+\.models\.(\w+)", told)
            said = self.type_of(detail["type"], module, found[1] if found else "")
            mark = "~" if rule.get("readonly") else "!" if rule.get("required") else ""
            *way, last = re.split(r"(?<!\\)\.", detail["key"])
            place = self.models[name]
            for step in way:
                place = place.setdefault(step, {})
            place[last.replace("\\", "")] = said + mark
        self.models[name].get("properties", {}).update(MORE.get(name, {}))


def _text(data: dict[str, t.Any]) -> str:
    """JSON with one type or model a line."""
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items())
            parts.append(f" {json.dumps(key)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    for path in sorted((Path(__file__).parent / "providers").glob("*.json")):
        data = json.loads(path.read_text())
        reader = Reader()
        for kind in data["types"].values():
            package = kind.get("sdk") or data.get("sdk")
            for name in (kind.get("model"), kind.get("patch")) if package else ():
                if name in OWN:
                    reader.models[name] = data["models"][name]
                elif name:
                    reader.add(name, importlib.import_module(package))
        if reader.models:
            data["models"] = dict(sorted(reader.models.items()))
        path.write_text(_text(data))


if __name__ == "__main__":
    main()
