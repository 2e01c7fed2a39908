# SPDX-License-Identifier: Apache-2.0
"""An exchange with a service has one end, in however small parts its answer arrives."""

import time

import pytest
from keystoneauth1.adapter import Adapter

from mistral_failover.cloud.errors import CloudError, Fate
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from support.trickling import trickling

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
TRICKLES = {
    "the first line": (b"", b"H"),
    "a header": (HEAD + b"X-Long: ", b"x"),
    "the body": (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "a body in chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.fixture(params=TRICKLES)
def slow(request):
    """The URL of a server that answers in drops."""
    with trickling(*TRICKLES[request.param]) as port:
        yield f"http://127.0.0.1:{port}"


class Permitting(Unguarded):
    """A guard that records what became of a request."""

    def __init__(self, seconds=60.0):
        super().__init__(seconds)
        self.fates = []

    def unsettled(self):
        return 0.0

    def ask(self, asked):
        return self.permit(asked), 1

    def ended(self, number, fate):
        self.fates.append(fate)


@pytest.mark.parametrize(("timeout", "permitted"), [(60, 0.3), (0.3, 60)])
def test_an_answer_that_trickles_ends_with_the_time_of_the_call(slow, timeout, permitted):
    guard = Permitting(permitted)
    session = GuardedSession(guard=guard, timeout=timeout)
    nova = Adapter(session, service_type="compute", endpoint_override=slow)
    began = time.monotonic()

    with pytest.raises(CloudError) as raised:
        nova.post("/servers", json={}, authenticated=False)

    assert time.monotonic() - began < 2
    assert (raised.value.code, raised.value.unknown) == ("TIMEOUT", True)
    assert guard.fates == [Fate.SILENT], "it may still take effect"
