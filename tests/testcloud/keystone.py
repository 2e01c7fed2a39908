# SPDX-License-Identifier: Apache-2.0
"""A private Keystone, on a database of its own, with the emulated cloud's services behind
keystonemiddleware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex
from testcloud import apis, ini
from testcloud.settings import Settings, write_private

REQUIREMENTS = ("keystone==30.0.0",)
PROJECT = stable_hex("project", "demo")
"""The id of the project demo, the same as the emulated cloud's."""
REGION = "RegionOne"
SERVICES: Mapping[str, tuple[str, ...]] = {
    "identity": ("/identity/v3",),
    "compute": ("/compute/v2.1",),
    "block-storage": ("/volume/v3",),
    "network": ("/network",),
    "load-balancer": ("/load-balancer",),
    "dns": ("/dns",),
    "orchestration": (f"/orchestration/v1/{PROJECT}",),
    "alarming": ("/alarming",),
}
PROVIDER, PROTOCOL = "company", "openid"


@dataclass(frozen=True)
class Keystone:
    """Its address, and what administers it."""

    url: str
    admin: Adapter

    @property
    def auth_url(self) -> str:
        """Keystone's API."""
        return f"{self.url}/identity/v3"

    def password(self, name: str, **scope: Any) -> v3.Password:
        """How a user logs in; the password is the name."""
        return v3.Password(
            self.auth_url, username=name, password=name, user_domain_id="default", **scope
        )

    def federated(self, name: str, **scope: Any) -> v3.OidcAccessToken:
        """How a user of the identity provider logs in."""
        return v3.OidcAccessToken(
            self.auth_url,
            identity_provider=PROVIDER,
            protocol=PROTOCOL,
            access_token=name,
            **scope,
        )

    def admin_of_everything(self) -> None:
        """Give the administrator a role in the domain, too."""
        user, role = self.admin.get_user_id(), self.id_of("/roles", "admin")
        self.admin.put(f"/domains/default/users/{user}/roles/{role}")

    def keep_groups(self, minutes: int) -> None:
        """Let users of the identity provider keep the roles of their groups after a login."""
        provider = {"identity_provider": {"authorization_ttl": minutes}}
        self.admin.patch(f"/OS-FEDERATION/identity_providers/{PROVIDER}", json=provider)

    def made(self, path: str, kind: str, **values: Any) -> Mapping[str, Any]:
        """Make something as the administrator."""
        made: Mapping[str, Any] = self.admin.post(path, json={kind: values}).json()[kind]
        return made

    def id_of(self, path: str, name: str) -> str:
        """The id of what has a name."""
        kind = path.strip("/")
        rows = self.admin.get(path, params={"name": name}).json()[kind]
        return str(rows[0]["id"])

    def application_credential(self, user: str, name: str, **more: Any) -> v3.ApplicationCredential:
        """Make one as a user of the project, and return how it logs in."""
        session = Session(self.password(user, project_id=PROJECT))
        path = f"/users/{session.get_user_id()}/application_credentials"
        own = Adapter(session, endpoint_override=self.auth_url)
        body = {"application_credential": {"name": name, "roles": [{"name": "member"}], **more}}
        made = own.post(path, json=body).json()["application_credential"]
        return v3.ApplicationCredential(
            self.auth_url,
            application_credential_id=made["id"],
            application_credential_secret=made["secret"],
        )


@contextmanager
def running(settings: Settings, folder: Path, cloud: EmulatedCloud) -> Iterator[Keystone]:
    """Run Keystone while the block runs, with the users demo and admin, and an identity provider
    whose users are in a group that has the role member in demo.

    ``folder``: for its configuration, database, keys and logs.

    :raises CloudError: INSTALL_FAILED, TOOL_FAILED, NO_UV.
    """
    programs = apis.installed(settings, "keystone", REQUIREMENTS)
    config = folder / "keystone.conf"
    write_private(config, ini.text(_sections(folder)))
    for name in ("fernet", "credential"):
        for number in ("0", "1"):
            write_private(folder / name / number, Fernet.generate_key().decode())
    token = cloud.client.mint_token()
    arguments = (str(config), PROJECT, cloud.url, token)
    with apis.serving(programs, (), "keystone_api.py", arguments, folder / "log") as url:
        auth = v3.Password(
            f"{url}/identity/v3",
            username="admin",
            password="admin",
            user_domain_id="default",
            project_name="admin",
            project_domain_id="default",
        )
        adapter = Adapter(Session(auth), endpoint_override=f"{url}/identity/v3")
        found = Keystone(url, adapter)
        _fill(found)
        yield found


def _sections(folder: Path) -> ini.Sections:
    return {
        "DEFAULT": {"log_file": str(folder / "keystone.log"), "use_stderr": "false"},
        "database": {"connection": f"sqlite:///{folder / 'keystone.sqlite'}"},
        "fernet_tokens": {"key_repository": str(folder / "fernet")},
        "fernet_receipts": {"key_repository": str(folder / "fernet")},
        "credential": {"key_repository": str(folder / "credential")},
        "auth": {"methods": "password,token,application_credential,mapped,openid"},
        "cache": {"enabled": "false"},
        "identity": {"password_hash_rounds": "4"},
        "oslo_messaging_notifications": {"driver": "noop"},
    }


def _fill(keystone: Keystone) -> None:
    """Make the catalog, the user and the identity provider."""
    admin = keystone.admin
    keystone.made("/regions", "region", id=REGION)
    for kind, paths in SERVICES.items():
        service = keystone.made("/services", "service", type=kind, name=kind)
        for path in paths:
            for interface in ("public", "internal"):
                keystone.made(
                    "/endpoints",
                    "endpoint",
                    service_id=service["id"],
                    region_id=REGION,
                    interface=interface,
                    url=keystone.url + path,
                )
    member = keystone.id_of("/roles", "member")
    user = keystone.made("/users", "user", name="demo", password="demo", domain_id="default")
    group = keystone.made("/groups", "group", name="operators", domain_id="default")
    for whose in (f"users/{user['id']}", f"groups/{group['id']}"):
        admin.put(f"/projects/{PROJECT}/{whose}/roles/{member}")
    rule = {
        "remote": [{"type": "OIDC_NAME"}],
        "local": [{"user": {"name": "{0}"}}, {"group": {"id": group["id"]}}],
    }
    federation = "/OS-FEDERATION"
    provider = f"{federation}/identity_providers/{PROVIDER}"
    admin.put(provider, json={"identity_provider": {"enabled": True}})
    admin.put(f"{federation}/mappings/{PROVIDER}", json={"mapping": {"rules": [rule]}})
    protocol = {"protocol": {"mapping_id": PROVIDER}}
    admin.put(f"{provider}/protocols/{PROTOCOL}", json=protocol)
