# SPDX-License-Identifier: Apache-2.0
"""Build the graph of one traversal from a goal and the existing records.

The graph is a networkx DiGraph of node keys; an edge leads from a node to one that waits for it.
Only these rules order a failover:

========================================  =====================================================
edge                                      rule
========================================  =====================================================
update(A) -> update(B)                    B requires A
cleanup(B) -> cleanup(A)                  B required A: dependents go first
update(B) -> cleanup(A)                   B is kept, required A, and A does not go first
cleanup(old) -> update(new)               delete-first: both must never exist at once
update(new) -> cleanup(old)               create-first: the group always has one
update(fence of m) -> cleanup(X)          X is on the lost member m
update(fence of m) -> update(new X)       X comes to any member: m is proven off first
update(fence of m) -> update(X)           X is the stack's template, which may take from m, too
cleanup(X) -> update(new Y)               X is no longer wanted, Y is new; both are on members
cleanup(X on m) -> update(new Y on m)     X goes first, Y is of its type: they may share an object
cleanup(fence of m) -> update(X)          X comes to m, which comes back
cleanup(X) -> update(replacement of m)    X is on m: a replaced server must carry nothing
update(X) -> update(replacement)          service first: X is anything but a replacement
update(replacement) -> update(next one)   one after the other, by name
cleanup(replacement of m) -> update(X)    X comes to m, whose replacement may be running
========================================  =====================================================

Edges between cleanup and update also connect different names: what is made again on one member may
still run on another one, under another name. A kept record counts as new if it exists nowhere yet:
because it was never made, or because a failed deletion left it.

A record *goes first* if its cleanup does not wait for the updates of kept records that required it:

- It is replaced delete-first. Or it is replaced create-first and required a record that goes first:
  its replacement cannot come before the replacement of what it needs.
- The goal no longer wants it, and a kept dependent waits for something that waits for this cleanup:
  the two orders contradict each other. Any other record that leaves the goal goes after its
  dependents no longer use it.
- The goal no longer wants it, and the goal fences a member: service comes before the updates of
  others. Then these go first: a record on a lost member, a record that required one that goes
  first, and, if anything new comes to a member, a record on any member.

A delete-first dependent of a record that goes first is replaced, too: it must not stay in use
without what it required.

So a goal without a cycle in its own dependencies yields no cycle. A replaced record that does not
go first required none that does, so its cleanup leads only to other cleanups. Hence every cycle
contains a record that leaves the goal and does not go first yet; letting it go first ends the
cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import networkx as nx

from mistral_failover.convergence.decide import revived
from mistral_failover.convergence.errors import GoalCycle, UnknownType
from mistral_failover.convergence.records import Action, Node, Record, Status, Wanted
from mistral_failover.model.goal import (
    FENCE_TYPE,
    REPLACE_TYPE,
    STACK_TEMPLATE,
    Goal,
    fence_name,
    goal_resources,
    replace_name,
    resource_names,
    vacant_roles,
)
from mistral_failover.model.references import holds_reference
from mistral_failover.model.stages import EARLIEST, Stage, rank
from mistral_failover.model.types import ResourceType, Verb, compare

_RANK = {"COMPLETE": 2, "IN_PROGRESS": 1, "FAILED": 0}


@dataclass(frozen=True)
class TraversalPlan:
    """One traversal before it starts.

    ``graph`` holds node keys, ``wanted`` the wanted resource of each update node (by resource id),
    ``new`` the records to insert, ``kept`` the ids of those that stay, ``replaced`` the ids of old
    records with those of their replacements, ``fenced`` the members that this traversal is the
    first to fence, ``stages`` the stage of each node (by its key), which is never earlier than the
    stage of a node that it waits for.
    """

    graph: nx.DiGraph[str]
    wanted: Mapping[str, Wanted]
    new: tuple[Record, ...]
    kept: tuple[str, ...]
    replaced: Mapping[str, str]
    fenced: tuple[str, ...]
    stages: Mapping[str, Stage]

    def ready(self) -> list[Node]:
        """Return the nodes that wait for nothing."""
        return [Node.parse(key) for key, degree in self.graph.in_degree() if degree == 0]

    def roots(self) -> list[Node]:
        """Return the nodes that no other node waits for: when all of them have reported, the goal
        is reached."""
        return [Node.parse(key) for key, degree in self.graph.out_degree() if degree == 0]

    def in_order(self) -> list[Node]:
        """Return all nodes, each after those that it waits for."""
        return [Node.parse(key) for key in nx.lexicographical_topological_sort(self.graph)]


def plan_traversal(
    goal: Goal,
    types: Mapping[str, ResourceType],
    records: Sequence[Record],
    epochs: Mapping[str, int],
    *,
    group_id: str,
    new_id: Callable[[str], str],
    present: Goal | None = None,
) -> TraversalPlan:
    """Plan the traversal to ``goal``.

    ``records`` are all of the group's records, ``epochs`` the current epoch of each member.
    ``new_id`` derives the id of a new record from its name, always the same, so that a repeat finds
    its own traces. ``present`` is the goal until now; None if there is none, or if it is the same.

    Raises UnknownType if the goal names an undefined type, GoalCycle if its dependencies form a
    cycle.
    """
    wanted = resource_names(present) if present else None
    live = [r for r in records if not r.gone]
    draft = _Draft(goal, types, live, epochs, group_id, new_id, wanted)
    return draft.build(draft.choose())


class _Draft:
    """The working state of :func:`plan_traversal`."""

    def __init__(
        self,
        goal: Goal,
        types: Mapping[str, ResourceType],
        live: Sequence[Record],
        epochs: Mapping[str, int],
        group_id: str,
        new_id: Callable[[str], str],
        wanted_until_now: frozenset[str] | None,
    ) -> None:
        self.goal_version = goal.version
        self.wanted_until_now = wanted_until_now
        self.resources = {w.name: w for w in goal_resources(goal)}
        self.types = types
        self.live = live
        self.by_name: dict[str, list[Record]] = {}
        for record in live:
            self.by_name.setdefault(record.name, []).append(record)
        self.epochs = epochs
        self.group_id = group_id
        self.new_id = new_id
        self.chosen: dict[str, Record] = {}  # by name: the record that the goal's resource gets
        self.kept: set[str] = set()
        self.replaced: dict[str, str] = {}
        self.first_gone: dict[
            str, bool
        ] = {}  # by name: whether its old records go before it is created
        self.going_first: set[str] = set()  # ids of records that go first, see the module
        self.leaving = [r for r in live if r.name not in self.resources]
        # A goal that makes room ends before the stages in which a member serves again: those are of
        # the goal that follows it.
        self.last_stage = Stage.MOVE_VOLUMES if vacant_roles(goal) else Stage.END
        self.lost = {
            str(wanted.properties["member"])
            for wanted in self.resources.values()
            if wanted.type == FENCE_TYPE
        }

    def choose(self) -> nx.DiGraph[str]:
        """Keep or replace each resource; return the resulting graph."""
        names = self._names_in_order()
        while True:
            self._choose_all(names)
            graph = self._graph()
            knotted = self._knotted(graph)
            if not knotted:
                return graph
            self.going_first |= knotted

    def _choose_all(self, names: Sequence[str]) -> None:
        """Dependencies first, so that a replacement can propagate upwards.

        It propagates along the records' requirements, whose order may differ from that of the
        wanted resources; so this repeats until nothing more has to go first.
        """
        known = -1
        while known < len(self.going_first):
            known = len(self.going_first)
            self.kept, self.replaced = set(), {}
            for name in names:
                self._choose(name, self.by_name.get(name, []))
            if self.lost:
                self._let_service_come_first()

    def _let_service_come_first(self) -> None:
        """Behind a fence, what leaves the goal waits for no update."""
        coming = any(r.member is not None and self._is_made(r) for r in self.chosen.values())
        self.going_first |= {
            record.id
            for record in self.leaving
            if record.member in self.lost
            or (coming and record.member is not None)
            or self.going_first.intersection(record.requires)
        }

    def _knotted(self, graph: nx.DiGraph[str]) -> set[str]:
        """Return the ids of the records that leave the goal and would have to go both before and
        after the update of a dependent."""
        waiting = {
            Node("cleanup", r.id).key: r.id for r in self.leaving if r.id not in self.going_first
        }
        if not waiting or nx.is_directed_acyclic_graph(graph):
            return set()
        return {
            waiting[key]
            for part in nx.strongly_connected_components(graph)
            if len(part) > 1
            for key in part & waiting.keys()
        }

    def _choose(self, name: str, olds: Sequence[Record]) -> None:
        resource_type = self._type_of(name)
        best = self._best(name, resource_type, olds)
        delete_first = resource_type.replace == "delete_first"
        if best is not None and delete_first and self.going_first.intersection(best.requires):
            best = None
        others = [old for old in olds if old is not best]
        if best is None:
            best = self._new_record(name, resource_type)
            self.replaced |= {old.id: best.id for old in olds}
        else:
            self.kept.add(best.id)
        self.chosen[name] = best
        self.first_gone[name] = delete_first or any(
            self.going_first.intersection(old.requires) for old in others
        )
        if self.first_gone[name]:
            self.going_first |= {old.id for old in others}

    def _graph(self) -> nx.DiGraph[str]:
        """Add the edges."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        updates = {record.id: Node("update", record.id).key for record in self.chosen.values()}
        cleanups = {r.id: Node("cleanup", r.id).key for r in self.live if r.id not in self.kept}
        graph.add_nodes_from(updates.values())
        graph.add_nodes_from(cleanups.values())
        for name, wanted in self.resources.items():
            node = updates[self.chosen[name].id]
            for required in wanted.requires:
                graph.add_edge(updates[self.chosen[required].id], node)
        self._order_cleanups(graph, updates, cleanups)
        self._order_replacements(graph, updates, cleanups)
        self._order_fences(graph, updates, cleanups)
        self._order_new_servers(graph, updates, cleanups)
        return graph

    def build(self, graph: nx.DiGraph[str]) -> TraversalPlan:
        """Return the plan of what was chosen."""
        self._refuse_cycle(graph)
        return TraversalPlan(
            graph=graph,
            wanted={
                self.chosen[name].id: Wanted(
                    name=name,
                    type=wanted.type,
                    properties=wanted.properties,
                    requires=tuple(sorted(self.chosen[r].id for r in wanted.requires)),
                )
                for name, wanted in self.resources.items()
            },
            new=tuple(r for r in self.chosen.values() if r.id not in self.kept),
            kept=tuple(sorted(self.kept)),
            replaced=self.replaced,
            fenced=tuple(
                sorted(
                    str(self.resources[name].properties["member"])
                    for name, record in self.chosen.items()
                    # A member that only needs a new proof was fenced before.
                    if record.type == FENCE_TYPE and name not in self.by_name
                )
            ),
            stages=self._stages(graph),
        )

    def _stages(self, graph: nx.DiGraph[str]) -> dict[str, Stage]:
        """Return the stage of each node: its own, or the latest among those that it waits for."""
        types = {record.id: record.type for record in [*self.live, *self.chosen.values()]}
        found: dict[str, Stage] = {}
        for key in nx.topological_sort(graph):
            node = Node.parse(key)
            verbs = (Verb.DELETE,) if node.kind == "cleanup" else (Verb.CREATE, Verb.UPDATE)
            own = _own_stages(self.types.get(types[node.resource_id]), verbs)
            before = (found[predecessor] for predecessor in graph.predecessors(key))
            found[key] = min(max((EARLIEST, *own, *before), key=rank), self.last_stage, key=rank)
        return found

    def _order_cleanups(
        self, graph: nx.DiGraph[str], updates: Mapping[str, str], cleanups: Mapping[str, str]
    ) -> None:
        for dependent in self.live:
            for required in dependent.requires:
                if required not in cleanups:
                    continue
                if dependent.id in cleanups:
                    graph.add_edge(cleanups[dependent.id], cleanups[required])
                elif required not in self.going_first:
                    graph.add_edge(updates[dependent.id], cleanups[required])

    def _order_replacements(
        self, graph: nx.DiGraph[str], updates: Mapping[str, str], cleanups: Mapping[str, str]
    ) -> None:
        for old in self.live:
            if old.id not in cleanups or old.name not in self.chosen:
                continue
            new = updates[self.chosen[old.name].id]
            if self.first_gone[old.name]:
                graph.add_edge(cleanups[old.id], new)
            else:
                graph.add_edge(new, cleanups[old.id])
        # Two roles that swap members may share a volume: what one role takes from a member may be
        # what the other would find there. What goes first waits for no update but a fence's.
        for made in self.chosen.values():
            if made.member is None or not self._is_made(made):
                continue
            graph.add_edges_from(
                (cleanups[old.id], updates[made.id])
                for old in self.live
                if old.id in cleanups
                and old.id in self.going_first
                and (old.type, old.member) == (made.type, made.member)
            )

    def _order_fences(
        self, graph: nx.DiGraph[str], updates: Mapping[str, str], cleanups: Mapping[str, str]
    ) -> None:
        fences = {
            str(self.resources[name].properties["member"]): updates[record.id]
            for name, record in self.chosen.items()
            if record.type == FENCE_TYPE
        }
        making = [r for r in self.chosen.values() if r.member is not None and self._is_made(r)]
        made = [updates[record.id] for record in making]
        templates = [updates[r.id] for r in self.chosen.values() if r.type == STACK_TEMPLATE]
        graph.add_edges_from(product(fences.values(), made + templates))
        lifted = {fence_name(member): member for member in self.epochs if member not in fences}
        for record in self.live:
            if record.id in cleanups and record.member in fences:
                graph.add_edge(fences[record.member], cleanups[record.id])
            if record.member is not None and record.name not in self.resources:
                graph.add_edges_from((cleanups[record.id], node) for node in made)
            member = lifted.get(record.name) if record.type == FENCE_TYPE else None
            if member is None or record.id not in cleanups:
                continue
            for chosen in making:
                if chosen.member == member:
                    graph.add_edge(cleanups[record.id], updates[chosen.id])

    def _order_new_servers(
        self, graph: nx.DiGraph[str], updates: Mapping[str, str], cleanups: Mapping[str, str]
    ) -> None:
        """The replacements of servers come last, and one by one."""
        chosen = [self.chosen[name] for name in sorted(self.chosen)]
        last = [updates[record.id] for record in chosen if record.type == REPLACE_TYPE]
        first = [updates[record.id] for record in chosen if record.type != REPLACE_TYPE]
        graph.add_edges_from((node, server) for server in last for node in first)
        graph.add_edges_from(pairwise(last))
        for record in self.live:
            if record.id not in cleanups:
                continue
            if record.member is not None and (to := self.chosen.get(replace_name(record.member))):
                graph.add_edge(cleanups[record.id], updates[to.id])
            if record.type == REPLACE_TYPE and record.name not in self.resources:
                graph.add_edges_from(
                    (cleanups[record.id], updates[made.id])
                    for made in chosen
                    if made.member and replace_name(made.member) == record.name
                )

    def _is_made(self, record: Record) -> bool:
        """Return whether a chosen record's update creates something: a new record, or a kept one
        that does not exist yet."""
        standing = record.action == Action.UPDATE or (record.action, record.status) == (
            "CREATE",
            "COMPLETE",
        )
        return record.id not in self.kept or not standing

    def _best(
        self, name: str, resource_type: ResourceType, olds: Sequence[Record]
    ) -> Record | None:
        """Return the record to keep: of the wanted type and member, intact before failed, newest
        before oldest."""
        usable = [
            r
            for r in olds
            if (not r.being_deleted or revived(r, resource_type))
            and r.condemned_for != self.goal_version
            and r.type == resource_type.name
            and r.epoch >= self.epochs.get(r.member or "", 0)
            and self._matches(name, resource_type, r)
            and not self._outdated_proof(r)
        ]
        return max(
            usable,
            key=lambda r: (r.action != Action.INIT, _RANK[r.status], r.generation, r.id),
            default=None,
        )

    def _outdated_proof(self, record: Record) -> bool:
        """An earlier fence proves nothing for what is still on its member: the server may have been
        started again since. Nor does one that still runs, if its member was given as recovered in
        the meantime, and is lost again. Climb the ladder again."""
        if record.type != FENCE_TYPE or record.action == Action.INIT:
            return False
        if record.status != Status.COMPLETE:
            return self.wanted_until_now is not None and record.name not in self.wanted_until_now
        return any(fence_name(r.member) == record.name for r in self.live if r.member)

    def _matches(self, name: str, resource_type: ResourceType, record: Record) -> bool:
        """Return whether an update in place can produce what is wanted, as far as known now."""
        wanted = self.resources[name].properties
        if record.properties is None:
            return record.member == _member_of(resource_type, wanted)
        known = {k for k in {*wanted, *record.properties} if not holds_reference(wanted.get(k))}
        change = compare(
            resource_type,
            {k: v for k, v in record.properties.items() if k in known},
            {k: v for k, v in wanted.items() if k in known},
        )
        return change.action != "replace"

    def _new_record(self, name: str, resource_type: ResourceType) -> Record:
        member = _member_of(resource_type, self.resources[name].properties)
        olds = self.by_name.get(name)
        return Record(
            id=self.new_id(name),
            group_id=self.group_id,
            name=name,
            type=resource_type.name,
            member=member,
            epoch=self.epochs.get(member or "", 0),
            goal_version=self.goal_version,
            replaces=olds[-1].id if olds else None,
        )

    def _names_in_order(self) -> list[str]:
        order: nx.DiGraph[str] = nx.DiGraph()
        order.add_nodes_from(self.resources)
        order.add_edges_from(
            (required, name) for name, w in self.resources.items() for required in w.requires
        )
        try:
            return list(nx.lexicographical_topological_sort(order))
        except nx.NetworkXUnfeasible:
            raise GoalCycle([edge[0] for edge in nx.find_cycle(order)]) from None

    def _refuse_cycle(self, graph: nx.DiGraph[str]) -> None:
        if nx.is_directed_acyclic_graph(graph):
            return
        names = {r.id: r.name for r in [*self.live, *self.chosen.values()]}
        nodes = [Node.parse(edge[0]) for edge in nx.find_cycle(graph)]
        raise GoalCycle([f"{node.kind} of {names[node.resource_id]}" for node in nodes])

    def _type_of(self, name: str) -> ResourceType:
        wanted = self.resources[name]
        try:
            return self.types[wanted.type]
        except KeyError:
            raise UnknownType(wanted.type, name) from None


def _own_stages(resource_type: ResourceType | None, verbs: Sequence[Verb]) -> list[Stage]:
    """Return the stages that a type names for these of its operations."""
    operations = resource_type.operations if resource_type else {}
    specs = (operations[verb] for verb in verbs if verb in operations)
    return [spec.stage for spec in specs if spec.stage is not None]


def _member_of(resource_type: ResourceType, properties: Mapping[str, object]) -> str | None:
    if resource_type.member_property is None:
        return None
    member = properties.get(resource_type.member_property)
    return member if isinstance(member, str) else None
