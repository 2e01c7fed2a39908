# SPDX-License-Identifier: Apache-2.0
"""Names in the DNS are pointed to one member after the other, and deleted.

Measured:

Designate 23

- A change is shown at once, with PENDING; ACTIVE says that its name servers answer with it, 3 to
  6 s later with the default intervals. Another change may follow before.
- A recordset that is deleted is a 404 at once, while the name servers still answer with it.
- A zone of another project, and everything in it: 404. In the list of zones it is absent.
- A name that exists: 409 "Duplicate RecordSet". A CNAME beside another type: 400.
- A description longer than 160 characters: 400 "Value too long for description".
- A TXT record: a word without spaces, or a quoted text; more than 255 characters are several.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dns.message
import dns.query
import pytest

import testcloud.designate
from contract.api import Api
from contract.conftest import Two
from contract.emulated import EmulatedRig
from contract.rig import UNKNOWN_ID, Rig
from mistral_failover.cloud import dns_records
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from testcloud import settings

OWNER = dns_records.owner("payments", "name")


@dataclass(frozen=True)
class Zone:
    """A zone, and what asks its name server; None where there is none to be asked."""

    demo: Api
    id: str
    name: str
    dns_port: int | None

    def wanted(self, target: str = "192.0.2.1", **more: Any) -> dns_records.WantedRecordset:
        """What a name of the zone should be."""
        plain = dns_records.WantedRecordset(self.id, f"db.{self.name}", "A", target, 30, OWNER)
        return dataclasses.replace(plain, **more)

    def shown(self, recordset: str) -> dict[str, Any] | None:
        """A recordset as Designate shows it, None where there is none."""
        answer = self.demo.designate("GET", f"{self.path}/{recordset}")
        assert answer.status_code in (200, 404), answer.text
        return dict(answer.json()) if answer.status_code == 200 else None

    def made(self, **values: Any) -> str:
        """Make a recordset, by hand; its id."""
        answer = self.demo.designate("POST", self.path, values)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    @property
    def path(self) -> str:
        """Where Designate has the recordsets."""
        return f"/zones/{self.id}/recordsets"

    def answers(self, name: str, type_: str = "A") -> list[tuple[int, str]] | None:
        """The time to live and the record of each answer of the name server."""
        if self.dns_port is None:
            return None
        question = dns.message.make_query(name, type_)
        answer = dns.query.udp(question, "127.0.0.1", port=self.dns_port, timeout=10)
        return [(each.ttl, str(record)) for each in answer.answer for record in each]


@pytest.fixture(scope="module")
def dns_port(
    request: pytest.FixtureRequest, rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int | None]:
    """The name server of a real Designate, if that is asked for; else None, and the emulated one
    serves."""
    if not request.config.getoption("--designate"):
        if not isinstance(rig, EmulatedRig):
            pytest.skip("--designate starts a Designate")
        yield None
        return
    folder = tmp_path_factory.mktemp("designate")
    with testcloud.designate.running(settings.load(), folder, rig.login("admin")) as real:
        rig.places["designate"] = real.url
        yield real.dns_port
        del rig.places["designate"]


@pytest.fixture(scope="module")
def cloud(rig: Rig, dns_port: int | None) -> Cloud:
    """The adapters, with that Designate."""
    return rig.connect()


@pytest.fixture(scope="module")
def zone(rig: Rig, dns_port: int | None) -> Iterator[Zone]:
    """A zone."""
    demo, name = rig.api(), f"{rig.name()}.example.org."
    answer = demo.designate("POST", "/zones", {"name": name, "email": "a@example.org"})
    assert answer.status_code == 202, answer.text
    made = Zone(demo, str(answer.json()["id"]), name, dns_port)
    yield made
    assert demo.designate("DELETE", f"/zones/{made.id}").status_code == 202


@pytest.fixture(autouse=True)
def _empty(rig: Rig, zone: Zone) -> Iterator[None]:
    """No test finds the names of another."""
    yield
    for row in zone.demo.designate("GET", zone.path).json()["recordsets"]:
        if row["type"] not in ("NS", "SOA"):
            zone.demo.designate("DELETE", f"{zone.path}/{row['id']}")


def test_a_name_is_made_pointed_elsewhere_and_deleted(cloud: Cloud, zone: Zone, rig: Rig) -> None:
    """The name servers answer with it when the call is over; a repeat changes nothing."""
    name = f"db.{zone.name}"
    made, attributes = dns_records.point(cloud, zone.wanted(), 60)

    assert attributes == {"name": name, "target": "192.0.2.1", "zone_id": zone.id}
    assert zone.answers(name) in (None, [(30, "192.0.2.1")])

    moved, attributes = dns_records.point(cloud, zone.wanted("192.0.2.2", ttl=60), 60)
    again = dns_records.point(cloud, zone.wanted("192.0.2.2", ttl=60), 60)

    assert again == (made, attributes) == (moved, {**attributes, "target": "192.0.2.2"})
    shown = zone.shown(made)
    assert shown is not None
    assert (shown["records"], shown["ttl"], shown["status"]) == (["192.0.2.2"], 60, "ACTIVE")
    assert zone.answers(name) in (None, [(60, "192.0.2.2")])

    for _ in range(2):
        dns_records.remove(cloud, zone.id, made, OWNER, 30)
        assert zone.shown(made) is None
    rig.until(lambda: not zone.answers(name))


@pytest.mark.parametrize(
    ("type_", "target", "sent"),
    [
        ("AAAA", "2001:DB8::0001", "2001:db8::1"),
        ("CNAME", "DB-a.example.org", "db-a.example.org."),
    ],
)
def test_each_type_is_compared_in_one_form(
    cloud: Cloud, zone: Zone, type_: dns_records.Kind, target: str, sent: str
) -> None:
    wanted = zone.wanted(target, type=type_, name=f"Other.{zone.name}".rstrip("."))
    made, attributes = dns_records.point(cloud, wanted, 60)

    shown = zone.shown(made)
    assert shown is not None
    assert (shown["name"], attributes["target"]) == (f"other.{zone.name}", sent)
    version = shown.get("updated_at")
    assert dns_records.point(cloud, wanted, 60)[0] == made
    assert (zone.shown(made) or {}).get("updated_at") == version, "nothing was sent"


@pytest.mark.parametrize(
    ("record", "taken"),
    [
        ("plain", True),
        ('"v=spf1 -all"', True),
        (r'"a \"quoted\" word"', True),
        ("two words", False),
        ('"no end', False),
        ('"a "stray" quote"', False),
        ("x" * 256, False),
        (f'"{"x" * 200}" "{"y" * 200}"', True),
        (f'"{"x" * 300}"', False),
    ],
)
def test_a_text_is_one_word_or_quoted(zone: Zone, record: str, taken: bool) -> None:
    """No resource makes one. A group's name may be beside one, such as a proof of ownership."""
    wanted = {"name": f"txt.{zone.name}", "type": "TXT", "records": [record]}
    answer = zone.demo.designate("POST", zone.path, wanted)

    assert answer.status_code == (202 if taken else 400), answer.text
    if taken:
        assert answer.json()["records"] == [record]
    else:
        assert "is not a 'TXT' Record" in answer.text


def test_an_unknown_type_of_record_is_refused(zone: Zone) -> None:
    wanted = {"name": f"odd.{zone.name}", "type": "ODD", "records": ["x"]}
    answer = zone.demo.designate("POST", zone.path, wanted)

    assert answer.status_code == 400
    assert "'ODD' is not a" in answer.text


def test_the_name_of_another_owner_is_refused_and_never_deleted(
    rig: Rig, cloud: Cloud, zone: Zone
) -> None:
    name = f"db.{zone.name}"
    made = zone.made(name=name, type="A", records=["192.0.2.9"], description="of the web team")

    with pytest.raises(CloudError) as caught:
        dns_records.point(cloud, zone.wanted(), 30)
    dns_records.remove(cloud, zone.id, made, OWNER, 30)

    assert caught.value.code == "DNS_RECORD_IN_USE"
    assert "of the web team" in caught.value.message
    assert made in (caught.value.remedy or "")
    assert (zone.shown(made) or {})["records"] == ["192.0.2.9"]

    change = ("PUT", f"{zone.path}/{made}", {"description": OWNER})
    rig.until(lambda: zone.demo.designate(*change).ok)  # Designate refuses it before it is ACTIVE
    assert dns_records.point(cloud, zone.wanted(), 60)[0] == made


def test_what_the_longest_names_call_their_own_is_told_apart(cloud: Cloud, zone: Zone) -> None:
    long, other = (dns_records.owner("g" * 254 + last, "r" * 64) for last in "ab")
    assert long != other

    made, _ = dns_records.point(cloud, zone.wanted(owner=long), 60)

    assert (zone.shown(made) or {})["description"] == long


def test_designate_says_what_it_does_not_take(cloud: Cloud, zone: Zone) -> None:
    for wanted, words in (
        (zone.wanted("not"), "'not' is not a 'A' Record"),
        (zone.wanted(name="db.example.com."), "not contained within it's parent zone"),
    ):
        with pytest.raises(CloudError) as caught:
            dns_records.point(cloud, wanted, 30)
        assert caught.value.code == "BAD_REQUEST"
        assert words in caught.value.message


def test_a_name_of_another_type_is_in_the_way_of_an_alias(cloud: Cloud, zone: Zone) -> None:
    dns_records.point(cloud, zone.wanted(), 60)

    with pytest.raises(CloudError) as caught:
        dns_records.point(cloud, zone.wanted("db-a.example.org.", type="CNAME"), 30)

    assert "CNAME recordsets may not share a name" in caught.value.message


def test_a_zone_is_found_by_its_name_in_the_project_only(
    connect: Callable[..., Cloud], cloud: Cloud, zone: Zone
) -> None:
    assert dns_records.resolve_zone(cloud, zone.name) == zone.id
    assert dns_records.resolve_zone(cloud, zone.name.upper().rstrip(".")) == zone.id

    foreign = connect("other", trust=False)
    for find in (
        lambda: dns_records.resolve_zone(foreign, zone.name),
        lambda: dns_records.named(foreign, zone.id, f"db.{zone.name}", "A"),
    ):
        with pytest.raises(CloudError) as caught:
            find()
        assert caught.value.code == "NOT_FOUND"


def test_an_administrator_is_given_no_zone_of_another_project(rig: Rig, zone: Zone) -> None:
    other, name = rig.api("other"), f"{rig.name()}.example.org."
    body = {"name": name, "email": "dns@example.org"}
    made = other.call("designate", "POST", "/v2/zones", body).json()["id"]
    administrator = rig.within_demo("admin")
    assert dns_records.resolve_zone(administrator, zone.name) == zone.id
    with pytest.raises(CloudError) as caught:
        dns_records.resolve_zone(administrator, name)
    other.call("designate", "DELETE", f"/v2/zones/{made}")
    assert caught.value.code == "NOT_FOUND"


@pytest.mark.only_on("emulated", reason="it has no shared zones, so the answer is changed")
def test_the_record_of_another_project_is_not_the_group_s_whatever_it_says(
    cloud: Cloud, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = dns_records.point(cloud, zone.wanted(), 60)
    read = dns_records._read
    monkeypatch.setattr(
        dns_records, "_read", lambda row: dataclasses.replace(read(row), project_id="another")
    )

    with pytest.raises(CloudError) as caught:
        dns_records.point(cloud, zone.wanted("192.0.2.66"), 30)
    dns_records.remove(cloud, zone.id, made, OWNER, 30)

    assert caught.value.code == "DNS_RECORD_IN_USE"
    assert (zone.shown(made) or {})["records"] == ["192.0.2.1"]


def test_the_name_of_another_project_is_not_there(
    connect: Callable[..., Cloud], cloud: Cloud, zone: Zone
) -> None:
    made, _ = dns_records.point(cloud, zone.wanted(), 60)
    foreign = connect("other", trust=False)

    assert dns_records.recordset(foreign, zone.id, made) is None
    with pytest.raises(CloudError) as caught:
        dns_records.point(foreign, zone.wanted("192.0.2.66"), 30)
    dns_records.remove(foreign, zone.id, made, OWNER, 30)

    assert caught.value.code == "NOT_FOUND"
    assert (zone.shown(made) or {})["records"] == ["192.0.2.1"]


def test_what_does_not_exist_is_deleted_already(cloud: Cloud, zone: Zone) -> None:
    dns_records.remove(cloud, zone.id, UNKNOWN_ID, OWNER, 30)
    dns_records.remove(cloud, UNKNOWN_ID, UNKNOWN_ID, OWNER, 30)


def test_a_listing_looks_at_a_name_once(cloud: Cloud, zone: Zone) -> None:
    made, _ = dns_records.point(cloud, zone.wanted(), 60)
    listing = ProjectListing(cloud)

    found = listing.recordset(zone.id, made)

    assert found is not None
    assert found.leads_to("192.0.2.1")
    dns_records.remove(cloud, zone.id, made, OWNER, 30)
    assert listing.recordset(zone.id, made) is found
    assert ProjectListing(cloud).recordset(zone.id, made) is None


def test_a_name_leads_to_the_address_of_the_server_or_where_the_group_file_says(
    cloud: Cloud, zone: Zone, linked: Two, rig: Rig
) -> None:
    port = zone.demo.port(rig.port_of(linked.a))
    assert port is not None
    own = port["fixed_ips"][0]["ip_address"]

    assert dns_records.target_of(cloud, "db_a", linked.a, "A") == own
    stated = {"db_a": "203.0.113.7"}
    assert dns_records.target_of(cloud, "db_a", linked.a, "A", targets=stated) == "203.0.113.7"
    for type_, targets in (("A", {"db_b": "203.0.113.8"}), ("CNAME", None), ("AAAA", None)):
        assert refused(cloud, linked.a, type_, targets) == "NO_DNS_TARGET"


def refused(cloud: Cloud, server: str, type_: Any, targets: Mapping[str, str] | None) -> str:
    """The code with which a member without a target is refused."""
    with pytest.raises(CloudError) as caught:
        dns_records.target_of(cloud, "db_a", server, type_, targets=targets)
    assert "db_a" in caught.value.message
    return caught.value.code
