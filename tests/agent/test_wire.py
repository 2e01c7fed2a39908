# SPDX-License-Identifier: Apache-2.0
"""What goes over the broker is read as it was signed, or not at all."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mistral_failover.agent import wire
from mistral_failover.agent.wire import Address, Malformed

patient = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100)

SECRET = b"s" * 32
KINDS = ("command", "notice", "result", "heartbeat")

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
epochs = st.integers(0, 2**31 - 1)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=12,
)


@st.composite
def messages(draw):
    """A kind, a document and how its key is found."""
    document = draw(st.dictionaries(st.text(max_size=10), json_values, max_size=5))
    document |= {"member": draw(names), "epoch": draw(epochs)}
    group, server = draw(names), draw(names)
    kind = draw(st.sampled_from(KINDS))
    return kind, document, group, server


def key_of(kind, group, member, server, epoch, secret=SECRET):
    member_key = wire.member_key(wire.group_key(secret, group), member)
    return wire.message_key(kind, member_key, server, epoch)


def reader(kind, group, server, secret=SECRET):
    return lambda member, epoch: key_of(kind, group, member, server, epoch, secret)


def sealed(message):
    kind, document, group, server = message
    key = key_of(kind, group, document["member"], server, document["epoch"])
    return wire.seal(kind, document, key)


def refusal(kind, body, headers, key_for):
    with pytest.raises(Malformed) as raised:
        wire.unseal(kind, body, headers, key_for)
    return raised.value.code


@patient
@given(messages(), st.data())
def test_what_is_sealed_is_read_again_and_is_valid_as_it_is_and_where_it_belongs_alone(
    message, data
):
    """One test: drawing a message costs far more than each of the checks."""
    check_that_it_is_read_again(message)
    check_that_a_flipped_bit_of_the_body_is_seen(message, data)
    check_that_a_flipped_bit_of_the_signature_is_seen(message, data)
    check_that_it_is_valid_for_its_kind_alone(message, data)
    check_that_it_is_valid_for_its_group_server_and_secret_alone(message, data)
    check_that_it_is_valid_for_its_member_alone(message, data)
    check_that_it_is_valid_for_its_epoch_alone(message, data)


def check_that_it_is_read_again(message):
    kind, document, group, server = message
    body, headers = sealed(message)
    read = wire.unseal(kind, body, headers, reader(kind, group, server))
    assert read == {"protocol": wire.PROTOCOL, **document}
    text = body.decode()
    assert wire.unseal(kind, text, headers, reader(kind, group, server)) == read


def check_that_a_flipped_bit_of_the_body_is_seen(message, data):
    kind, _, group, server = message
    body, headers = sealed(message)
    at = data.draw(st.integers(0, len(body) * 8 - 1))
    forged = bytearray(body)
    forged[at // 8] ^= 1 << at % 8
    assert refusal(kind, bytes(forged), headers, reader(kind, group, server)) == "BAD_SIGNATURE"


def check_that_a_flipped_bit_of_the_signature_is_seen(message, data):
    kind, _, group, server = message
    body, headers = sealed(message)
    signature = bytearray.fromhex(headers[wire.SIGNATURE])
    at = data.draw(st.integers(0, len(signature) * 8 - 1))
    signature[at // 8] ^= 1 << at % 8
    forged = headers | {wire.SIGNATURE: signature.hex()}
    assert refusal(kind, body, forged, reader(kind, group, server)) == "BAD_SIGNATURE"


def check_that_it_is_valid_for_its_kind_alone(message, data):
    kind, _, group, server = message
    other = data.draw(st.sampled_from([one for one in KINDS if one != kind]))
    body, headers = sealed(message)
    for claimed in (headers, headers | {wire.KIND: other}):
        assert refusal(other, body, claimed, reader(other, group, server)) == "BAD_SIGNATURE"


def check_that_it_is_valid_for_its_group_server_and_secret_alone(message, data):
    kind, _, group, server = message
    body, headers = sealed(message)
    other = data.draw(names.filter(lambda name: name not in (group, server)))
    for key_for in (
        reader(kind, other, server),
        reader(kind, group, other),
        reader(kind, group, server, b"t" * 32),
    ):
        assert refusal(kind, body, headers, key_for) == "BAD_SIGNATURE"


def check_that_it_is_valid_for_its_member_alone(message, data):
    kind, document, group, server = message
    body, headers = sealed(message)
    other = data.draw(names.filter(lambda name: name != document["member"]))
    code = refusal(kind, body, headers | {wire.MEMBER: other}, reader(kind, group, server))
    assert code == "BAD_SIGNATURE"


def check_that_it_is_valid_for_its_epoch_alone(message, data):
    kind, document, group, server = message
    body, headers = sealed(message)
    other = data.draw(epochs.filter(lambda epoch: epoch != document["epoch"]))
    code = refusal(kind, body, headers | {wire.EPOCH: other}, reader(kind, group, server))
    # A notice's key serves all epochs: a server is told by it which one holds.
    assert code == ("MALFORMED" if kind == "notice" else "BAD_SIGNATURE")


@patient
@given(
    st.sampled_from(KINDS),
    st.binary(max_size=200) | st.text(max_size=50) | st.none() | st.integers() | json_values,
    st.none()
    | st.lists(st.text())
    | st.dictionaries(
        st.sampled_from([wire.KIND, wire.MEMBER, wire.EPOCH, wire.SIGNATURE, "other"]),
        json_values | st.binary(max_size=8),
    ),
)
def test_whatever_comes_is_refused_with_a_code(kind, body, headers):
    code = refusal(kind, body, headers, reader(kind, "group", "server"))
    assert code in ("NOT_SIGNED", "BAD_SIGNATURE", "MALFORMED")


@patient
@given(st.sampled_from(KINDS), st.binary(max_size=100))
@example("command", b"[" * 60_000)
def test_a_signed_body_that_is_no_document_is_malformed(kind, body):
    def signed(member, epoch):
        return key_of(kind, "group", member, "server", epoch)

    _, headers = wire.seal(kind, {"member": "m", "epoch": 1}, signed("m", 1))
    headers[wire.SIGNATURE] = wire._sign(kind, body, signed("m", 1))
    assert refusal(kind, body, headers, signed) == "MALFORMED"


def test_what_is_too_large_is_neither_sealed_nor_looked_at():
    document = {"member": "m", "epoch": 1, "text": "x" * wire.MAX_BYTES}
    with pytest.raises(Malformed) as raised:
        wire.seal("command", document, b"k")
    assert raised.value.code == "TOO_LARGE"

    def never(*_):
        raise AssertionError("a key was asked for")

    assert refusal("command", json.dumps(document).encode(), {}, never) == "TOO_LARGE"


@pytest.mark.parametrize("epoch", [-1, 2**31, True, 1.0, "1", None])
def test_what_is_no_epoch_is_not_signed(epoch):
    body, headers = wire.seal("command", {"member": "m", "epoch": 1}, b"k")
    code = refusal("command", body, headers | {wire.EPOCH: epoch}, lambda *_: b"k")
    assert code == "NOT_SIGNED"


@patient
@given(names, names, names, names, epochs, epochs)
def test_no_key_is_another_one(group, other, member, server, epoch, later):
    secret = wire.group_key(SECRET, group)
    mine = wire.member_key(secret, member)
    keys = [
        SECRET,
        secret,
        mine,
        wire.server_key(mine, server),
        wire.epoch_key(mine, server, epoch),
    ]
    if later != epoch:
        keys.append(wire.epoch_key(mine, server, later))
    if other not in (group, member, server):
        keys += [
            wire.group_key(SECRET, other),
            wire.member_key(secret, other),
            wire.server_key(mine, other),
        ]
    assert len(set(keys)) == len(keys)


def test_the_keys_of_an_installation_stay_what_they_are():
    """Members' keys are copied to nodes: another derivation would lock all of them out."""
    group = wire.group_key(SECRET, "6f1a1c0e-54f5-5d0c-9c53-0b8f2f6a7d11")
    member = wire.member_key(group, "db_a")
    epoch = wire.epoch_key(member, "server-1", 3)
    assert [key.hex()[:16] for key in (group, member, epoch)] == [
        "4ba0b9d6eeeb3b88",
        "f693b0fae666a5ca",
        "3f8c4689f4577dea",
    ]


def test_the_queues_of_two_epochs_servers_and_groups_are_different_ones():
    first = Address("g", "payments", "db_a", "s")
    assert first.commands(3) == "failover.g.s.3"
    assert len({first.commands(3), first.commands(4), first.notices, first.heartbeats}) == 4
    assert Address("g", "payments", "db_b", "s").commands(3) == first.commands(3)
    assert Address("g", "payments", "db_a", "t").commands(3) != first.commands(3)
    assert Address("h", "payments", "db_a", "s").notices != first.notices


# -- values of what is signed


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), 1e15, float("inf"), float("nan"), True, "1", None, [1]]
)
def test_what_can_not_be_reckoned_with_is_no_number(value):
    assert not wire.is_number(value)


@pytest.mark.parametrize("value", [0, -1.5, 1e14, 999_999_999_999_999])
def test_what_can_be_reckoned_with_is_a_number(value):
    assert wire.is_number(value)


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", "x" * 11, b"x", None, 1])
def test_what_can_not_be_written_down_is_no_text(value):
    assert not wire.is_text(value, 10)
    assert wire.is_text("\U0001f600" * 10, 10)


@pytest.mark.parametrize("epoch", [3.0, True, "3", None])
def test_an_epoch_that_only_equals_the_one_of_the_headers_is_refused(epoch):
    header = 1 if epoch is True else 3
    document = {"member": "db_a", "epoch": epoch}
    body, headers = wire.seal("result", document, b"k")
    with pytest.raises(wire.Malformed, match="MALFORMED|NOT_SIGNED"):
        wire.unseal("result", body, headers | {wire.EPOCH: header}, lambda *_: b"k")
