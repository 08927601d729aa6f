"""Our facts against those of other public catalogues: a difference that nobody has explained fails here."""

from datetime import date

import pytest

from gangway.components.catalog import crosscheck
from gangway.components.catalog.crosscheck import Claims, Explained, Pair, check
from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider, load_tpus


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_difference_from_other_catalogues_has_its_reason(provider: Provider) -> None:
    outcome = check(provider)
    assert outcome.unexplained == (), "mend the fact against its primary source, or add the reason to crosscheck.yaml"
    assert outcome.idle == (), "a reason that explains no difference any more"
    assert all(difference.why for difference in outcome.explained)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_at_least_two_catalogues_speak_of_shapes_and_of_prices(provider: Provider) -> None:
    said = crosscheck._read(provider)[1]
    machines = load_provider(provider).machines
    shapes = {
        source for source, rows in said.items() for row in rows.values() if row.vcpus or row.accelerator_memory_gib
    }
    priced = {
        source for source, rows in said.items() for name, row in rows.items() if row.on_demand and name in machines
    }
    assert len(shapes) >= 2
    assert len(priced) >= (1 if provider == "aws" else 2)
    assert set(check(provider).sources) == set(said)
    spoken_of = {name for rows in said.values() for name in rows} & set(machines)
    assert len(spoken_of) > 0.85 * len(machines)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_source_has_its_address_and_its_day(provider: Provider) -> None:
    for name, about in check(provider).sources.items():
        assert about["url"].startswith("https://"), name
        assert date(2023, 1, 1) <= about["as_of"] <= date.today(), name


@pytest.mark.parametrize("provider", PROVIDERS)
def test_they_speak_of_what_the_catalogue_has(provider: Provider) -> None:
    items = set(load_provider(provider).machines) | (set(load_tpus().generations) if provider == "gcp" else set())
    assert {name for rows in crosscheck._read(provider)[1].values() for name in rows} <= items


def test_another_word_on_a_fact_is_found() -> None:
    claims = {
        "somebody": {
            "p5.48xlarge": Claims(vcpus=192, memory_gib=2047.9, on_demand={"us-east-1": 55.0401, "sa-east-1": 55.04}),
            "p4d.24xlarge": Claims(num_accelerators=4, on_demand={"us-east-1": 32.77}, zones={"us-east-1": ("a", "z")}),
        }
    }
    outcome = check("aws", claims)
    found = {(one.item, one.field): (one.ours, one.theirs) for one in outcome.unexplained}
    assert found == {
        ("p5.48xlarge", "on_demand sa-east-1"): (None, 55.04),
        ("p4d.24xlarge", "num_accelerators"): (8, 4),
        ("p4d.24xlarge", "on_demand us-east-1"): (21.957642, 32.77),
        ("p4d.24xlarge", "zones"): (None, ("us-east-1 z",)),
    }
    assert outcome.compared == 7
    assert not outcome.passes


def test_a_chips_price_and_zone_are_compared_too() -> None:
    claims = {"somebody": {"v5p": Claims(on_demand={"us-east5": 4.2, "us-central1": 9.0}, zones={"us-west4": ("a",)})}}
    found = {(one.field, one.theirs) for one in check("gcp", claims).unexplained}
    assert found == {("on_demand us-central1", 9.0), ("zones", ("us-west4 a",))}


def test_a_reason_explains_the_values_that_it_was_found_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    item = "p5.48xlarge"
    bundled = crosscheck._read("aws")

    def with_reason(ours: int, theirs: int) -> crosscheck.Check:
        reason = Explained(source="somebody", field="vcpus", why="so", items={item: Pair(ours=ours, theirs=theirs)})
        said = {"somebody": {item: Claims(vcpus=96)}}
        monkeypatch.setattr(crosscheck, "_read", lambda provider: (bundled[0], said, (*bundled[2], reason)))
        return check("aws")

    explained = with_reason(192, 96)
    assert [one.why for one in explained.explained if one.item == item] == ["so"]
    assert not [one for one in explained.unexplained if one.item == item]
    for ours, theirs in ((192, 95), (191, 96)):
        outcome = with_reason(ours, theirs)
        assert [one.why for one in outcome.unexplained if one.item == item] == [""]
        assert ("somebody", "vcpus", item) in outcome.idle, "and the reason explains nothing"
