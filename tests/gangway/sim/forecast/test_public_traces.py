r"""Back-tests on public traces: the table of docs/forecast.md is what was measured, and is measured again where the
traces are.

The traces are not in this repository: all but Philly's (CC-BY-4.0) state no licence. They are files of public ones:

    ger_ci.csv, gb_ci.csv, fr_ci.csv  dos-group/lets-wait-awhile 5e0d1553, data/: 2020, from ENTSO-E; `sed` below.
        Germany's ends at its first gap (19 December), Great Britain's where its step changes (30 October)
    p3dn.24xlarge.json and others     LucianaMarques/amazon-spot-dataset 176c6015, data/dados-30-maio-2021/: March to
        May 2021, unchanged
    us-west-2c_v100_1.json, us-east-1f_v100_1.json  skypilot-org/spot-traces 221da1ab,
        availability/1-node/aws-02-15-2023/: 45 days, unchanged
    philly.csv                        pkusys/ElasticFlow 04a0109a, pollux/pollux_simulator/traces/: a copy of
        msr-fiddle/philly-traces, September to December 2017, without waits: a job counts from its submission; unchanged
    openb_pod_list.csv                alibaba/clusterdata 7a6c496e,
        cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv: pods after second 9,500,000; there are few before it

    $ for zone in ger:35133 gb:15169 fr:20000; do head -n ${zone#*:} lets-wait-awhile/data/${zone%:*}_ci.csv |
    >   sed '1s/.*/time,g_per_kwh/; s/ \(..:..:..\),/T\1Z,/' > traces/${zone%:*}_ci.csv; done
    $ awk -F, 'NR == 1 || $9 > 9500000' openb_pod_list_default.csv > traces/openb_pod_list.csv
    $ GANGWAY_TRACES=traces pytest tests/gangway/sim/forecast/test_public_traces.py -m slow

The slow test recomputes every row from the folder GANGWAY_TRACES; with GANGWAY_UPDATE_GOLDEN it writes them.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gangway.components.estimate.statistics import FEWEST_PAIRS, Comparison, correct
from gangway.sim.forecast.accuracy import Judged, Skill, skill
from gangway.sim.forecast.forecaster import Forecast, Setting, backtest, choose_setting
from gangway.sim.forecast.public_formats import read_history
from gangway.sim.forecast.series import Series

ROWS = Path(__file__).parent / "public_traces.json"
DOCS = Path(__file__).parents[4] / "docs/forecast.md"
TRACES = os.environ.get("GANGWAY_TRACES")
DAY_SEC, LEVEL = 86_400, 0.9
COLUMNS = ("skill", "skill_against_last_value")
ENTRIES: list[dict[str, Any]] = json.loads(ROWS.read_text("utf-8"))


def percent(value: float) -> str:
    return f"{100 * value:.0f}"


def claimed() -> set[tuple[str, str]]:
    """Names and columns of what holds by Holm's test over the whole table."""
    family = {
        (entry["name"], column): Comparison(
            -found["value"], None, None, 0, 0, found["p_value"], found["blocks"], found["blocks"], 0, False
        )
        for entry in ENTRIES
        for column in COLUMNS
        if (found := entry["figures"][column]) is not None
    }
    return {key for key, one in correct(family).items() if one is not None and one.direction}


def gained(entry: dict[str, Any], column: str) -> str:
    found = entry["figures"][column]
    if found is None:
        return "the baseline never errs"
    low, high = found["low"], found["high"]
    too_few = f"too few blocks: {found['blocks']} of {FEWEST_PAIRS}"
    interval = too_few if low is None or high is None else f"{percent(low)} to {percent(high)}"
    return f"{percent(found['value'])} % ({interval}){' *' if (entry['name'], column) in claimed() else ''}"


def get_row(entry: dict[str, Any]) -> str:
    """The line of the table in the docs."""
    found = entry["figures"]
    cells = [
        entry["name"],
        f"{found['values']:,}",
        f"{found['baseline_mae']:.3g}",
        f"{found['model_mae']:.3g}",
        *(gained(entry, column) for column in COLUMNS),
        f"{100 * found['baseline_coverage']:.1f} %",
        f"{100 * found['model_coverage']:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


def told(found: Skill | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    compared = found.compared
    figures = {"value": found.value, "low": found.low, "high": found.high}
    return {**figures, "p_value": compared.p_value, "blocks": compared.pairs}


def judged(series: Series, setting: Setting, forecasts: tuple[Forecast, ...]) -> list[Judged]:
    last = len(series.values) - setting.horizon
    return [
        each.beside(series.values[each.origin : each.origin + setting.horizon])
        for each in forecasts
        if each.origin <= last
    ]


def measured(folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    path = folder / entry["file"]
    series = read_history(path, entry.get("column"))
    setting = choose_setting(series, round(DAY_SEC / series.step.total_seconds()), None, LEVEL)
    found = backtest(series, setting)
    of_model = judged(series, setting, found.forecasts)
    stays = tuple(
        Forecast(each.origin, *((series.values[each.origin - 1],) * setting.horizon,) * 3) for each in found.forecasts
    )
    return {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "values": len(series.values),
        "forecasts": found.model.forecasts,
        "baseline_mae": found.naive.mae,
        "model_mae": found.model.mae,
        "skill": told(found.gain),
        "skill_against_last_value": told(skill(of_model, judged(series, setting, stays), setting.overlapping)),
        "baseline_coverage": found.naive.coverage,
        "model_coverage": found.model.coverage,
        "drift": found.drift.alarm is not None,
    }


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_the_docs_have_what_was_measured(entry: dict[str, Any]) -> None:
    assert get_row(entry) in DOCS.read_text("utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.skipif(TRACES is None, reason="needs the traces: GANGWAY_TRACES names their folder")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_the_traces_still_give_it(entry: dict[str, Any]) -> None:
    """To a twentieth, since a tree may split otherwise on another processor."""
    found = measured(Path(str(TRACES)), entry)
    if os.environ.get("GANGWAY_UPDATE_GOLDEN"):
        kept = json.loads(ROWS.read_text("utf-8"))
        kept[[one["name"] for one in kept].index(entry["name"])] = {**entry, "figures": found}
        ROWS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        return
    before = entry["figures"]
    exact = ("sha256", "values", "forecasts", "drift")
    assert {name: found[name] for name in exact} == {name: before[name] for name in exact}
    for name in ("baseline_mae", "model_mae", "baseline_coverage", "model_coverage"):
        assert found[name] == pytest.approx(before[name], rel=0.05), name
