# SPDX-License-Identifier: Apache-2.0
"""The stacks that the contract is tested with; FLAVOR stands for the cloud's smallest one."""

from __future__ import annotations

_SERVER = """
type: OS::Nova::Server
    properties: {image: tiny, flavor: FLAVOR, networks: [{allocate_network: none}]}
""".strip()

PAIR = f"""
heat_template_version: 2021-04-16
parameters:
  active: {{type: string, default: db_a}}
  copies: {{type: number, default: 1}}
  shared: {{type: boolean, default: true}}
  zones: {{type: comma_delimited_list, default: 'a,b'}}
  options: {{type: json, default: {{k: 1}}}}
  secret: {{type: string, default: s, hidden: true}}
  wait: {{type: number, default: 0}}
  broken: {{type: boolean, default: false}}
  kind: {{type: string, default: a, constraints: [allowed_values: [a, b]]}}
resources:
  db_a:
    {_SERVER}
  db_b:
    {_SERVER}
  data: {{type: OS::Cinder::Volume, properties: {{size: 1}}}}
  slow:
    type: OS::Heat::TestResource
    properties:
      value: {{get_param: active}}
      fail: {{get_param: broken}}
      action_wait_secs: {{update: {{get_param: wait}}}}
"""

MEMBER = f"""
heat_template_version: 2021-04-16
resources:
  node:
    {_SERVER}
"""

GROUPS = """
heat_template_version: 2021-04-16
resources:
  plain:
    type: OS::Heat::AutoScalingGroup
    properties:
      min_size: 1
      max_size: 3
      desired_capacity: 2
      resource:
        type: OS::Nova::Server
        properties: {image: tiny, flavor: FLAVOR, networks: [{allocate_network: none}]}
  deep:
    type: OS::Heat::AutoScalingGroup
    properties:
      min_size: 1
      max_size: 2
      desired_capacity: 1
      resource: {type: member.yaml}
  data: {type: OS::Cinder::Volume, properties: {size: 1}}
"""

MARKS = """
heat_template_version: 2021-04-16
resources:
  config: {type: OS::Heat::TestResource, properties: {value: hello}}
  user:
    type: OS::Nova::Server
    properties:
      image: tiny
      flavor: FLAVOR
      networks: [{allocate_network: none}]
      user_data: {get_resource: config}
  later:
    type: OS::Nova::Server
    depends_on: config
    properties: {image: tiny, flavor: FLAVOR, networks: [{allocate_network: none}]}
  data: {type: OS::Cinder::Volume, properties: {size: 1}}
"""

CREW_MEMBER = f"""
heat_template_version: 2021-04-16
parameters:
  broken: {{type: boolean}}
  wait: {{type: number}}
resources:
  node:
    {_SERVER}
  side:
    type: OS::Heat::TestResource
    properties:
      fail: {{get_param: broken}}
      action_wait_secs: {{create: {{get_param: wait}}}}
"""

CREW = """
heat_template_version: 2021-04-16
parameters:
  least: {type: number, default: 2}
  broken: {type: boolean, default: false}
  wait: {type: number, default: 0}
resources:
  plain:
    type: OS::Heat::AutoScalingGroup
    properties:
      min_size: 1
      max_size: 3
      desired_capacity: 2
      resource:
        type: OS::Nova::Server
        properties: {image: tiny, flavor: FLAVOR, networks: [{allocate_network: none}]}
  free:
    type: OS::Heat::AutoScalingGroup
    properties:
      min_size: {get_param: least}
      max_size: 3
      resource:
        type: OS::Nova::Server
        properties: {image: tiny, flavor: FLAVOR, networks: [{allocate_network: none}]}
  deep:
    type: OS::Heat::AutoScalingGroup
    properties:
      min_size: 1
      max_size: 2
      desired_capacity: 1
      resource:
        type: crew_member.yaml
        properties: {broken: {get_param: broken}, wait: {get_param: wait}}
  rows:
    type: OS::Heat::ResourceGroup
    properties:
      count: 1
      resource_def:
        type: OS::Nova::Server
        properties: {image: tiny, flavor: FLAVOR, networks: [{allocate_network: none}]}
  single:
    type: OS::Nova::Server
    properties: {image: tiny, flavor: FLAVOR, networks: [{allocate_network: none}]}
"""

ALIASES = f"""
heat_template_version: 2021-04-16
resources:
  single:
    {_SERVER.replace("OS::Nova::Server", "Own::Server")}
  deep: {{type: Own::Node}}
  crew:
    type: OS::Heat::AutoScalingGroup
    properties: {{min_size: 1, max_size: 1, resource: {{type: Own::Node}}}}
  hollow:
    type: OS::Heat::AutoScalingGroup
    properties: {{min_size: 1, max_size: 1, resource: {{type: Own::Hollow}}}}
  disk: {{type: Own::Disk, properties: {{size: 1}}}}
"""
"""Each type has another name, by `REGISTRY`; a node's server is two stacks below it."""

REGISTRY = {
    "Own::Server": "OS::Nova::Server",
    "Own::Disk": "OS::Cinder::Volume",
    "Own::Node": "own_node.yaml",
    "Own::Hollow": "own_hollow.yaml",
}

ALIASED_FILES = {
    "own_node.yaml": """
heat_template_version: 2021-04-16
resources:
  inner: {type: own_inner.yaml}
""",
    "own_inner.yaml": f"""
heat_template_version: 2021-04-16
resources:
  node:
    {_SERVER.replace("OS::Nova::Server", "Own::Server")}
""",
    "own_hollow.yaml": """
heat_template_version: 2021-04-16
resources:
  marker: {type: OS::Heat::TestResource, properties: {value: x}}
""",
}
