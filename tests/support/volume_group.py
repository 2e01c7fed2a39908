# SPDX-License-Identifier: Apache-2.0
"""The resources of a group: a database on a volume that follows the active member, of which the
stack is told."""

ACTIVE = {"get_param": "active"}
DATA = {"type": "volume_attachment", "properties": {"volume": "data_volume", "server": ACTIVE}}
DATABASE = {
    "type": "activation",
    "depends_on": "data",
    "properties": {
        "member": ACTIVE,
        "start": "start",
        "stop": "stop",
        "device": {"get_attr": ["data", "device"]},
    },
}
ROUTING = {
    "type": "stack_parameters",
    "depends_on": "database",
    "properties": {"parameters": {"active": ACTIVE}},
}
RESOURCES = {"data": DATA, "database": DATABASE, "routing": ROUTING}
