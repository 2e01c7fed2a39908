# SPDX-License-Identifier: Apache-2.0
"""A server's options: from its command line, and from the section [failover] of a file."""

from __future__ import annotations

import configparser
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import sqlalchemy as sa

from mistral_failover import private_files
from mistral_failover.errors import CodedError
from mistral_failover.served_certificate import DAY, ServedCertificate
from mistral_failover.server.addresses import Address, UnixSocket
from mistral_failover.settings import GROUP, Settings, list_opts
from mistral_failover.store.database import USABLE, supported

_SECRETS = ("database", "command_channel")


@dataclass(frozen=True)
class Options:
    """``settings`` are those of [failover], as text, by name; ``metrics_port`` None: no metrics are
    served; ``secret_file`` None: one is created in the state directory; ``names``: further names of
    Mistral's API. The path of a socket in ``listen`` may be relative to the state directory."""

    state_dir: Path
    cloud: str | None = None
    listen: Address | UnixSocket = UnixSocket(Path("api.sock"))
    names: tuple[str, ...] = ()
    webhook: Address = Address("127.0.0.1", 8990)
    secret_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    metrics_port: int | None = None
    metrics_of_all_projects: bool = False
    workflows: tuple[Path, ...] = ()
    emulated: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def api(self) -> Address | UnixSocket:
        """Where Mistral's API listens."""
        return self.listen.within(self.state_dir.absolute())

    @property
    def secret(self) -> Path:
        """Where the webhook's secret is."""
        return self.secret_file or self.state_dir / "webhook-secret"

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Return the certificate and its key. Raises CodedError TLS_PAIR when one is missing."""
        if self.tls_cert is None and self.tls_key is None:
            return None
        if self.tls_cert is None or self.tls_key is None:
            raise CodedError(
                "TLS_PAIR",
                "--tls-cert and --tls-key belong together, but only one is given",
                "Give both --tls-cert and --tls-key.",
            )
        return self.tls_cert, self.tls_key

    def certificate(self) -> ServedCertificate | None:
        """Read the webhook's certificate, if one is given. Raises CodedError TLS_PAIR,
        TLS_KEY_OPEN."""
        if (pair := self.tls) is None:
            return None
        days = self.settings.get("certificate_warning", Settings().certificate_warning)
        return ServedCertificate(*pair, warning=float(days) * DAY)

    @property
    def database(self) -> str:
        """The URL of the state store. Raises CodedError CONFIG for one that is not supported."""
        if not (given := self.settings.get("database")):
            return f"sqlite:///{self.state_dir / 'failover.sqlite'}"
        try:
            supported(given)
        except sa.exc.ArgumentError:
            raise _wrong("[failover] database is not a URL", USABLE) from None
        return given


def read_settings(file: Path) -> dict[str, str]:
    """Return the section [failover] of a file.

    Raises CodedError CONFIG if the file is not readable, has an unknown option, or holds
    passwords and is readable by other users.
    """
    try:
        found = _section(file, file.read_bytes())
        if any(name in found for name in _SECRETS):
            found = _section(file, private_files.read(file, installed=True))
    except private_files.NotPrivate as error:
        raise _open(error) from None
    except OSError as error:
        raise _wrong(f"{file} cannot be read: {error.strerror}", "Correct --config-file.") from None
    return found


def _section(file: Path, content: bytes) -> dict[str, str]:
    """Return the checked section [failover] of a file's content. Raises CodedError CONFIG."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(content.decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError):
        raise _wrong(
            f"{file} is not an INI file with [section] and option = value", "Correct it."
        ) from None
    found = dict(parser[GROUP]) if parser.has_section(GROUP) else {}
    known = {each.name for each in fields(Settings)}
    if unknown := sorted(set(found) - known):
        raise _wrong(
            f"[{GROUP}] has no option {', '.join(unknown)}",
            f"Known options: {', '.join(sorted(known))}.",
        )
    _check(found)
    return found


def _check(settings: Mapping[str, str]) -> None:
    """Check that the values have their options' types. Raises CodedError CONFIG."""
    ((_, options),) = list_opts()
    for option in options:
        if option.name in settings:
            try:
                option.type(settings[option.name])
            except ValueError as error:
                raise _wrong(f"{option.name}: {error}", "Correct it in --config-file.") from None


def from_environment(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the options of [failover] among the variables OS_FAILOVER__..., and remove these: they
    would override the command line."""
    found = {}
    for each in fields(Settings):
        value = environment.pop(f"OS_{GROUP.upper()}__{each.name.upper()}", None)
        if value is not None:
            found[each.name] = value
    return found


def read_url(file: Path) -> str:
    """Read the database's URL from a file of its own. Raises CodedError CONFIG."""
    try:
        return private_files.read(file, installed=True).decode("utf-8").strip()
    except private_files.NotPrivate as error:
        raise _open(error) from None
    except (OSError, UnicodeDecodeError):
        raise _wrong(f"{file} cannot be read", "Correct --database-file.") from None


def _open(error: private_files.NotPrivate) -> CodedError:
    return _wrong(f"{error.message}, which may hold a password", error.remedy)


def _wrong(message: str, remedy: str) -> CodedError:
    return CodedError("CONFIG", message, remedy)
