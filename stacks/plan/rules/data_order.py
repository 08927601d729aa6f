"""The rule for the order in which a stack's data, its protections and its keys are deleted."""

from collections.abc import Iterator, Sequence

from gangway.components.core.retention import Retention
from gangway.stacks.base.rule import kind
from gangway.stacks.recording import PlannedResource


def protection_breaches(facts: Retention, resources: Sequence[PlannedResource]) -> Iterator[str]:
    """The resources that could be deleted while the data still needs them.

    A resource outlives the data if it is retained, or if the data depends on it and the cloud refuses to delete the
    data: Pulumi deletes in reverse order of dependencies and stops at the first failure.
    """
    graph = _Graph(resources)
    for data in resources:
        if kind(data.type) not in facts.data or facts.is_scratch(data.inputs):
            continue
        if not facts.refuses and not data.is_retained:
            yield f"{data.name} ({kind(data.type)}) is deleted with what is in it"
            continue
        holders = {urn for urn in graph.dependencies(data.urn) if kind(graph.by_urn[urn].type) in facts.holders}
        guarded = {data.urn, *holders}
        protections = [one for one in resources if kind(one.type) in facts.protections and guarded & one.dependencies]
        needs = graph.dependencies(data.urn).union(*(graph.dependencies(one.urn) for one in protections))
        keys = {urn for urn in needs if kind(graph.by_urn[urn].type) in facts.keys}
        before = {urn for urn in needs if kind(graph.by_urn[urn].type) in facts.surroundings}
        grants = {
            one.urn for one in resources if kind(one.type) in facts.key_grants and not keys.isdisjoint(one.dependencies)
        }
        for one in protections:
            if not one.is_retained and one.deleted_with not in guarded:
                yield f"{one.name} ({kind(one.type)}) is deleted before {data.name}, which it protects"
        for urn in sorted(keys | grants | before | holders):
            if not graph.outlives(urn, data):
                one = graph.by_urn[urn]
                yield f"{one.name} ({kind(one.type)}) can be deleted while {data.name} needs it"


class _Graph:
    def __init__(self, resources: Sequence[PlannedResource]) -> None:
        self.by_urn = {one.urn: one for one in resources}
        self._dependencies: dict[str, frozenset[str]] = {}

    def dependencies(self, urn: str) -> frozenset[str]:
        """Direct and indirect dependencies of a resource."""
        if urn not in self._dependencies:
            direct = frozenset(other for other in self.by_urn[urn].dependencies if other in self.by_urn)
            self._dependencies[urn] = direct.union(*(self.dependencies(other) for other in direct))
        return self._dependencies[urn]

    def outlives(self, urn: str, data: PlannedResource) -> bool:
        if self.by_urn[urn].is_retained:
            return True
        # Deleting retained data always succeeds, so it does not stop the deletions that follow.
        return not data.is_retained and urn in self.dependencies(data.urn)
