"""Which of a stack's tagged resources nobody looks after. Pure."""

from collections.abc import Collection, Iterable, Sequence

from stacks.audit.model import CloudResource, Judged

__all__ = ["judge"]


def judge(resources: Sequence[CloudResource], known: Collection[str]) -> list[Judged]:
    """Tells resources apart.

    What is in the state is looked after by `pulumi`; what belongs to that (nodes of a group, disks of a node) by it.
    What is gone does not count. What a stack leaves behind on purpose is kept. All else is an orphan.

    Args:
        resources: with the stack's tag.
        known: keys of the state.
    """
    looked_after = _looked_after(resources, known)
    return [_of(resource, known, looked_after) for resource in resources]


def _of(resource: CloudResource, known: Collection[str], looked_after: Collection[str]) -> Judged:
    if not resource.keys.isdisjoint(known):
        return Judged(resource, "in-state", "in the state")
    if resource.gone:
        return Judged(resource, "gone", resource.gone)
    if owners := sorted(resource.owners & set(looked_after)):
        return Judged(resource, "belongs", f"belongs to {owners[0]}")
    if resource.kept:
        return Judged(resource, "kept", resource.kept)
    whose = f"; what it belonged to is not in the state: {min(resource.owners)}" if resource.owners else ""
    return Judged(resource, "orphan", f"not in the state{whose}")


def _looked_after(resources: Iterable[CloudResource], known: Collection[str]) -> frozenset[str]:
    """Keys of the state, of what belongs to it, of what belongs to that, and so on."""
    found, rest = set(known), list(resources)
    while joined := [each for each in rest if not (each.keys | each.owners).isdisjoint(found)]:
        found.update(*(each.keys for each in joined))
        rest = [each for each in rest if each not in joined]
    return frozenset(found)
