# SPDX-License-Identifier: Apache-2.0
"""Calls of ClusterLabs' fence agents.

An agent gets its options as ``name=value`` lines on its standard input. Exit codes: of ``off`` and
``monitor``, 0 for success; of ``status``, 0 for on and 2 for off. Everything else is no answer.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from mistral_failover.resources.fence import programs
from mistral_failover.resources.fence.devices import Device, NoDevices
from mistral_failover.runtime.errors import masked

LOG = logging.getLogger(__name__)
_OFF = 2


class Power(StrEnum):
    """What an agent says about the power of a host."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Answer:
    """The end of one call. ``ok``: the agent reported success. ``words``: for the project, without
    addresses and host names. ``detail``: for the operator, with the agent's words, without
    secrets."""

    ok: bool
    words: str
    detail: str
    power: Power = Power.UNKNOWN


Permit = Callable[[float], float]
"""Returns for how many seconds a call of at most so many may run; raises if none may start."""


Going = Callable[[], None]
"""Is called again and again while a call runs. If it raises, the agent is killed: the device may
have carried the call out or not, as at the end of its time. A repeat of ``off`` changes nothing,
and only a ``status`` after it is a proof."""


def always() -> None:
    """Let every call run to its end."""


def off(device: Device, permit: Permit, going: Going = always) -> Answer:
    """Have a device switch its host off."""
    answer, _ = _call(device, "off", permit, going)
    return answer


def status(device: Device, permit: Permit, going: Going = always) -> Answer:
    """Return what a device says about the power of its host."""
    answer, code = _call(device, "status", permit, going)
    power = {0: Power.ON, _OFF: Power.OFF}.get(-1 if code is None else code, Power.UNKNOWN)
    if power is Power.UNKNOWN:
        return answer
    words = f"{device.name} reports the power {power}"
    about = ", ".join(f"{name} {value}" for name, value in sorted(device.system.items()))
    return Answer(True, words, f"{words} of the system at {about}", power)


def monitor(device: Device, permit: Permit) -> Answer:
    """Return whether a device answers and accepts the credential; nothing is switched."""
    answer, _ = _call(device, "monitor", permit, always)
    return answer


def _call(device: Device, action: str, permit: Permit, going: Going) -> tuple[Answer, int | None]:
    name = device.name
    path = programs.find(device.agent)
    if path is None:
        words = f"{name} is not installed on the executor"
        detail = f"{device.agent} is not a program that this user may run and others cannot change"
        return Answer(False, words, detail), None
    try:
        secrets = device.read_secrets()
    except NoDevices as error:
        return Answer(False, f"{name}: {error.message}", f"{name}: {error.detail}"), None
    lines = {**device.options, **secrets, "action": action}
    text = "".join(f"{option}={value}\n" for option, value in lines.items())
    trust = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    ended = programs.run(
        [path],
        limit=permit(device.limit),
        stdin=text.encode(),
        environment=dict.fromkeys(trust, device.ca_file) if device.ca_file else None,
        secrets=_forms(device.options.get("username", ""), secrets.values()),
        going=going,
    )
    end = ended.why if ended.code is None else f"exit code {ended.code}"
    words, detail = f"{name} {action}: {end}", masked(f"{name} {action}: {ended.words}")
    if ended.code != 0 and not (action == "status" and ended.code == _OFF):
        LOG.warning("%s (after %.1f s)", detail, ended.seconds)
    return Answer(ended.code == 0, words, detail), ended.code


def _forms(username: str, secrets: Iterable[str]) -> set[str]:
    """Return the forms in which an agent may print a secret: as it is, quoted in a URL, and in the
    header of HTTP's basic authentication."""
    found = set()
    for secret in secrets:
        found |= {secret, quote(secret), quote(secret, safe="")}
        for login in (secret, f"{username}:{secret}"):
            found.add(base64.b64encode(login.encode()).decode())
    return found
