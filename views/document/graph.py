"""The document as a graph: the order of a request's path, what is up- and downstream of a box.

A map of a running system has cycles, because answers go back. A *return* connection is one that
closes a cycle in a depth-first walk that starts at the clients and follows the connections in the
order of the document; without the returns the graph has no cycle, and "before" and "after" mean
something.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import networkx as nx

from views.document.model import Document

Graph: TypeAlias = "nx.DiGraph[str]"


def build(document: Document) -> Graph:
    """Return the components and connections, in the order of the document."""
    graph: Graph = nx.DiGraph()
    for component in document.components:
        graph.add_node(component.id, type=component.type)
    graph.add_edges_from((edge.source, edge.target) for edge in document.connections)
    return graph


def clients(graph: Graph) -> list[str]:
    """Return the external components that ask for something: those with a connection out."""
    return [
        node
        for node in graph
        if graph.nodes[node]["type"] == "external"
        and any(other != node for other in graph.successors(node))
    ]


def forward(graph: Graph) -> Graph:
    """Return the graph without its return connections; it has no cycle."""
    _, returns = _walk(graph)
    result = graph.copy()
    result.remove_edges_from(returns)
    return result


def request_path(graph: Graph) -> list[str]:
    """Return the boxes in the order in which a request reaches them.

    A box comes after all that send to it (returns aside); where that leaves a choice, the order
    of the connections in the document decides. Boxes that no request reaches are not listed.
    """
    seen, _ = _walk(graph)
    rank = {node: position for position, node in enumerate(seen)}
    starts = clients(graph) or seen[:1]
    reached = _reach(graph, starts)
    order = nx.lexicographical_topological_sort(forward(graph), key=rank.__getitem__)
    return [node for node in order if node in reached]


def upstream(forward_graph: Graph, node: str) -> list[str]:
    """Return all from which a request can come to this box, in the order of the document."""
    return _in_order(forward_graph, nx.ancestors(forward_graph, node))


def downstream(forward_graph: Graph, node: str) -> list[str]:
    """Return all that a request can reach from this box, in the order of the document."""
    return _in_order(forward_graph, nx.descendants(forward_graph, node))


def layers(graph: Graph) -> list[list[str]]:
    """Return the boxes by their longest way from a start, ordered to keep lines short."""
    columns = [list(column) for column in nx.topological_generations(forward(graph))]
    ranks = {node: float(row) for column in columns for row, node in enumerate(column)}
    for column in columns[1:]:
        weights = {node: _mean(ranks, graph.predecessors(node), ranks[node]) for node in column}
        column.sort(key=weights.__getitem__)
        ranks.update((node, float(row)) for row, node in enumerate(column))
    return columns


def clients_without_return(graph: Graph) -> list[str]:
    """Return the clients to which nothing of what they reach comes back."""
    return [node for node in clients(graph) if not _answered(graph, node)]


def isolated(graph: Graph, focus: Iterable[str]) -> list[str]:
    """Return the boxes of a view that have no connection to another box of it."""
    members = [node for node in focus if node in graph]
    inside = set(members)
    if len(inside) < 2:
        return []
    return [node for node in members if not (set(nx.all_neighbors(graph, node)) - {node}) & inside]


def _walk(graph: Graph) -> tuple[list[str], list[tuple[str, str]]]:
    """Walk depth first; return the boxes as found, and the connections that close a cycle."""
    found: dict[str, None] = {}
    open_boxes: set[str] = set()
    returns: list[tuple[str, str]] = []
    for start in _starts(graph):
        if start in found:
            continue
        found[start] = None
        open_boxes.add(start)
        # A stack of our own: recursion would end at a chain of a thousand boxes.
        stack = [(start, iter(graph.successors(start)))]
        while stack:
            node, targets = stack[-1]
            target = next(targets, None)
            if target is None:
                open_boxes.discard(node)
                stack.pop()
            elif target in open_boxes:
                returns.append((node, target))
            elif target not in found:
                found[target] = None
                open_boxes.add(target)
                stack.append((target, iter(graph.successors(target))))
    return list(found), returns


def _starts(graph: Graph) -> list[str]:
    asking = clients(graph)
    sources = [node for node in graph if graph.in_degree(node) == 0]
    return [*asking, *sources, *graph]


def _reach(graph: Graph, starts: Iterable[str]) -> set[str]:
    reached: set[str] = set()
    for start in starts:
        reached |= {start, *nx.descendants(graph, start)}
    return reached


def _answered(graph: Graph, node: str) -> bool:
    after = nx.descendants(graph, node)
    return any(other in after for other in graph.predecessors(node))


def _in_order(graph: Graph, nodes: set[str]) -> list[str]:
    return [node for node in graph if node in nodes]


def _mean(ranks: dict[str, float], nodes: Iterable[str], default: float) -> float:
    values = [ranks[node] for node in nodes if node in ranks]
    return sum(values) / len(values) if values else default
