"""The drawings of several runs at 400 pixels: no letter below 10, none cut off or on another."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.report.comparison.groups import Member, Source
from gangway.report.comparison.tables import get_report
from gangway.report.comparison.write import ComparisonReport

LONG = "a-stack-with-a-name-as-people-give-them-in-large-houses"


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("name", ["arms", "environments"])
def test_drawings_of_several_runs(name: str, members: dict[str, tuple[Member, ...]], tmp_path: Path) -> None:
    made = ComparisonReport(get_report(Source(members[name], ()), None))
    assert made.write_page(tmp_path).is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
def test_drawings_of_many_rows_with_long_names(member_of: Callable[..., Member], tmp_path: Path) -> None:
    runs = [
        member_of(f"{LONG}-{place}", stack=f"{LONG}-{place}", stops=place % 3, usd=place + 1.0) for place in range(9)
    ]
    made = ComparisonReport(get_report(Source(tuple(runs), ()), None))
    assert made.write_page(tmp_path).is_file()
