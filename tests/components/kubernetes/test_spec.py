"""Teams as they are written: names of namespaces, and shares that fit."""

import pytest

from gangway.components.core.findings import InputError
from gangway.components.kubernetes.spec import ClusterSpec, Node, Team, check_teams


@pytest.mark.parametrize(
    ("teams", "place"),
    [
        ((Team("kube-vision", 1),), "teams[0].name"),
        ((Team("vision", 1), Team("default", 1)), "teams[1].name"),
        ((Team("Vision", 1),), "teams[0].name"),
        ((Team("vision-", 1),), "teams[0].name"),
        ((Team("v" * 64, 1),), "teams[0].name"),
        ((Team("vision", 1), Team("vision", 1)), "teams[1].name"),
        ((Team("vision", 3), Team("speech", 2)), "teams"),
    ],
)
def test_a_team_that_cannot_be_is_named(teams: tuple[Team, ...], place: str) -> None:
    with pytest.raises(InputError) as caught:
        check_teams(teams, 4, "teams")
    assert caught.value.place == place
    assert caught.value.fix


def test_teams_that_fit_are_taken() -> None:
    check_teams((Team("vision", 3), Team("v" * 63, 1)), 4, "teams")
    check_teams((), 4, "teams")


def test_without_teams_there_is_one_queue_for_all() -> None:
    spec = ClusterSpec((), Node(4, 16), 3, ())
    assert spec.queues == (Team("main", 3),)
    assert spec.shared_nodes == 0


def test_quantities_are_of_so_many_nodes() -> None:
    assert Node(96, 1024, disk_gib=100).quantities(3)["ephemeral-storage"] == "300Gi"
    assert Node(96, 1024, {"nvidia.com/gpu": 8}).quantities(3) == {
        "cpu": "288",
        "memory": "3072Gi",
        "nvidia.com/gpu": "24",
    }
