# SPDX-License-Identifier: Apache-2.0
"""Which certificate authorities are trusted, where a request or an entry of clouds.yaml does not
say it."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from pathlib import Path

from mistral_failover.cloud.errors import CloudError

BUNDLES = ("OS_CACERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The variables that name a file of trusted certificates, the first that is set before others."""


def bundle() -> str | bool:
    """Return the file of certificates that the environment names, for OpenStack's clients or for
    requests; True if it names none."""
    return next(filter(None, map(os.environ.get, BUNDLES)), True)


def check(name: str) -> None:
    """See that a file, or a folder, has certificates: requests would raise what no caller expects.
    Raises `CloudError` CONFIG."""
    _check(name, version_of(name))


@lru_cache(maxsize=16)
def _check(name: str, version: tuple[int, int, int] | None) -> None:
    """As `check`. ``version``: of the content."""
    why = "there is no such file"
    if version is not None:
        try:
            folder = Path(name).is_dir()
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
                cafile=None if folder else name, capath=name if folder else None
            )
        except ssl.SSLError:
            why = "it has no certificate in PEM"
        except OSError as error:
            why = str(error.strerror)
        else:
            return
    raise CloudError(
        "CONFIG",
        f"The certificates to trust cannot be read from {name}: {why}.",
        remedy="Correct cacert in the entry of clouds.yaml or in [failover], or the variables "
        f"{' and '.join(BUNDLES[:2])}. For a request through Mistral, it is cafile in "
        "[keystone_authtoken] of mistral.conf.",
    )


def version_of(file: str) -> tuple[int, int, int] | None:
    """Return what differs between two contents of a file; None if there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 - a name as openstacksdk has it
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
