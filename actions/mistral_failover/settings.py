# SPDX-License-Identifier: Apache-2.0
"""Options of the section ``[failover]``, and their values in this process.

Inside a Mistral process the options come from the configuration that Mistral has parsed. Another
process (the command line, a test) parses the same file, so one section serves both. As with every
oslo.config option, ``OS_FAILOVER__<OPTION>`` in the environment overrides the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import TypeVar

from oslo_config import cfg

GROUP = "failover"

T = TypeVar("T")
_OPTION = "option"
_KINDS = {float: cfg.FloatOpt, int: cfg.IntOpt, type(None): cfg.StrOpt}


def _option(
    default: T,
    text: str,
    *,
    kind: Callable[..., cfg.Opt] | None = None,
    min: float | None = None,  # noqa: A002 - oslo.config's names
    max: float | None = None,  # noqa: A002
    secret: bool = False,
) -> T:
    """Return a field of `Settings` that is an operator's option of the same name. ``kind``: of the
    option; by default that of its default, a text for None."""
    kind = kind or _KINDS[type(default)]
    limits = {name: limit for name, limit in (("min", min), ("max", max)) if limit is not None}
    made = partial(kind, default=default, help=text, secret=secret, **limits)
    return field(default=default, metadata={_OPTION: made})


def _budget(asks: str) -> int:
    text = (
        f"Operations of one project that {asks} at the same time, in one process. It is halved "
        "when the service is overloaded, and grows again."
    )
    return _option(48, text, min=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of ``[failover]``; times in seconds. Each field is an operator's option."""

    database: str | None = _option(
        None,
        "SQLAlchemy URL of the state store: SQLite, if one process does everything, else "
        "MySQL or MariaDB. All processes of one installation must use the same.",
        secret=True,
    )
    cloud: str | None = _option(
        None,
        "Entry of clouds.yaml to use when a request carries no token, as in a Mistral without "
        "authentication. Unset: requests without a token are refused.",
    )
    project: str | None = _option(
        None,
        "Project that owns everything in a Mistral without authentication; requests of any "
        "other are refused. failover server sets it to the project of its credential. Unset: "
        "Mistral's own name for no project, <default-project>.",
    )
    auth_url: str | None = _option(
        None,
        "Keystone's URL for requests that do not carry it: those of cron triggers. Unset: "
        "[keystone_authtoken] www_authenticate_uri of the same file.",
    )
    cacert: str | None = _option(
        None,
        "File with the certificates of the authorities that signed those of the cloud, where the "
        "request, or the entry of clouds.yaml, names none. Unset: [keystone_authtoken] cafile of "
        "the same file, else what the environment names: OS_CACERT, REQUESTS_CA_BUNDLE.",
    )
    lease: float = _option(
        30.0,
        "Seconds that an operation's lock lasts unless its process renews it.",
        min=1.0,
    )
    parallel_operations: int = _option(
        64,
        "Threads of one process that carry out operations, which mostly wait for the cloud. One "
        "project gets three quarters of them at most, and less while others need some.",
        min=1,
    )
    nova_operations: int = _budget("ask Nova")
    cinder_operations: int = _budget("ask Cinder")
    heat_operations: int = _budget("ask Heat")
    neutron_operations: int = _budget("ask Neutron")
    mistral_operations: int = _budget("are workflows of the user")
    other_operations: int = _budget("ask each further service")
    lease_margin: float = _option(
        2.0,
        "Seconds at the end of a lease in which no call to the cloud starts or continues.",
        min=0.0,
    )
    http_timeout: float = _option(
        10.0,
        "Seconds for an HTTP call, from connecting to the end of its answer; the remaining lease "
        "may allow less.",
        min=0.1,
    )
    command_channel: str | None = _option(
        None,
        "URL of the channel that carries commands to members; its scheme selects the driver.",
        secret=True,
    )
    agent_key_file: str | None = _option(
        None,
        "File with the secret from which the keys of the members' agents are derived: at "
        "least 32 bytes, readable only by Mistral, the same on every executor.",
    )
    fence_devices_file: str | None = _option(
        None,
        "File of the operator with the devices that switch compute hosts off or cut them from "
        "their storage, for the rungs host_power and storage: readable only by Mistral, or "
        "owned by root and readable by Mistral's group. The same on every executor. Unset: "
        "these rungs prove nothing.",
    )
    poll_first: float = _option(
        0.05,
        "Seconds between the first two looks of a wait.",
        min=0.0,
    )
    poll_growth: float = _option(
        1.05,
        "Factor by which the pauses of a wait grow.",
        min=1.0,
    )
    poll_ceiling: float = _option(
        2.0,
        "Longest pause of a wait, in seconds.",
        min=0.01,
    )
    repeat_after: float = _option(
        60.0,
        "Seconds after which a request without an answer and without a visible effect counts "
        "as lost: it is sent again, and a later operation may rely on what it sees. This assumes "
        "that a service drops a request after its own rpc_response_timeout, 60 s by default.",
        min=0.0,
    )
    repeat_after_attach: float | None = _option(
        None,
        "The same for Nova's requests that attach and detach volumes; default: repeat_after. Nova "
        "keeps such a request in the queue of a compute service that does not take it up for its "
        "long_rpc_timeout, 1800 s by default. Set it to that if your compute services hang or "
        "restart while requests wait for them.",
        kind=cfg.FloatOpt,
        min=0.0,
    )
    mistral_url: str | None = _option(
        None,
        "Base URL of Mistral's API, ending in /v2, or unix:PATH, for sweeps without a token, "
        "as in a Mistral without authentication. With a token the catalog provides it.",
    )
    mistral_token_file: str | None = _option(
        None,
        "File with the token of the embedded Mistral at mistral_url. Its own actions need none.",
    )
    sweep_interval: float = _option(
        15.0,
        "Seconds between two checks of the embedded Mistral for stalled work.",
        min=0.1,
    )
    observe_interval: float = _option(
        60.0,
        "Seconds between two looks at the servers, volumes and parameters of a group at rest.",
        min=1.0,
    )
    sweep_after: float = _option(
        30.0,
        "Seconds without progress in a traversal after which a sweep triggers its ready nodes "
        "again. A shorter time finds stalled work sooner, but triggers needlessly more often.",
        min=0.0,
    )
    hang_after: float = _option(
        300.0,
        "Seconds without a change after which a sweep ends an execution that holds no lock. "
        "Must be longer than any action without a lock may take.",
        min=1.0,
    )
    keep_goals: int = _option(
        50,
        "Minimum number of goals that a group keeps: so many of the latest, and so many of "
        "the latest that were reached. Goals that a rollback or a record needs are always "
        "kept.",
        min=2,
    )
    keep_days: float = _option(
        30.0,
        "Days for which every goal is kept.",
        min=0.0,
    )
    history_days: float = _option(
        90.0,
        "Days for which incidents and journal entries are kept. What waits for an operator or "
        "belongs to a traversal that is kept stays longer.",
        min=1.0,
    )
    keep_incidents: int = _option(
        10000,
        "Maximum number of a project's incidents that ask for nothing any more. A sweep "
        "deletes the oldest beyond it.",
        min=100,
    )
    keep_journal: int = _option(
        10000,
        "Maximum number of journal entries of a group. A sweep deletes the oldest beyond it, "
        "except those of the current traversal.",
        min=100,
    )
    groups_per_project: int = _option(
        2000,
        "Maximum number of groups of a project. Groups beyond it that exist already stay, and "
        "can be changed.",
        min=1,
    )
    storm_window: float = _option(
        600.0,
        "Seconds over which the failing groups of a project are counted together.",
        min=1.0,
    )
    storm_share: float = _option(
        0.5,
        "Share of a project's groups whose simultaneous failure counts as a storm: their "
        "alarms are held, since the cause is probably the control plane.",
        min=0.0,
        max=1.0,
    )
    storm_groups: int = _option(
        3,
        "Minimum number of groups in a storm; 0: alarms are never held for a storm.",
        min=0,
    )
    certificate_warning: float = _option(
        30.0,
        "Days before the end of the certificate of failover server from which it warns. A "
        "certificate of less than three times as many days: the last third of its life.",
        min=0.0,
    )
    storm_release: int = _option(
        0,
        "Number of alarms of a project that a sweep releases within a minute, once the "
        "evidence says that servers died and the control plane works; 0: a tenth of those of "
        "the storm, from 10 to 100.",
        min=0,
    )

    def __repr__(self) -> str:
        """Omit what may carry passwords."""
        shown = ", ".join(
            f"{each.name}={getattr(self, each.name)!r}"
            for each, option in zip(fields(self), _OPTIONS, strict=True)
            if not option.secret
        )
        return f"Settings({shown})"


_OPTIONS: list[cfg.Opt] = [each.metadata[_OPTION](each.name) for each in fields(Settings)]


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
    values = {option.name: read[option.name] for option in _OPTIONS}
    files, directories = tuple(conf.config_file or ()), tuple(conf.config_dir or ())
    for name, known in _keystone(files, directories).items():
        if values[name] is None:
            values[name] = known
    return Settings(**values)


@cache
def _keystone(files: tuple[str, ...], directories: tuple[str, ...]) -> dict[str, str | None]:
    """Return what Mistral's own middleware has of Keystone, from the same files, by the options
    that it is the default of.

    Mistral's engine and executor do not know its options, and registering them in their
    configuration would conflict with the middleware, which registers them too: so they are read
    separately.
    """
    conf = cfg.ConfigOpts()
    for name in _OF_MIDDLEWARE.values():
        conf.register_opt(cfg.StrOpt(name), group="keystone_authtoken")
    arguments = [f"--config-file={name}" for name in files]
    arguments += [f"--config-dir={name}" for name in directories]
    try:
        conf(arguments, project="mistral", default_config_files=[], default_config_dirs=[])
    except cfg.Error:  # the files were removed after Mistral read them
        return {}
    found = conf.keystone_authtoken
    return {option: found[name] for option, name in _OF_MIDDLEWARE.items()}


_OF_MIDDLEWARE = {"auth_url": "www_authenticate_uri", "cacert": "cafile"}
