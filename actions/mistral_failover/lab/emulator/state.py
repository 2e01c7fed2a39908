# SPDX-License-Identifier: Apache-2.0
"""The state of the emulated cloud: plain dataclasses that convert to JSON and back.

Times are seconds since the epoch (float); ids are UUID strings, except project and user ids, which
are 32 hexadecimal digits as Keystone's are.
"""

import hashlib
import json
import time
import uuid
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from mistral_failover.model.documents import load_json

HOSTS = ("cmp1", "cmp2")
DEFAULT_ZONE = "nova"


def new_id() -> str:
    """A random UUID, as OpenStack gives to servers, volumes and stacks."""
    return str(uuid.uuid4())


def stable_hex(*parts: str) -> str:
    """A 32-digit id that is the same in every emulated cloud, for seeded projects and users."""
    return uuid.uuid5(uuid.NAMESPACE_URL, "/".join(parts)).hex


def token_key(token: str) -> str:
    """What the state keeps of a token: its hash, never the token."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass
class Project:
    """A tenant."""

    id: str
    name: str


@dataclass
class User:
    """A user of one project; an admin sees every project."""

    id: str
    name: str
    password: str
    project_id: str
    admin: bool = False
    enabled: bool = True


@dataclass
class ApplicationCredential:
    """A secret with which a user is authenticated in one project. ``access_rules``: the only
    requests that it is for; None: all."""

    id: str
    name: str
    secret: str
    user_id: str
    project_id: str
    access_rules: list[dict[str, str]] | None = None


@dataclass
class Trust:
    """A trust: another user may act in a project in this user's name, with these roles."""

    id: str
    trustor: str
    trustee: str
    project_id: str
    expires_at: float | None = None
    roles: list[str] = field(default_factory=lambda: ["member"])


@dataclass
class Token:
    """A project-scoped token; `trust_id` marks one that must not be re-scoped."""

    user_id: str
    project_id: str
    issued_at: float
    expires_at: float
    methods: list[str]
    trust_id: str | None = None
    application_credential_id: str | None = None


@dataclass
class Host:
    """A hypervisor: `compute_up` is nova-compute, `powered` the machine under it.

    `forced_down`, `disabled`: an administrator has told Nova so; `changed`: when. `reported`: when
    nova-compute reported last, if it does not report; 0.0: never. `broken_for`: the members, as
    GROUP/MEMBER, for whose sake it is broken now.
    """

    name: str
    compute_up: bool = True
    powered: bool = True
    forced_down: bool = False
    reported: float = 0.0
    disabled: bool = False
    changed: float = 0.0
    broken_for: list[str] = field(default_factory=list)

    def stop_reports(self) -> None:
        """End nova-compute."""
        if self.reports:
            self.reported = time.time()
        self.compute_up = False

    @property
    def reports(self) -> bool:
        """Whether its compute service reports to Nova."""
        return self.compute_up and self.powered

    @property
    def updated(self) -> float:
        """When Nova changed its record of the compute service last: by a report of the service, or
        by an administrator (a column with `onupdate`). Nova shows no time of the report alone."""
        return max(time.time() if self.reports else self.reported, self.changed)

    @property
    def up(self) -> bool:
        """Whether Nova counts its compute service as up."""
        return self.reports and not self.forced_down


@dataclass
class Server:
    """A server as Nova knows it; the real state of its guest is in `Guest`."""

    id: str
    project_id: str
    name: str
    host: str
    created: float
    updated: float
    zone: str = DEFAULT_ZONE
    status: str = "BUILD"
    vm_state: str = "building"
    task_state: str | None = "scheduling"
    power_state: int = 0
    image: str = ""
    flavor: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    user_id: str = ""
    busy_until: float = 0.0
    fault: str | None = None
    owner: list[str] | None = None
    server_group: str | None = None
    locked: bool = False
    launched_at: float | None = None  # when it first ran


@dataclass
class ServerAction:
    """A request that Nova accepted for a server: ``stop``, ``evacuate``, ``detach_volume``, ... It
    outlives the server.

    `event`: by which name the compute service records what it does, None if it heard nothing.
    `operation`: what it does, if that is an operation of the emulator's.
    `finished_at`, `result`: when that ended, and how. `host`: the one that the server was on.
    `cleaned`: of an evacuation, that the compute service there is back and has destroyed the guest.
    """

    request_id: str
    server_id: str
    action: str
    project_id: str
    user_id: str
    host: str
    event: str | None
    started_at: float
    operation: str | None = None
    finished_at: float | None = None
    result: str | None = None
    cleaned: bool = False

    def finish(self, result: str = "Success") -> None:
        """Record how the compute service ended it."""
        self.finished_at, self.result = time.time(), result


CONFIG: dict[str, Any] = {
    "cross_az_attach": True,  # Nova's [cinder]: a volume may be in another zone than its server
    "max_disk_devices_to_attach": -1,  # Nova's [compute]: the root disk counts; -1: any number
    # The key manager gives a compute service the keys of encrypted volumes; a list: on these hosts.
    "keys_readable": True,
    "reclaim_instance_interval": 0,  # Nova's, in seconds; else a deleted server can be restored
    "availability_zones": ["nova"],  # those that Nova lists
    "quota": {"instances": -1, "cores": -1, "ram": -1},  # of each project; -1: any number
    "quotas": {},  # by project, what `openstack quota set` has set for it
    "gone": [],  # flavors, by name, and images that were deleted
    # Keystone's catalog. Endpoints by service type, with {url} and {project}; None: none.
    "endpoints": {},
    "interfaces": ["public", "internal", "admin"],
    "region": "RegionOne",
    "resource_registry": {},  # Heat's environment_dir: what is behind resource types
}
"""What the operator of the cloud has configured, with the services' own defaults but for the quota,
which is 10 servers there."""


@dataclass
class Volume:
    """A Cinder volume."""

    id: str
    project_id: str
    name: str
    size: int
    created: float
    updated: float
    status: str = "creating"
    multiattach: bool = False
    bootable: bool = False
    description: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    user_id: str = ""
    owner: list[str] | None = None
    name_id: str | None = None  # in the name of its image, once it was migrated in use
    zone: str = DEFAULT_ZONE
    encrypted: bool = False
    snapshot_id: str | None = None  # the one that it was made from


@dataclass
class Snapshot:
    """A snapshot of a Cinder volume."""

    id: str
    project_id: str
    volume_id: str
    name: str
    size: int
    created: float
    status: str = "creating"
    metadata: dict[str, str] = field(default_factory=dict)
    updated: float | None = None


@dataclass
class Attachment:
    """A volume on a server; status is reserved, attaching, attached or detaching.

    Nova and Cinder keep a record each: `in_nova`, `in_cinder` are False where one has lost, or has
    never had, its own. `never_made`: Nova's record is of a device that the compute service reserved
    after its caller had given up, so that no attachment was made. `connected`: Cinder was told
    by which host, or will be.
    """

    id: str
    volume_id: str
    server_id: str
    device: str
    status: str = "reserved"
    host: str = ""
    attached_at: float | None = None
    delete_on_termination: bool = False
    bdm_id: str = field(default_factory=new_id)
    in_nova: bool = True
    in_cinder: bool = True
    never_made: bool = False
    connected: bool = True


@dataclass
class Network:
    """A Neutron network; floating IPs are on the `external` one."""

    id: str
    project_id: str
    name: str
    external: bool = False


@dataclass
class Subnet:
    """The addresses of a network."""

    id: str
    project_id: str
    network_id: str
    cidr: str
    name: str = ""
    gateway: str = ""


@dataclass
class Router:
    """A Neutron router. `external`: the id of the network that it leads to, if any; `subnets`: the
    ids of those that it connects."""

    id: str
    project_id: str
    name: str = ""
    external: str = ""
    subnets: list[str] = field(default_factory=list)


@dataclass
class SecurityGroup:
    """A security group of Neutron's."""

    id: str
    project_id: str
    name: str
    description: str = ""


@dataclass
class Port:
    """A Neutron port. `groups`: the ids of its security groups; `pairs`: the addresses that it may
    use in addition to its own; `made_by_nova`: it goes with its server; `revision` counts its
    changes."""

    id: str
    project_id: str
    network_id: str
    address: str
    mac: str
    name: str = ""
    device_id: str = ""
    device_owner: str = ""
    status: str = "DOWN"
    pairs: list[dict[str, str]] = field(default_factory=list)
    made_by_nova: bool = False
    tags: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    revision: int = 1


@dataclass
class FloatingIp:
    """A floating IP of Neutron's."""

    id: str
    project_id: str
    network_id: str
    address: str
    port_id: str | None = None
    tags: list[str] = field(default_factory=list)
    revision: int = 1


@dataclass
class LoadBalancer:
    """A load balancer of Octavia's; `status` is its provisioning status."""

    id: str
    project_id: str
    address: str
    name: str = ""
    status: str = "ACTIVE"


@dataclass
class Pool:
    """A pool of a load balancer."""

    id: str
    project_id: str
    load_balancer_id: str
    name: str = ""
    status: str = "ACTIVE"
    tags: list[str] = field(default_factory=list)


@dataclass
class PoolMember:
    """A member of a pool. `enabled` is what was asked for; `live`: the load balancer passes
    connections on to it."""

    id: str
    pool_id: str
    address: str
    protocol_port: int
    enabled: bool = True
    weight: int = 1
    backup: bool = False
    name: str = ""
    status: str = "ACTIVE"
    live: bool = False


@dataclass
class Zone:
    """A zone of Designate's."""

    id: str
    project_id: str
    name: str
    email: str


@dataclass
class Recordset:
    """The records of a name and a type; `version`: how often they were changed. The name servers
    have them when `status` is ACTIVE."""

    id: str
    zone_id: str
    name: str
    type: str
    records: list[str]
    ttl: int | None = None
    description: str | None = None
    status: str = "PENDING"
    deleted: bool = False
    version: int = 0


@dataclass
class Guest:
    """The machine inside a server: it still runs when Nova loses sight of it.

    `volumes` maps each volume the guest can write to to its device, `interfaces` each port that is
    plugged in to the addresses that its host lets the guest use there, `applications` each running
    application to the time of its start, `devices` each application that writes to some of them
    only to those.

    `boot` is the identity of its boot, and `interrupted` has the applications that its last end cut
    off.

    What the broker keeps: `notice` is the latest epoch that its agent is told, `heartbeat` what the
    agent said last. `first_epoch`: the one in the agent's file.

    `rehearsed` maps each application that runs in the isolation of a rehearsal to the volumes that
    it writes to there. `broken`: why it cannot start one, of `guests.BREAKAGES`.
    """

    server_id: str
    project_id: str
    host: str
    powered: bool = True
    condition: str = "healthy"  # healthy | booting | hung | crashed | frozen
    before_frozen: str = "healthy"
    disk: str = "writable"  # writable | full | read-only
    volumes: dict[str, str] = field(default_factory=dict)
    interfaces: dict[str, list[str]] = field(default_factory=dict)
    applications: dict[str, float] = field(default_factory=dict)
    devices: dict[str, list[str]] = field(default_factory=dict)
    boot: str = field(default_factory=new_id)
    interrupted: list[str] = field(default_factory=list)
    notice: int = 0
    first_epoch: int = 0
    heartbeat: dict[str, Any] | None = None
    rehearsed: dict[str, list[str]] = field(default_factory=dict)
    broken: str = ""

    def rehearses_on(self, volume_id: str) -> bool:
        """Whether an application writes to a volume in a rehearsal."""
        return any(volume_id in volumes for volumes in self.rehearsed.values())

    def writes_on(self, volume_id: str) -> bool:
        """Whether one of its applications would write to a volume, if it runs."""
        device = self.volumes.get(volume_id)
        return device is not None and any(
            device in self.devices.get(name, [device]) for name in self.applications
        )

    def tell(self, name: str, devices: list[str]) -> dict[str, list[str]]:
        """Notes that an application is started that writes only to these devices; returns the
        volumes."""
        self.devices[name] = devices
        return {"volumes": [v for v, device in self.volumes.items() if device in devices]}


@dataclass
class Application:
    """An application that guests can run: the named commands that start, stop and check it.

    It writes to every volume of its guest; with `told_only` to those that its start names. With
    `at_boot` its guest starts it again by itself, if it ran there before. `checks`: commands that
    look at its data. `rehearse`: whether its commands may be rehearsed.
    """

    name: str
    start: str
    stop: str
    status: str | None = None
    needs_volume: bool = False
    told_only: bool = False
    at_boot: bool = False
    checks: list[str] = field(default_factory=list)
    rehearse: bool = True
    stack_id: str | None = None


@dataclass
class StackResource:
    """A resource of a stack; `generation` tells which update has looked at it last.

    INIT COMPLETE: its turn to be made has not come. `retired_id` is what it replaced and is yet to
    be deleted, `retired_reason` why the latest update could not. `alias` is what the template calls
    its `type`, `refused` why Nova has not even begun to make its server. `external`: what is behind
    it was there before (`external_id`), and stays.
    """

    name: str
    type: str
    alias: str
    created: float
    updated: float
    properties: dict[str, Any] = field(default_factory=dict)
    physical_id: str = ""
    retired_id: str = ""
    retired_reason: str = ""
    refused: str = ""
    action: str = "CREATE"
    status: str = "IN_PROGRESS"
    reason: str = "state changed"
    generation: int = 0
    busy_until: float = 0.0
    external: bool = False


@dataclass
class Stack:
    """A Heat stack; the nested stack of a group names its parent stack and resource. `previous` is
    the template and the parameters that a rollback of its last update goes to, `registry` what its
    environment has behind resource types."""

    id: str
    project_id: str
    name: str
    created: float
    template: dict[str, Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    action: str = "CREATE"
    status: str = "IN_PROGRESS"
    reason: str = "Stack CREATE started"
    updated: float | None = None
    deleted: float | None = None
    generation: int = 1
    settling: int = 0
    resources: dict[str, StackResource] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    parent: list[str] | None = None
    operation: str | None = None
    user_id: str = ""
    files: dict[str, str] = field(default_factory=dict)
    registry: dict[str, str] = field(default_factory=dict)
    disable_rollback: bool = True
    previous: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Timer:
    """A transition in flight: it is due at `due` and known by its name and arguments."""

    id: str
    due: float
    name: str
    args: dict[str, Any]


@dataclass
class ApiFault:
    """An injected fault of a named operation, for its next `times` uses."""

    operation: str
    fault: str  # one of `faults.API_FAULTS`
    status: int = 503
    seconds: float = 0.0
    times: int = 1
    says: str = ""


@dataclass
class CloudState:
    """The whole cloud."""

    projects: dict[str, Project] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    application_credentials: dict[str, ApplicationCredential] = field(default_factory=dict)
    trusts: dict[str, Trust] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    attachments: dict[str, Attachment] = field(default_factory=dict)
    server_actions: dict[str, ServerAction] = field(default_factory=dict)
    networks: dict[str, Network] = field(default_factory=dict)
    subnets: dict[str, Subnet] = field(default_factory=dict)
    routers: dict[str, Router] = field(default_factory=dict)
    security_groups: dict[str, SecurityGroup] = field(default_factory=dict)
    ports: dict[str, Port] = field(default_factory=dict)
    floating_ips: dict[str, FloatingIp] = field(default_factory=dict)
    load_balancers: dict[str, LoadBalancer] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    pool_members: dict[str, PoolMember] = field(default_factory=dict)
    zones: dict[str, Zone] = field(default_factory=dict)
    recordsets: dict[str, Recordset] = field(default_factory=dict)
    guests: dict[str, Guest] = field(default_factory=dict)
    applications: dict[str, Application] = field(default_factory=dict)
    stacks: dict[str, Stack] = field(default_factory=dict)
    alarms: dict[str, dict[str, Any]] = field(default_factory=dict)
    timers: dict[str, Timer] = field(default_factory=dict)
    deferred: dict[str, list[Timer]] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    incidents: dict[str, dict[str, Any]] = field(default_factory=dict)
    api_faults: list[ApiFault] = field(default_factory=list)
    latency: dict[str, float] = field(default_factory=dict)
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=lambda: dict(CONFIG))

    def dumps(self) -> str:
        """This state as JSON."""
        return json.dumps(self, default=vars, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> "CloudState":
        """The state that `dumps` wrote; a file of another shape raises TypeError or KeyError."""
        raw = load_json(text, "state")
        state = cls(**{f.name: raw[f.name] for f in fields(cls)})
        for name, of in get_type_hints(cls).items():
            kind = get_args(of)[-1]
            by_id = is_dataclass(kind) and get_origin(of) is dict
            if by_id:
                setattr(state, name, {key: kind(**value) for key, value in raw[name].items()})
        for stack in state.stacks.values():
            stack.resources = {k: StackResource(**v) for k, v in stack.resources.items()}  # type: ignore[arg-type]
        state.deferred = {h: [Timer(**t) for t in ts] for h, ts in raw["deferred"].items()}
        state.api_faults = [ApiFault(**fault) for fault in raw["api_faults"]]
        return state

    @classmethod
    def seeded(cls) -> "CloudState":
        """A fresh cloud: two hosts; projects demo, other and admin with a user of that name."""
        state = cls(hosts={name: Host(name) for name in HOSTS})
        for name in ("demo", "other", "admin"):
            state.add_user(name, name, name, admin=name == "admin")
        for name, owner, cidr in (
            ("net1", "demo", "10.99.0.0/16"),
            ("public", "admin", "203.0.0.0/16"),
        ):
            made, subnet = (
                str(uuid.UUID(stable_hex(kind, name))) for kind in ("network", "subnet")
            )
            project = stable_hex("project", owner)
            state.networks[made] = Network(made, project, name, external=name == "public")
            state.subnets[subnet] = Subnet(subnet, project, made, cidr, f"{name}-subnet")
        return state

    def add_user(self, name: str, password: str, project: str, *, admin: bool = False) -> User:
        """Adds a user, and the project if there is none of that name; ids follow the names."""
        project_id = stable_hex("project", project)
        self.projects.setdefault(project_id, Project(project_id, project))
        user = User(stable_hex("user", name), name, password, project_id, admin)
        self.users[user.id] = user
        return user

    def accept(
        self, server: Server, request_id: str, action: str, event: str | None
    ) -> ServerAction:
        """Records that Nova accepted a request for a server."""
        owner, now = (server.project_id, server.user_id), time.time()
        made = ServerAction(request_id, server.id, action, *owner, server.host, event, now)
        self.server_actions[request_id] = made
        return made

    def host_up(self, name: str) -> bool:
        """Whether a host exists and its compute service is up."""
        return name in self.hosts and self.hosts[name].up

    def attachments_of(
        self, *, server_id: str | None = None, volume_id: str | None = None
    ) -> list[Attachment]:
        """The attachments of a server as Nova knows them, of that volume if one is named; else
        those of a volume, as Cinder knows them."""
        return [
            a
            for a in self.attachments.values()
            if server_id in (None, a.server_id)
            and volume_id in (None, a.volume_id)
            and (a.in_cinder if server_id is None else a.in_nova)
        ]
