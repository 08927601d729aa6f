"""The ladder of machines that are there already: one rung, on demand; everything else with its reason."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from gangway.components.core.capacity import AnyRung, Rung
from gangway.components.core.findings import InputError
from gangway.components.hosts.node_pool import check_ladder

RUNGS: TypeAdapter[list[AnyRung]] = TypeAdapter(list[Rung])
ON_DEMAND: dict[str, Any] = {"kind": "on-demand"}


def test_machines_that_are_there_are_on_demand() -> None:
    check_ladder(RUNGS.validate_python([ON_DEMAND]))


@pytest.mark.parametrize(
    ("rungs", "place", "said"),
    [
        ([{"kind": "spot"}], "gangway:cluster.capacity[0].kind", "takes them back"),
        ([{"kind": "reservation", "id": "r"}], "gangway:cluster.capacity[0].kind", "reserves them"),
        ([ON_DEMAND, {"kind": "spot"}], "gangway:cluster.capacity[1].kind", "on-demand"),
        ([{**ON_DEMAND, "machine_types": ["dgx"]}], "gangway:cluster.capacity[0]", "no machine_types and no zones"),
        ([{**ON_DEMAND, "zones": ["rack-2"]}], "gangway:cluster.capacity[0]", "'rack-2'"),
        ([ON_DEMAND, ON_DEMAND], "gangway:cluster.capacity", "no other machines to turn to"),
    ],
)
def test_every_other_way_to_get_machines_is_refused(rungs: list[dict[str, Any]], place: str, said: str) -> None:
    with pytest.raises(InputError, match="fix") as caught:
        check_ladder(RUNGS.validate_python(rungs))
    assert caught.value.place == place
    assert said in str(caught.value)
