# SPDX-License-Identifier: Apache-2.0
"""The stored form of a graph is networkx's own, whatever its release."""

from __future__ import annotations

import networkx as nx

from mistral_failover.convergence import node_link


def test_a_graph_is_written_and_read_as_networkx_does_it() -> None:
    graph = nx.DiGraph([("fence", "detach"), ("detach", "attach")])
    graph.add_node("alone")
    nx.set_node_attributes(graph, {"fence": "fence"}, "stage")

    written = node_link.written(graph)

    assert written == nx.node_link_data(graph, edges="edges")
    read = node_link.read(written)
    assert nx.utils.graphs_equal(read, graph)
