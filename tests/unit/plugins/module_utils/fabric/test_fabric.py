# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which switches nodes are on, by the links of a fabric, by clouds and by the inventory."""

from __future__ import annotations

import json
import typing as t

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import (
    FabricError,
    conf_lines,
    plain,
    yaml_lines,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.module import before, perform
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import ibnetdiscover
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.fabric.fabrics import (
    Fabric,
    fat_tree,
    rails,
)

EIGHT = ["c[1-8]"]


def request(source: str, nodes: t.Sequence[str], **more: t.Any) -> dict[str, t.Any]:
    return {"source": source, "nodes": nodes, "hosts": {}, "names": {}, "joined": None, **more}


def seen(fabric: Fabric, nodes: t.Sequence[str], present: str = "", **more: t.Any) -> dict[str, t.Any]:
    return perform(request("infiniband", nodes, **more), fabric.print(), present)


def lines(result: dict[str, t.Any], **more: t.Any) -> list[str]:
    return conf_lines(result["switches"], more.get("plugin", "tree"), more.get("sizes", []), more.get("version", ""))


def test_a_fat_tree_becomes_a_tree() -> None:
    result = seen(fat_tree(), EIGHT)
    assert lines(result) == [
        "SwitchName=p1leaf1 Nodes=c[1-2]",
        "SwitchName=p1leaf2 Nodes=c[3-4]",
        "SwitchName=p2leaf1 Nodes=c[5-6]",
        "SwitchName=p2leaf2 Nodes=c[7-8]",
        "SwitchName=p1spine1 Switches=p1leaf[1-2]",
        "SwitchName=p2spine1 Switches=p2leaf[1-2]",
        "SwitchName=core1 Switches=p1spine1,p2spine1",
    ]
    assert (result["findings"], result["missing"]) == ([], [])
    assert result["leaves"]["c7"] == {"leaf": "p2leaf2", "pod": "p2spine1"}


def test_the_order_of_what_was_printed_changes_nothing() -> None:
    fabric = fat_tree()
    first = lines(seen(fabric, EIGHT))
    fabric.devices = dict(reversed(list(fabric.devices.items())))
    assert lines(seen(fabric, EIGHT[::-1])) == first


def test_nodes_on_the_same_eight_rails_are_on_one_leaf() -> None:
    assert lines(seen(rails(), ["dgx[01-04]"])) == [
        "SwitchName=su1-leaf1 Nodes=dgx[01-02]",
        "SwitchName=su2-leaf1 Nodes=dgx[03-04]",
        "SwitchName=spine1 Switches=su1-leaf1,su2-leaf1",
    ]


def test_a_node_that_has_lost_a_rail_stays_with_its_neighbours_and_is_told_of() -> None:
    fabric = rails(nodes=3)
    lost = next(guid for guid, device in fabric.devices.items() if device[1] == "dgx02 mlx5_6")
    switch, port = fabric.links[lost].pop(1)
    del fabric.links[switch][port]
    result = seen(fabric, ["dgx[01-06]"])
    assert lines(result)[0] == "SwitchName=su1-leaf1 Nodes=dgx[01-03]"
    assert result["findings"] == ["dgx02: no link to su1-leaf7, where its neighbours have one (7 of 8 leaves)"]


def test_leaf_switches_without_compute_nodes_are_dropped_and_their_machines_named() -> None:
    fabric = fat_tree(pods=1)
    spines = [guid for guid, device in fabric.devices.items() if "spine" in device[1]]
    storage = fabric.switch("MF0;storage:MQM9700/U1")
    for spine in spines:
        fabric.link(storage, spine)
    fabric.adapter("nfs1 HCA-1", storage)
    fabric.adapter("ufm HCA-1", spines[0])  # on a spine, which is no leaf for that
    result = seen(fabric, ["c[1-4]"])
    assert [line.split()[0] for line in lines(result)] == [
        "SwitchName=p1leaf1",
        "SwitchName=p1leaf2",
        "SwitchName=p1spine1",
    ]
    assert "2 adapters belong to no node of Slurm" in result["findings"][0]
    assert "nfs1 HCA-1" in result["findings"][0]


def test_a_node_that_the_fabric_does_not_show_is_never_absent() -> None:
    result = seen(fat_tree(), ["c[1-8]", "c[10-11]"])
    assert result["missing"] == ["c10", "c11"]
    assert "SwitchName=unplaced Nodes=c[10-11]" in lines(result)
    assert "c[10-11]: not found in the network; put on switch unplaced, apart from all others" in result["findings"][0]
    assert "nothing joins unplaced, core1" in result["findings"][1]


def test_a_node_that_is_off_stays_where_topology_conf_had_it() -> None:
    present = "SwitchName=p2leaf2 Nodes=c[7-9] # rack 4\nSwitchName=gone Nodes=c10\n"
    result = seen(fat_tree(), ["c[1-10]"], present)
    assert "SwitchName=p2leaf2 Nodes=c[7-9]" in lines(result)
    assert "SwitchName=unplaced Nodes=c10" in lines(result)
    assert result["missing"] == ["c9", "c10"]


def test_parts_that_nothing_links_are_joined_only_when_asked() -> None:
    fabric = Fabric()
    for number in (1, 2):
        fabric.adapter(f"c{number} HCA-1", fabric.switch(f"MF0;sw{number}:MSB7800/U1"))
    apart, joined = seen(fabric, ["c[1-2]"]), seen(fabric, ["c[1-2]"], joined=True)
    assert "nothing joins sw1, sw2" in apart["findings"][0]
    assert lines(joined)[-1] == "SwitchName=top Switches=sw[1-2]"


def test_switches_that_are_all_called_alike_go_by_their_guid() -> None:
    fabric = Fabric()
    ends = [fabric.switch("SwitchIB Mellanox Technologies") for dummy in range(3)]
    for number, end in enumerate(ends[:2]):
        fabric.adapter(f"node{number + 1:03} HCA-1", end)
        fabric.link(end, ends[2])
    assert lines(seen(fabric, ["node[001-002]"])) == [
        f"SwitchName=S-{ends[0]} Nodes=node001",
        f"SwitchName=S-{ends[1]} Nodes=node002",
        f"SwitchName=S-{ends[2]} Switches=S-0c42a[10300000000,10300000010]",
    ]


def test_the_asics_of_a_director_switch_are_told_apart() -> None:
    fabric = Fabric()
    spine = fabric.switch("MF0;dir:CS8500/S01/U1")
    for number in (1, 2):
        line = fabric.switch(f"MF0;dir:CS8500/L0{number}/U1")
        fabric.link(line, spine)
        fabric.adapter(f"c{number} HCA-1", line)
    assert lines(seen(fabric, ["c[1-2]"])) == [
        "SwitchName=dir-L01-U1 Nodes=c1",
        "SwitchName=dir-L02-U1 Nodes=c2",
        "SwitchName=dir-S01-U1 Switches=dir-L01-U1,dir-L02-U1",
    ]


def test_adapters_go_by_host_name_domain_guid_or_what_the_site_says() -> None:
    fabric = Fabric()
    leaf = fabric.switch("MF0;leaf1:MQM9700/U1")
    fabric.adapter("c1.example.org mlx5_0", leaf)
    nameless = fabric.adapter("MT4129 ConnectX7   Mellanox Technologies", leaf)
    fabric.adapter("lc3 mlx5_0", leaf)
    names = {f"0x{int(nameless, 16):x}": "c2", "lc3": "c3"}
    assert lines(seen(fabric, ["c[1-3]"], names=names)) == ["SwitchName=leaf1 Nodes=c[1-3]"]
    with pytest.raises(FabricError, match="names leads to nodes that Slurm does not have: c4"):
        seen(fabric, ["c[1-3]"], names={"lc3": "c4"})


def test_a_fabric_where_nobody_goes_by_slurms_names_says_how_they_are_called() -> None:
    with pytest.raises(FabricError, match=r"no adapter .* one of n\[1-8\]; they are called .*'c1 mlx5_0'"):
        seen(fat_tree(), ["n[1-8]"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is missing"),
        ("ibwarn: [42] mad_rpc_open_port: can't open UMAD port ((null):0)\n", "is missing"),
        ("#\n# Topology file: generated on Mon Nov 23 08:21:07 2026\n#\n", "found no device"),
        (fat_tree().print()[:-3], "cut off"),
        (fat_tree().print() + 'Switch\t65 "S-zz"\t\t# "x" base port 0 lid 1 lmc 0\n', "1 lines that cannot be read"),
    ],
)
def test_what_is_no_whole_discovery_is_refused(text: str, said: str) -> None:
    with pytest.raises(FabricError, match=said):
        perform(request("infiniband", ["c1"]), text, "")


def test_a_description_cannot_pretend_to_be_another_line() -> None:
    fabric = Fabric()
    leaf = fabric.switch('MF0;leaf1:MQM9700/U1" enhanced port 0 lid 1 lmc 0')
    fabric.adapter('c1 mlx5_0" lid 1 4xNDR # "c2', leaf)
    fabric.adapter("c3 x$(reboot) Nodes=c[1-99]", leaf)
    result = seen(fabric, ["c[1-3]"])
    assert [name for name in result["leaves"] if name not in result["missing"]] == ["c1", "c3"]
    assert "SwitchName=MF0-leaf1-MQM9700-U1-enhanced-port-0-lid-1-lmc-0 Nodes=c[1,3]" in lines(result)


def test_lines_of_a_capture_are_read() -> None:
    """A few lines that ibnetdiscover printed of a cluster with EDR, and of one with NDR, whose blanks were tabs."""
    text = (
        "#\n# Topology file: generated on Mon Dec 18 12:34:08 2023\n#\n"
        "# Initiated from node 506b4b030043f9e2 port 506b4b030043f9e2\n"
        "switchguid=0xec0d9a0300ec8240(ec0d9a0300ec8240)\n"
        'Switch\t36 "S-ec0d9a0300ec8240"\t\t# "SwitchIB Mellanox Technologies" base port 0 lid 48 lmc 0\n'
        '[12]\t"H-08c0eb0300ddc0f6"[1](8c0eb0300ddc0f6) \t\t# "node046 HCA-1" lid 103 4xEDR\n'
        '[13]\t"S-ec0d9a0300ec81e0"[19]\t\t# "SwitchIB Mellanox Technologies" lid 21 4xEDR\n'
        "switchguid=0x9c0591030090ab00(9c0591030090ab00)\n"
        'Switch  129 "S-9c0591030090ab00"         # "MF0;QM97-02:MQM9700/U1" enhanced port 0 lid 1 lmc 0\n'
        '[1]     "H-b83fd20300a1b2c4"[1](b83fd20300a1b2c4)          # "node005 mlx5_2" lid 22 2xNDR\n'
        'Ca      2 "H-0000000000100003"          # "Hca2"\n'
        '[1](100004)     "S-ec0d9a0300ec8240"[1]         # lid 5 lmc 0 "Switch2" lid 3 4xSDR\n'
    )
    run = ibnetdiscover.parse(text)
    assert run.complete
    assert [(port.guid[:4], port.port, port.peer[:4], port.rate) for port in run.ports] == [
        ("ec0d", 12, "08c0", "4xEDR"),
        ("ec0d", 13, "ec0d", "4xEDR"),
        ("9c05", 0, "b83f", "2xNDR"),
        ("0000", 1, "ec0d", "4xSDR"),
    ]
    assert run.devices["08c0eb0300ddc0f6"].description == "node046 HCA-1"
    assert run.devices["ec0d9a0300ec81e0"].kind == ibnetdiscover.SWITCH


def test_output_with_chassis_is_read() -> None:
    """ibnetdiscover -g writes external ports and where in the chassis an ASIC is."""
    text = (
        "#\n# Topology file: generated on Mon Dec 18 12:34:08 2023\n#\n\nChassis 1 (guid 0x8f1040041aa)\n"
        "\n# Spine Nodes\nsysimgguid=0x8f10400411a09\t\t# Chassis 1\n"
        "switchguid=0x8f10400411a08(8f10400411a08)\t# Spine 1\n"
        'Switch\t24 "S-0008f10400411a08"\t\t# "ISR2012 Voltaire" base port 0 lid 742 lmc 0\n'
        '[23][ext 5]\t"H-0002c90200247010"[1](2c90200247011) \t\t# "c1 HCA-1" lid 12 4xDDR s=2 w=2 v=4\n'
    )
    assert lines(perform(request("infiniband", ["c1"]), text, "")) == ["SwitchName=ISR2012-Voltaire Nodes=c1"]


@pytest.mark.parametrize("port", ['[{}]\t"H-08c0eb0300ddc0f6"[1]', '[12]\t"H-08c0eb0300ddc0f6"[{}]'])
def test_a_port_with_more_digits_than_ports_have_is_a_line_that_cannot_be_read(port: str) -> None:
    text = (
        "#\n# Topology file: generated on Mon Dec 18 12:34:08 2023\n#\n"
        'Switch\t36 "S-ec0d9a0300ec8240"\t\t# "leaf" base port 0 lid 48 lmc 0\n'
        + port.format("9" * 5000)
        + '(08c0eb0300ddc0f6) \t\t# "node046 HCA-1" lid 103 4xEDR\n'
    )
    run = ibnetdiscover.parse(text)
    assert not run.complete
    assert len(run.unread) == 1


PLACES = (("a3-0", "b1", "s1"), ("a3-1", "b1", "s2"), ("a3-2", "b2", "s1"))
GOOGLE: list[dict[str, t.Any]] = [
    {
        "id": f"8{name}",
        "name": name,
        "resourceStatus": {
            "physicalHostTopology": {"cluster": "us-c1", "block": block, "subblock": subblock, "host": f"h{name}"}
        },
    }
    for name, block, subblock in PLACES
] + [{"id": "84", "name": "login", "resourceStatus": {"upcomingMaintenance": {}}}]


def test_google_says_block_and_subblock() -> None:
    result = perform(request("google", ["a3-[0-2]"]), json.dumps(GOOGLE), "")
    assert lines(result) == [
        "SwitchName=b1-s1 Nodes=a3-0",
        "SwitchName=s2 Nodes=a3-1",
        "SwitchName=b2-s1 Nodes=a3-2",
        "SwitchName=b1 Switches=b1-s1,s2",
        "SwitchName=b2 Switches=b2-s1",
        "SwitchName=us-c1 Switches=b[1-2]",
    ]
    assert "login" in result["findings"][0]


def test_googles_older_answer_ends_with_the_host() -> None:
    old = [
        {"name": f"g{number}", "resourceStatus": {"physicalHost": f"/b1/{rack}/host{number}"}}
        for number, rack in ((1, "r1"), (2, "r2"))
    ]
    result = perform(request("google", ["g[1-3]"]), json.dumps(old), "")
    assert lines(result)[-1] == "SwitchName=top Switches=b1,unplaced"
    assert result["leaves"]["g2"] == {"leaf": "r2", "pod": "b1"}


AWS = {
    "Instances": [
        {
            "InstanceId": f"i-{n}111111111example",
            "InstanceType": "p4d.24xlarge",
            "GroupName": "my-ml-cpg",
            "NetworkNodes": ["nn-1111111111example", "nn-2222222222example", f"nn-{leaf}333333333example"],
            "ZoneId": "usw2-az2",
            "AvailabilityZone": "us-west-2a",
        }
        for n, leaf in ((1, 3), (2, 3), (3, 4))
    ]
}


def test_aws_says_network_nodes_from_the_top_down() -> None:
    names = {f"i-{n}111111111example": f"c{n}" for n in (1, 2, 3)}
    assert lines(perform(request("aws", ["c[1-3]"], names=names), json.dumps(AWS), "")) == [
        "SwitchName=nn-3333333333example Nodes=c[1-2]",
        "SwitchName=nn-4333333333example Nodes=c3",
        "SwitchName=nn-2222222222example Switches=nn-3333333333example,nn-4333333333example",
    ]


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        ("aws", "An error occurred (UnauthorizedOperation)", "is not the JSON that 'aws ec2"),
        ("aws", json.dumps({**AWS, "NextToken": "x"}), "only the first page"),
        ("aws", json.dumps(AWS), "tells of none of the nodes c1, c2, c3; it has i-1111111111example"),
        ("google", "{}", "a list is missing"),
    ],
)
def test_an_answer_that_is_no_answer_is_refused(source: str, text: str, said: str) -> None:
    with pytest.raises(FabricError, match=said):
        perform(request(source, ["c[1-3]"]), text, "")


def test_the_inventory_names_leaves() -> None:
    hosts = {"c1": "pod1/leaf1", "c2": "pod1/leaf2", "c3": "pod2", "c4": ""}
    assert lines(perform(request("hosts", ["c[1-4]"], hosts=hosts), "", "")) == [
        "SwitchName=leaf1 Nodes=c1",
        "SwitchName=leaf2 Nodes=c2",
        "SwitchName=pod2 Nodes=c3",
        "SwitchName=unplaced Nodes=c4",
        "SwitchName=pod1 Switches=leaf[1-2]",
        "SwitchName=top Switches=pod[1-2],unplaced",
    ]
    with pytest.raises(FabricError, match="hosts names nodes that Slurm does not have: c9"):
        perform(request("hosts", ["c1"], hosts={"c1": "leaf1", "c9": "leaf1"}), "", "")


def test_nodes_beside_switches_get_a_switch_of_their_own() -> None:
    hosts = {"c1": "pod1", "c2": "pod1/leaf1"}
    assert lines(perform(request("hosts", ["c[1-2]"], hosts=hosts), "", "")) == [
        "SwitchName=leaf1 Nodes=c2",
        "SwitchName=pod1-nodes Nodes=c1",
        "SwitchName=pod1 Switches=leaf1,pod1-nodes",
    ]


def test_blocks_are_neighbours_in_the_file_as_in_the_network() -> None:
    result = seen(fat_tree(nodes=2), EIGHT)
    assert lines(result, plugin="block", sizes=[2, 8], version="24.11.5") == [
        "BlockName=p1leaf1 Nodes=c[1-2]",
        "BlockName=p1leaf2 Nodes=c[3-4]",
        "BlockName=p2leaf1 Nodes=c[5-6]",
        "BlockName=p2leaf2 Nodes=c[7-8]",
        "BlockSizes=2,8",
    ]
    assert lines(result, plugin="block")[-1] == "BlockSizes=2"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"plugin": "block", "version": "22.05.8"}, "needs Slurm 24.05, and this is 22.05.8"),
        ({"plugin": "block", "sizes": [3]}, "p1leaf1, p1leaf2, p2leaf1, p2leaf2 has fewer nodes"),
        ({"plugin": "block", "sizes": [2, 6]}, "6 after 2"),
        ({"plugin": "block", "sizes": [2, 2]}, "2 after 2"),
        ({"plugin": "block", "sizes": ["x"]}, "numbers of nodes"),
        ({"plugin": "block", "sizes": [0]}, "begins with 0"),
        ({"sizes": [2]}, "is for slurm_topology_plugin block"),
        ({"plugin": "torus"}, "tree or block"),
    ],
)
def test_what_slurmctld_would_not_start_with_is_refused(more: dict[str, t.Any], said: str) -> None:
    with pytest.raises(FabricError, match=said):
        lines(seen(fat_tree(), EIGHT), **more)


def test_from_25_05_a_block_may_be_smaller() -> None:
    result = seen(fat_tree(nodes=2), ["c[1-9]"])
    assert lines(result, plugin="block", version="25.05.1")[-1] == "BlockSizes=2"
    assert lines(result, plugin="block", version="24.11.5")[-2:] == ["BlockName=unplaced Nodes=c9", "BlockSizes=1"]


def test_a_name_fits_slurm() -> None:
    assert plain("rack 4, row [2]") == "rack-4-row-2"
    assert len(plain("x" * 200)) == 63


NAMED: list[dict[str, t.Any]] = [
    {"name": "fabric"},
    {"name": "racks", "plugin": "block", "block_sizes": [2, 8]},
    {"name": "flat", "plugin": "flat", "default": True},
]


def test_several_topologies_become_one_yaml_file() -> None:
    """Taken by slurmctld 26.05.5: each topology's plugin was loaded, and a partition had Topology=racks."""
    tree = seen(fat_tree(nodes=2), EIGHT)["switches"]
    text = "\n".join(yaml_lines(NAMED, tree, "25.05.1"))
    fabric, racks, flat = yaml.safe_load(text)
    assert (fabric["topology"], fabric["cluster_default"]) == ("fabric", False)
    assert fabric["tree"]["switches"][0] == {"switch": "p1leaf1", "nodes": "c[1-2]"}
    assert {"switch": "p1spine1", "children": "p1leaf[1-2]"} in fabric["tree"]["switches"]
    assert racks["block"]["block_sizes"] == [2, 8]
    assert racks["block"]["blocks"][0] == {"block": "p1leaf1", "nodes": "c[1-2]"}
    assert flat == {"topology": "flat", "cluster_default": True, "flat": True}


def test_the_first_topology_is_the_default_where_none_is_named_as_such() -> None:
    tree = seen(fat_tree(nodes=2), EIGHT)["switches"]
    assert [entry["cluster_default"] for entry in yaml.safe_load("\n".join(yaml_lines(NAMED[:2], tree, "")))] == [
        True,
        False,
    ]


def test_a_node_that_is_off_stays_where_our_topology_yaml_had_it() -> None:
    everything = seen(fat_tree(nodes=2), EIGHT)
    present = "# Ansible managed\n" + "\n".join(yaml_lines(NAMED, everything["switches"], ""))
    assert before(present) == {name: place["leaf"] for name, place in everything["leaves"].items()}
    assert before("- topology: a\n  tree: {switches: [{switch: s, nodes: c1}]}\n") == {}  # a person's


@pytest.mark.parametrize(
    ("entries", "version", "said"),
    [
        (NAMED, "24.11.5", "need topology.yaml of Slurm 25.05, and this is 24.11.5"),
        ([{"name": "a"}, {"name": "a"}], "", "each one's own"),
        ([{"name": "a\nb"}], "", "letters, digits"),
        ([{"name": "a", "plugin": "ring"}], "", "tree, block or flat"),
        ([{"name": "a", "block_sizes": [2]}], "", "has block_sizes with plugin tree"),
        ([{"name": "a", "plugin": "block", "block_sizes": [2, 6]}], "", "6 after 2"),
        (
            [{"name": "a", "plugin": "flat", "switches": [{"name": "s", "nodes": ["c1"]}]}],
            "",
            "has switches with plugin flat",
        ),
        ([{"name": "a", "default": True}, {"name": "b", "default": True}], "", "several are the default"),
        ([{"name": "a", "sizes": [2]}], "", "has sizes; accepted: name, plugin"),
    ],
)
def test_a_topology_yaml_that_slurmctld_ends_with_is_refused(entries: t.Any, version: str, said: str) -> None:
    with pytest.raises(FabricError, match=said):
        yaml_lines(entries, seen(fat_tree(nodes=2), EIGHT)["switches"], version)
    with pytest.raises(FabricError, match="there are no switches"):
        yaml_lines([{"name": "a"}], [], "")
