"""Tables for spreadsheets: text that a spreadsheet would compute is text, and figures stay figures."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.report.comparison.exports import focus_csv

COLUMN = "ChargeDescription"


def read_back(value: object) -> str:
    (row,) = csv.DictReader(io.StringIO(focus_csv([{COLUMN: value}])))
    return row[COLUMN]


@pytest.mark.attack("who writes a record", "formulas in a table for a spreadsheet")
@pytest.mark.parametrize("formula", ["=1+1", "+1", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1"])
def test_a_formula_is_text(formula: str) -> None:
    assert read_back(formula) == f"'{formula}"


@pytest.mark.parametrize(("value", "written"), [(-1.5, "-1.5"), (-2, "-2"), (None, ""), ("a=b", "a=b"), ("", "")])
def test_other_values_stay_as_they_are(value: object, written: str) -> None:
    assert read_back(value) == written


@pytest.mark.attack("who writes a record", "formulas in a table for a spreadsheet")
@given(st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_any_text_comes_back_and_is_no_formula(text: str) -> None:
    back = read_back(text)
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert back in (plain, f"'{plain}")
    assert not back.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
