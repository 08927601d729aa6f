"""Which runs make a row, and which are refused: the reason names the field, the values and the runs."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.report.comparison.groups import KEYS, Member, check_one_table, group_runs, parse_keys

Make = Callable[..., Member]


def labels(members: list[Member], keys: tuple[str, ...] | None = None) -> dict[str, tuple[int, ...]]:
    check_one_table(members, keys)
    return {group.label: group.seeds for group in group_runs(members, keys)}


def test_runs_over_seeds_make_a_row_and_places_make_others(member_of: Make) -> None:
    runs = [
        member_of("a1", 1),
        member_of("a0", 0),
        member_of("b0", 0, stack="aws"),
        member_of("c0", 0, stack="aws", world_size=2),
    ]
    assert labels(runs) == {"local, 1 worker": (0, 1), "aws, 1 worker": (0,), "aws, 2 workers": (0,)}
    assert labels(runs[:2]) == {"local": (0, 1)}


def test_arms_of_a_suite_make_rows_and_may_differ_in_their_settings(members: dict[str, tuple[Member, ...]]) -> None:
    assert labels(list(members["arms"])) == {"control": (0, 1), "half": (0, 1)}


def test_settings_that_differ_are_refused_unless_rows_are_made_of_them(member_of: Make) -> None:
    runs = [member_of("a"), member_of("b", config={"precision": "bf16"}), member_of("c", 1)]
    with pytest.raises(
        InputError, match=r"RUNS: precision: differs inside one table(.|\n)*fp32: a, c; bf16: b"
    ) as told:
        labels(runs)
    assert told.value.fix == "make rows of it: --group-by stack,precision"
    assert labels(runs, ("precision",)) == {"precision fp32": (0, 1), "precision bf16": (0,)}
    assert labels(runs, ("run", "precision")) == {
        "a, precision fp32": (0,),
        "b, precision bf16": (0,),
        "c, precision fp32": (1,),
    }


def test_settings_that_differ_inside_an_arm_are_refused(member_of: Make) -> None:
    runs = [
        member_of("a", arm="control", suite="s"),
        member_of("b", 1, arm="control", suite="s", config={"lr_g": 1e-3, "mirror": True}),
    ]
    with pytest.raises(InputError, match=r"RUNS: (lr_g|mirror): differs inside one table"):
        labels(runs)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"config": {"preset": "other"}}, r"presets differ inside one table(.|\n)*dcgan-digits: a; other: b"),
        ({"data": "ff"}, r"data sets differ inside one table(.|\n)*digits ff"),
        ({"paper": "P3"}, r"tables of papers differ inside one table(.|\n)*P2: a; P3: b"),
    ],
)
def test_other_trainings_are_refused_whatever_rows_are_made_by(
    member_of: Make, more: dict[str, object], message: str
) -> None:
    sha = more.pop("data", "") if "data" in more else ""
    other = member_of("b", **more)
    if sha:
        dataset = other.record.dataset.model_copy(update={"sha256": str(sha) * 32})
        other = member_of("b", dataset=dataset)
    with pytest.raises(InputError, match=message):
        check_one_table([member_of("a", paper="P2"), other], ("run",))


def test_of_many_runs_the_first_few_are_named(member_of: Make) -> None:
    runs = [*(member_of(f"a{n}", n) for n in range(5)), member_of("b", config={"tf32": False})]
    with pytest.raises(InputError, match=r"true: a0, a1, a2 and 2 more; false: b"):
        check_one_table(runs, None)


def test_what_differs_inside_a_row_is_said(member_of: Make) -> None:
    versions = {"torch": "1.0"}
    runs = [member_of("a"), member_of("b", world_size=2, code_sha256="c0" * 32, versions=versions)]
    (group,) = group_runs(runs, ("stack",))
    said = " ".join(group.remarks)
    assert "workers differs inside this row: 1 worker, 2 workers" in said
    assert "seed 0 stands in it more than once" in said
    assert "trainer's code differs inside this row" in said
    assert "torch differs inside this row" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("precison", r"--group-by: rows cannot be made by it(.|\n)*did you mean 'precision'"),
        ("stack,stack", "--group-by: names one twice"),
        ("seed", "runs over seeds make one row"),
        ("preset", "for each preset make a report of its own"),
        ("", "--group-by: rows cannot be made by it"),
    ],
)
def test_a_wrong_group_by_is_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_keys(text)


def test_group_by_takes_places_and_settings() -> None:
    assert parse_keys(None) is None
    assert parse_keys("stack, precision") == ("stack", "precision")


@given(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True), st.permutations(range(9)))
def test_every_run_stands_in_one_row_whatever_the_keys_and_the_order(
    members: dict[str, tuple[Member, ...]], keys: list[str], order: list[int]
) -> None:
    runs = [members["environments"][place] for place in order]
    groups = group_runs(runs, tuple(keys))
    inside = [member.name for group in groups for member in group.members]
    assert sorted(inside) == sorted(member.name for member in runs)
    assert len({group.label for group in groups}) == len(groups)
