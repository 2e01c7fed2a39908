# SPDX-License-Identifier: Apache-2.0
"""Mistral's configuration for one process, as a readable file."""

import configparser
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mistral_failover.embedded import sqlite
from mistral_failover.errors import CodedError
from mistral_failover.loopback import is_loopback

Settings = dict[str, dict[str, str]]

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "DEFAULT": {
        "transport_url": "failover-inprocess://",
        "scheduler_type": "default",
        # Calls between engine and API take milliseconds; a minute means that something is stuck.
        "rpc_response_timeout": 60,
    },
    # Read-only requests, such as an exporter's, need not leave records behind.
    # A definition is checked unless its sender says that it was, as this package does of its own.
    "api": {"allow_action_execution_deletion": True, "validation_mode": "enabled"},
    # With "local" the engine runs with-items one after the other.
    "executor": {"type": "remote"},
    "notifier": {"type": "local"},
    # A delayed job of a killed process is picked up again after this many seconds.
    "scheduler": {"fixed_delay": 1, "random_delay": 0, "pickup_job_after": 10},
    # The executor cannot die without the engine, so there is no heartbeat to miss; the checker's
    # timer would also keep the process from ending for five minutes.
    "action_heartbeat": {"check_interval": 0},
    # Only finished ones. What a failover needs of them is in the state store. The interval and the
    # age are in minutes.
    "execution_expiration_policy": {
        "evaluation_interval": 10,
        "older_than": 30 * 24 * 60,
        "max_finished_executions": 10000,
        "batch_size": 100,
    },
    "legacy_action_provider": {
        "load_action_generators": False,
        # The API's token gives orders; it must not run code or use the process owner's keys.
        "denylist": "std.javascript,std.js,std.ssh,std.ssh_proxied",
    },
}

LOCAL_HTTP: dict[str, Any] = {"action_std_http.denied_cidrs": ""}
"""Overrides with which std.http reaches this machine, for a cloud that is emulated on it. Otherwise
Mistral's own list holds, for each connection (`embedded.egress`): it has loopback, where this
machine's other services trust their callers, and link-local addresses, where a cloud's metadata
service has the credentials of this server."""

# Not to be changed by overrides or environment variables. Without Keystone the API must be
# reachable from this host only, and "dynamic" actions are Python code sent through the API.
PINNED: Mapping[tuple[str, str], Any] = {
    ("pecan", "auth_enable"): False,
    ("action_providers", "denylist"): ["dynamic"],
    ("action_providers", "allowlist"): [],
    ("api", "enable_ssl_api"): False,
    # The periodic service does it; with the API too, each trigger would be processed twice.
    ("cron_trigger", "run_in_api"): False,
}


# Useless without the dynamic provider, but refused anyway: users must not store code here.
POLICY = "".join(
    f'"{what}:{verb}": "!"\n'
    for what in ("code_sources", "dynamic_actions")
    for verb in ("create", "update", "publicize")
)
_RESERVED = frozenset({("api", "host"), ("oslo_policy", "policy_file")})


def check_loopback(host: str) -> str:
    """Return the host if it is an IPv4 loopback address.

    :raises CodedError: ``LOOPBACK_ONLY`` otherwise.
    """
    if is_loopback(host) and ":" not in host:
        return host
    raise CodedError(
        "LOOPBACK_ONLY",
        f"the embedded Mistral has no users and no TLS, and does not listen on {host!r}",
        "use 127.0.0.1; for other hosts run Mistral's own services with Keystone",
    )


def build(
    *,
    state_dir: Path,
    database: str,
    host: str,
    port: int,
    threads: int,
    auth_url: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings as {group: {option: text}}; ``overrides`` maps ``group.option`` to a value.

    :raises CodedError: ``LOOPBACK_ONLY``, or ``SETTING_PINNED`` for an override of something
        that keeps the API safe.
    """
    result: Settings = {g: {k: _text(v) for k, v in o.items()} for g, o in DEFAULTS.items()}
    result["DEFAULT"]["executor_thread_pool_size"] = str(threads)
    result["database"] = {"connection": database}
    if sqlite.used_by(database):
        result["database"]["connection_parameters"] = f"plugin={sqlite.PLUGIN}"
    result["api"] |= {"host": check_loopback(host), "port": str(port)}
    result["oslo_policy"] = {"policy_file": str(state_dir / "policy.yaml")}
    if auth_url:
        result["keystone_authtoken"] = {"www_authenticate_uri": auth_url}
    for name, value in (overrides or {}).items():
        group, _, option = name.rpartition(".")
        if (group, option) in PINNED or (group, option) in _RESERVED:
            raise CodedError(
                "SETTING_PINNED",
                f"{name} cannot be changed: the embedded Mistral has no users",
                "leave it out, or run Mistral's own services with Keystone",
            )
        result.setdefault(group or "DEFAULT", {})[option] = _text(value)
    return result


def write(settings: Settings, state_dir: Path) -> Path:
    """Write ``mistral.conf`` and the policy file it names, readable by their owner only.

    :returns: the path of ``mistral.conf``.
    """
    parser = configparser.RawConfigParser(default_section="")
    parser.read_dict(settings)
    buffer = io.StringIO()
    parser.write(buffer)
    (state_dir / "policy.yaml").write_text(POLICY, encoding="utf-8")
    file = state_dir / "mistral.conf"
    file.touch(mode=0o600)
    file.chmod(0o600)  # it may exist already; a database URL can hold a password
    file.write_text(buffer.getvalue(), encoding="utf-8")
    return file


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in value)
    return str(value)
