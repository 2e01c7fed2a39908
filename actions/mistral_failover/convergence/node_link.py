# SPDX-License-Identifier: Apache-2.0
"""The graph of a traversal as the state store keeps it: networkx's node-link JSON, with the edges
under ``edges``. networkx can write and read that form, but the argument that names the key has
another name since networkx 3.4, and Mistral's releases come with older and newer ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx


def written(graph: nx.DiGraph[str]) -> dict[str, Any]:
    """Return the JSON of a graph, with the attributes of its nodes."""
    return {
        "directed": True,
        "multigraph": False,
        "graph": {},
        "nodes": [{**attributes, "id": node} for node, attributes in graph.nodes(data=True)],
        "edges": [{"source": first, "target": then} for first, then in graph.edges()],
    }


def read(document: Mapping[str, Any]) -> nx.DiGraph[str]:
    """Return the graph of such JSON."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for node in document["nodes"]:
        attributes = dict(node)
        graph.add_node(attributes.pop("id"), **attributes)
    graph.add_edges_from((edge["source"], edge["target"]) for edge in document["edges"])
    return graph
