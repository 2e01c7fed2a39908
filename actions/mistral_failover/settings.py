# SPDX-License-Identifier: Apache-2.0
"""Options of the section ``[failover]`` and the values that they have in this process.

Inside a Mistral process the options come from the configuration that Mistral has parsed. A
process of its own (the command line, a test) parses the same file, so one section serves both.
As with every oslo.config option, ``OS_FAILOVER__<OPTION>`` in the environment wins over the file.
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
        "MySQL or MariaDB. Every process of one installation names the same.",
    ),
    cfg.StrOpt(
        "cloud",
        help="Entry of clouds.yaml to act with when a request carries no token, as in a Mistral "
        "whose authentication is off. Unset: requests without a token are refused.",
    ),
    cfg.StrOpt(
        "project",
        help="Project that everything belongs to in a Mistral whose authentication is off; "
        "requests of any other are refused. failover server sets it to the project of its "
        "credential. Unset: Mistral's own name for none, <default-project>.",
    ),
    cfg.StrOpt(
        "auth_url",
        help="Keystone's URL for requests that do not say it: those of cron triggers. Unset: "
        "[keystone_authtoken] www_authenticate_uri of the same file.",
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
        help="Operations that one process carries out at the same time, each in a thread of its "
        "own. They mostly wait for the cloud.",
    ),
    cfg.FloatOpt(
        "lease_margin",
        default=2.0,
        min=0.0,
        help="Seconds at the end of a lease in which no call to the cloud starts or goes on.",
    ),
    cfg.FloatOpt(
        "http_timeout",
        default=10.0,
        min=0.1,
        help="Seconds that one HTTP call may take; the remaining lease may allow less.",
    ),
    cfg.StrOpt(
        "command_channel",
        secret=True,
        help="URL of the channel that carries commands to members; its scheme names the driver.",
    ),
    cfg.StrOpt(
        "agent_key_file",
        help="File with the secret from which the keys of the members' agents follow: 32 bytes at "
        "least, readable by Mistral alone, the same for every executor.",
    ),
    cfg.FloatOpt(
        "poll_first", default=0.05, min=0.0, help="Seconds between a wait's first two looks."
    ),
    cfg.FloatOpt(
        "poll_growth",
        default=1.12,
        min=1.0,
        help="Factor between one pause of a wait and the next.",
    ),
    cfg.FloatOpt(
        "poll_ceiling", default=2.0, min=0.01, help="Longest pause, in seconds, within a wait."
    ),
    cfg.FloatOpt(
        "repeat_after",
        default=60.0,
        min=0.0,
        help="Seconds after which a request that a service left without an answer counts as lost "
        "if nothing is to be seen of it, and is sent again. Services give a request up after their "
        "own rpc_response_timeout, 60 s by default; until then it may be in a queue.",
    ),
    cfg.StrOpt(
        "mistral_url",
        help="Base URL of Mistral's API, ending in /v2, for sweeps without a token, as in a "
        "Mistral whose authentication is off. With a token the catalog says it.",
    ),
    cfg.FloatOpt(
        "sweep_interval",
        default=15.0,
        min=0.1,
        help="Seconds between two looks of the embedded Mistral for what was left lying.",
    ),
    cfg.FloatOpt(
        "sweep_after",
        default=30.0,
        min=0.0,
        help="Seconds without a word in a traversal after which a sweep takes its ready nodes for "
        "left lying. Shorter: found sooner, and more often triggered in vain.",
    ),
    cfg.FloatOpt(
        "hang_after",
        default=300.0,
        min=1.0,
        help="Seconds without a change after which a sweep ends an execution that holds no lock. "
        "Must be longer than any action without a lock may take.",
    ),
    cfg.IntOpt(
        "keep_goals",
        default=50,
        min=2,
        help="Goals of a group that are kept at least: so many of the latest, and so many of the "
        "latest that were reached. What a rollback or a record needs is kept in any case.",
    ),
    cfg.FloatOpt(
        "keep_days",
        default=30.0,
        min=0.0,
        help="Days within which a goal that was given is kept in any case.",
    ),
    cfg.FloatOpt(
        "storm_window",
        default=600.0,
        min=1.0,
        help="Seconds over which the groups of a project that fail are counted together.",
    ),
    cfg.FloatOpt(
        "storm_share",
        default=0.5,
        min=0.0,
        max=1.0,
        help="Share of a project's groups from which on their alarms are held: so many at once is "
        "rather the control plane.",
    ),
    cfg.IntOpt(
        "storm_groups",
        default=3,
        min=0,
        help="Fewest groups that make such a storm; 0: alarms are never held for that.",
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
    lease_margin: float = 2.0
    http_timeout: float = 10.0
    command_channel: str | None = None
    agent_key_file: str | None = None
    poll_first: float = 0.05
    poll_growth: float = 1.12
    poll_ceiling: float = 2.0
    repeat_after: float = 60.0
    mistral_url: str | None = None
    sweep_interval: float = 15.0
    sweep_after: float = 30.0
    hang_after: float = 300.0
    keep_goals: int = 50
    keep_days: float = 30.0
    storm_window: float = 600.0
    storm_share: float = 0.5
    storm_groups: int = 3

    def __repr__(self) -> str:
        """Leave out the two URLs: they may carry passwords."""
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
    it), parsed apart so that a later parse by somebody else is not disturbed.

    Raises oslo.config's ``ConfigFileValueError`` for a value that an option does not allow.
    """
    if conf is None:
        conf = cfg.CONF
        if "config_file" not in conf:  # registered by the first parse, so: nobody has parsed it
            conf = cfg.ConfigOpts()
            conf([], project="mistral")
    conf.register_opts(_OPTIONS, group=GROUP)
    values = {field.name: conf[GROUP][field.name] for field in fields(Settings)}
    if values["auth_url"] is None:
        values["auth_url"] = _keystone(tuple(conf.config_file or ()), tuple(conf.config_dir or ()))
    return Settings(**values)


@cache
def _keystone(files: tuple[str, ...], directories: tuple[str, ...]) -> str | None:
    """Where Mistral's own middleware finds Keystone, by the same files.

    Mistral's engine and executor do not know that option, and whoever registers it in their
    configuration gets into the way of the middleware, which does so too: read apart.
    """
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.StrOpt("www_authenticate_uri"), group="keystone_authtoken")
    arguments = [f"--config-file={name}" for name in files]
    arguments += [f"--config-dir={name}" for name in directories]
    try:
        conf(arguments, project="mistral", default_config_files=[], default_config_dirs=[])
    except cfg.Error:  # the files were taken away since Mistral has read them
        return None
    found: str | None = conf.keystone_authtoken.www_authenticate_uri
    return found
