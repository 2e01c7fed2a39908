# SPDX-License-Identifier: Apache-2.0
"""Options of the section ``[failover]``, and their values in this process.

Inside a Mistral process the options come from the configuration that Mistral has parsed. Another
process (the command line, a test) parses the same file, so one section serves both. As with every
oslo.config option, ``OS_FAILOVER__<OPTION>`` in the environment overrides the file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from oslo_config import cfg

GROUP = "failover"

_OPTIONS = [
    cfg.StrOpt(
        "database",
        secret=True,
        help="SQLAlchemy URL of the state store: SQLite, if one process does everything, else "
        "MySQL or MariaDB. All processes of one installation must use the same.",
    ),
    cfg.StrOpt(
        "cloud",
        help=(
            "Entry of clouds.yaml to use when a request carries no token, as in a Mistral without "
            "authentication. Unset: requests without a token are refused."
        ),
    ),
    cfg.StrOpt(
        "project",
        help=(
            "Project that owns everything in a Mistral without authentication; requests of any "
            "other are refused. failover server sets it to the project of its credential. Unset: "
            "Mistral's own name for no project, <default-project>."
        ),
    ),
    cfg.StrOpt(
        "auth_url",
        help=(
            "Keystone's URL for requests that do not carry it: those of cron triggers. Unset: "
            "[keystone_authtoken] www_authenticate_uri of the same file."
        ),
    ),
    cfg.FloatOpt(
        "lease",
        default=30.0,
        min=1.0,
        help="Seconds that an operation's lock lasts unless its process renews it.",
    ),
    cfg.IntOpt(
        "parallel_operations",
        default=64,
        min=1,
        help=(
            "Operations that one process carries out at the same time, each in a thread. They "
            "mostly wait for the cloud."
        ),
    ),
    *(
        cfg.IntOpt(
            option,
            default=48,
            min=1,
            help=(
                f"Operations of one project that {asks} at the same time, in one process. It is "
                "halved when the service is overloaded, and grows again."
            ),
        )
        for option, asks in (
            ("nova_operations", "ask Nova"),
            ("cinder_operations", "ask Cinder"),
            ("heat_operations", "ask Heat"),
            ("neutron_operations", "ask Neutron"),
            ("other_operations", "ask each further service"),
        )
    ),
    cfg.FloatOpt(
        "lease_margin",
        default=2.0,
        min=0.0,
        help="Seconds at the end of a lease in which no call to the cloud starts or continues.",
    ),
    cfg.FloatOpt(
        "http_timeout",
        default=10.0,
        min=0.1,
        help="Maximum duration of one HTTP call in seconds; the remaining lease may allow less.",
    ),
    cfg.StrOpt(
        "command_channel",
        secret=True,
        help="URL of the channel that carries commands to members; its scheme selects the driver.",
    ),
    cfg.StrOpt(
        "agent_key_file",
        help=(
            "File with the secret from which the keys of the members' agents are derived: at "
            "least 32 bytes, readable only by Mistral, the same on every executor."
        ),
    ),
    cfg.StrOpt(
        "fence_devices_file",
        help=(
            "File of the operator with the devices that switch compute hosts off or cut them from "
            "their storage, for the rungs host_power and storage: readable only by Mistral, or "
            "owned by root and readable by Mistral's group. The same on every executor. Unset: "
            "these rungs prove nothing."
        ),
    ),
    cfg.FloatOpt(
        "poll_first", default=0.05, min=0.0, help="Seconds between the first two looks of a wait."
    ),
    cfg.FloatOpt(
        "poll_growth",
        default=1.05,
        min=1.0,
        help="Factor by which the pauses of a wait grow.",
    ),
    cfg.FloatOpt(
        "poll_ceiling", default=2.0, min=0.01, help="Longest pause of a wait, in seconds."
    ),
    cfg.FloatOpt(
        "repeat_after",
        default=60.0,
        min=0.0,
        help=(
            "Seconds after which a request without an answer and without a visible effect counts "
            "as lost and is sent again. Services drop a request after their own "
            "rpc_response_timeout, 60 s by default; until then it may be in a queue."
        ),
    ),
    cfg.StrOpt(
        "mistral_url",
        help=(
            "Base URL of Mistral's API, ending in /v2, or unix:PATH, for sweeps without a token, "
            "as in a Mistral without authentication. With a token the catalog provides it."
        ),
    ),
    cfg.StrOpt(
        "mistral_token_file",
        help=(
            "File with the token of the embedded Mistral at mistral_url. It sets both for its own "
            "actions."
        ),
    ),
    cfg.FloatOpt(
        "sweep_interval",
        default=15.0,
        min=0.1,
        help="Seconds between two checks of the embedded Mistral for stalled work.",
    ),
    cfg.FloatOpt(
        "observe_interval",
        default=60.0,
        min=1.0,
        help="Seconds between two looks at the servers, volumes and parameters of a group at rest.",
    ),
    cfg.FloatOpt(
        "sweep_after",
        default=30.0,
        min=0.0,
        help=(
            "Seconds without progress in a traversal after which a sweep triggers its ready nodes "
            "again. A shorter time finds stalled work sooner, but triggers needlessly more often."
        ),
    ),
    cfg.FloatOpt(
        "hang_after",
        default=300.0,
        min=1.0,
        help=(
            "Seconds without a change after which a sweep ends an execution that holds no lock. "
            "Must be longer than any action without a lock may take."
        ),
    ),
    cfg.IntOpt(
        "keep_goals",
        default=50,
        min=2,
        help=(
            "Minimum number of goals that a group keeps: so many of the latest, and so many of "
            "the latest that were reached. Goals that a rollback or a record needs are always "
            "kept."
        ),
    ),
    cfg.FloatOpt(
        "keep_days",
        default=30.0,
        min=0.0,
        help="Days for which every goal is kept.",
    ),
    cfg.FloatOpt(
        "history_days",
        default=90.0,
        min=1.0,
        help=(
            "Days for which incidents and journal entries are kept. What waits for an operator or "
            "belongs to a traversal that is kept stays longer."
        ),
    ),
    cfg.IntOpt(
        "keep_incidents",
        default=10000,
        min=100,
        help=(
            "Maximum number of a project's incidents that ask for nothing any more. A sweep "
            "deletes the oldest beyond it."
        ),
    ),
    cfg.IntOpt(
        "keep_journal",
        default=10000,
        min=100,
        help=(
            "Maximum number of journal entries of a group. A sweep deletes the oldest beyond it, "
            "except those of the current traversal."
        ),
    ),
    cfg.FloatOpt(
        "storm_window",
        default=600.0,
        min=1.0,
        help="Seconds over which the failing groups of a project are counted together.",
    ),
    cfg.FloatOpt(
        "storm_share",
        default=0.5,
        min=0.0,
        max=1.0,
        help=(
            "Share of a project's groups whose simultaneous failure counts as a storm: their "
            "alarms are held, since the cause is probably the control plane."
        ),
    ),
    cfg.IntOpt(
        "storm_groups",
        default=3,
        min=0,
        help="Minimum number of groups in a storm; 0: alarms are never held for a storm.",
    ),
    cfg.IntOpt(
        "storm_release",
        default=0,
        min=0,
        help=(
            "Number of alarms of a project that a sweep releases within a minute, once the "
            "evidence says that servers died and the control plane works; 0: a tenth of those of "
            "the storm, from 10 to 100."
        ),
    ),
]


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of ``[failover]``; times in seconds. The field names are the option names."""

    database: str | None = None
    cloud: str | None = None
    project: str | None = None
    auth_url: str | None = None
    lease: float = 30.0
    parallel_operations: int = 64
    nova_operations: int = 48
    cinder_operations: int = 48
    heat_operations: int = 48
    neutron_operations: int = 48
    other_operations: int = 48
    lease_margin: float = 2.0
    http_timeout: float = 10.0
    command_channel: str | None = None
    agent_key_file: str | None = None
    fence_devices_file: str | None = None
    poll_first: float = 0.05
    poll_growth: float = 1.05
    poll_ceiling: float = 2.0
    repeat_after: float = 60.0
    mistral_url: str | None = None
    mistral_token_file: str | None = None
    sweep_interval: float = 15.0
    observe_interval: float = 60.0
    sweep_after: float = 30.0
    hang_after: float = 300.0
    keep_goals: int = 50
    keep_days: float = 30.0
    history_days: float = 90.0
    keep_incidents: int = 10000
    keep_journal: int = 10000
    storm_window: float = 600.0
    storm_share: float = 0.5
    storm_groups: int = 3
    storm_release: int = 0

    def __repr__(self) -> str:
        """Omit the two URLs: they may carry passwords."""
        shown = ", ".join(
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name not in ("database", "command_channel")
        )
        return f"Settings({shown})"


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for the entry point ``oslo.config.opts`` (sample files, validation)."""
    return [(GROUP, list(_OPTIONS))]


def load(conf: cfg.ConfigOpts | None = None) -> Settings:
    """Read the settings.

    ``conf`` is a parsed configuration; by default the one of this process when it has been parsed
    (Mistral did), and otherwise Mistral's own files (``mistral.conf`` where oslo.config looks for
    it), parsed separately so that a later parse by other code is not disturbed.

    Raises oslo.config's ``ConfigFileValueError`` for a value that an option does not allow.
    """
    if conf is None:
        conf = cfg.CONF
        if (
            "config_file" not in conf
        ):  # registered by the first parse, so this process has not parsed it
            conf = cfg.ConfigOpts()
            conf([], project="mistral")
    # Registering takes long, and makes oslo.config forget every value that it has looked up.
    if GROUP not in conf or _OPTIONS[-1].dest not in conf[GROUP]:
        conf.register_opts(_OPTIONS, group=GROUP)
    read = conf[GROUP]
    values = {field.name: read[field.name] for field in fields(Settings)}
    if values["auth_url"] is None:
        values["auth_url"] = _keystone(tuple(conf.config_file or ()), tuple(conf.config_dir or ()))
    return Settings(**values)


@cache
def _keystone(files: tuple[str, ...], directories: tuple[str, ...]) -> str | None:
    """Return the Keystone URL of Mistral's own middleware, from the same files.

    Mistral's engine and executor do not know that option, and registering it in their configuration
    would conflict with the middleware, which registers it too: so it is read separately.
    """
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.StrOpt("www_authenticate_uri"), group="keystone_authtoken")
    arguments = [f"--config-file={name}" for name in files]
    arguments += [f"--config-dir={name}" for name in directories]
    try:
        conf(arguments, project="mistral", default_config_files=[], default_config_dirs=[])
    except cfg.Error:  # the files were removed after Mistral read them
        return None
    found: str | None = conf.keystone_authtoken.www_authenticate_uri
    return found
