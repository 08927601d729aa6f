"""The columns of FOCUS: what a reader of ours needs is among them, and what breaks the rules is told."""

from gangway.finops.bill import focus
from gangway.finops.bill.focus import ALLOWED, COLUMNS, MANDATORY, Version, get_columns, mandatory, problems


def test_the_dataset_has_the_specifications_columns() -> None:
    assert (len(MANDATORY), len(COLUMNS)) == (21, 65)
    assert {"ProviderName", "PublisherName"}.isdisjoint(COLUMNS), "taken out in 1.4"
    assert (len(mandatory(Version.V1_2)), len(get_columns(Version.V1_2))) == (21, 57)
    assert set(ALLOWED) <= COLUMNS
    assert all(set(names) & COLUMNS for names in focus.NEEDED)


def test_what_breaks_the_rules_is_told() -> None:
    row = dict.fromkeys(MANDATORY, "x") | {"ChargeCategory": "Usage", "ChargeClass": None}
    columns = [*MANDATORY, "x_run_id"]
    assert problems(columns, [row]) == []
    assert problems(columns[1:], [row]) == ["lacks BilledCost"]
    assert problems([*columns, "run_id"], [row]) == [
        "run_id is not a FOCUS column",
        "custom columns come before others",
    ]
    assert problems(columns, [{**row, "BilledCost": None}]) == ["row 1: BilledCost is null"]
    assert problems(columns, [row, {**row, "ChargeCategory": "Support"}]) == ["row 2: ChargeCategory is 'Support'"]
