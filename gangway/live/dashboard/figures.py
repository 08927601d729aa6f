"""Figures and charts of runs for their page and for comparisons, each figure with its source."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from gangway.components.core.findings import InputError
from gangway.live.dashboard.charts import Chart, Series, line_chart
from gangway.live.dashboard.files import clip
from gangway.live.dashboard.index import RunRow, parse_number
from gangway.live.dashboard.series import LineCache, RunLines, series
from gangway.render.rendering import number
from gangway.runs.run_folders import Run, read_run
from gangway.trainer.records.quantity import Provenance, Quantity
from gangway.trainer.records.run_record import RunRecord

_MOST_RECORDS, _MOST_DEVICES, _COMPARED_POINTS, _MOST_QUALITY_POINTS = 64, 32, 150, 400
_LOG = "stats.jsonl"
Figures = Mapping[str, Quantity]


class RunView(NamedTuple):
    """A run with its log and record. `problem`: why one of them cannot be read."""

    row: RunRow
    lines: RunLines
    run: Run | None
    problem: str

    @property
    def is_live(self) -> bool:
        """Whether its log is newer than its record."""
        return self.run is None or (self.row.status == "running" and bool(self.lines.last))


class RunReader:
    """Reads what a run's page needs: at most its record, its log's new lines and its pictures' names."""

    def __init__(self) -> None:
        self._lines = LineCache()
        self._records: OrderedDict[str, tuple[tuple[int, ...], Run | None, str]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, row: RunRow) -> RunView:
        """The run as of now; its record again only if the index has seen a change."""
        run, problem = self._record(row)
        try:
            lines = self._lines.look(row)
        except OSError as error:
            lines, problem = RunLines(), problem or f"{_LOG}: {error.strerror or error}"
        return RunView(row, lines, run, clip(problem, 400))

    def _record(self, row: RunRow) -> tuple[Run | None, str]:
        with self._lock:
            known = self._records.get(row.key)
            if known is None or known[0] != row.stamp:
                known = row.stamp, *_read_record(row)
                self._records[row.key] = known
                while len(self._records) > _MOST_RECORDS:
                    self._records.popitem(last=False)
            return known[1], known[2]


def _read_record(row: RunRow) -> tuple[Run | None, str]:
    if row.problem:
        return None, row.problem
    if row.path.resolve() != row.path:
        return None, "a link, which is not followed"
    if not (row.path / "run.json").exists():
        return None, ""
    try:
        return read_run(row.path), ""
    except InputError as error:
        return None, f"{error.problem}{f' ({error.value})' if error.value else ''}"


def get_figures(view: RunView) -> Figures:
    """By label, in the order of the page; unknown ones with the reason."""
    record = None if view.run is None else view.run.record
    found = _recorded(record) if record is not None else {}
    if view.is_live:
        found = {**found, **_live(view.lines)}
    return {clip(label, 40): _short(figure) for label, figure in found.items()}


def _recorded(record: RunRecord) -> dict[str, Quantity]:
    use = record.utilisation
    absent = Quantity.absent("1", "not recorded by that version")
    return {
        "Throughput": record.images_per_sec,
        "Training time": record.wall_sec,
        "Cost": record.cost.total_usd,
        "Energy": record.energy.it_joules,
        "Power": _mean_watts(record),
        "Emissions": record.carbon.gco2e,
        **{f"Loss {name[-1].upper()}": each.last for name, each in record.summaries.items() if name[:5] == "loss_"},
        **{f"Quality: {one.name}": one.trained for one in record.quality[:6]},
        "Model FLOPs utilisation": use.mfu if use else absent,
        "GPU utilisation": use.gpu_utilisation if use else absent,
        "CPU utilisation": use.cpu_utilisation if use else absent,
        "Peak memory of workers": record.peak_memory_gib,
    }


def _mean_watts(record: RunRecord) -> Quantity:
    joules, sec = record.energy.it_joules, record.wall_sec.value
    if joules.value is None or not sec:
        return joules.model_copy(update={"value": None, "unit": "W", "provenance": "absent"})
    source = f"mean: energy / training time; energy: {joules.source}"
    return joules.model_copy(update={"value": joules.value / sec, "unit": "W", "source": source})


def _live(lines: RunLines) -> dict[str, Quantity]:
    """Of the newest line; without lines there is only the reason."""
    last = lines.last
    at = parse_number(last.get("time"))
    when = f", line of {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" if at is not None else ""

    def measured(key: str, unit: str) -> Quantity:
        value = parse_number(last.get(key))
        why = "no line of statistics yet" if not last else f"{_LOG} has no {key}"
        return Quantity.absent(unit, why) if value is None else Quantity.measured(value, unit, f"{_LOG}{when}")

    is_metered = all(each.provenance == "measured" for each in get_devices(lines))

    def metered(key: str, unit: str) -> Quantity:
        found = measured(key, unit)
        if found.value is None or is_metered:
            return found
        return found.model_copy(update={"provenance": "estimated", "note": "some devices have no meter"})

    def of_session(figure: Quantity) -> Quantity:
        return figure.model_copy(update={"note": f"this session only{'; ' * bool(figure.note)}{figure.note}"})

    return {
        "Throughput": measured("images_per_sec", "images/s"),
        "Training time": of_session(measured("wall_sec", "s")),
        **_dollars(lines, measured("usd_per_hour", "USD/h")),
        "Power": metered("watts", "W"),
        "Energy": of_session(metered("energy_joules", "J")),
        "Loss G": measured("loss_g", ""),
        "Loss D": measured("loss_d", ""),
        **{
            f"Quality: {name}": Quantity.measured(points[-1][1], "", f"{_LOG}, at {number(points[-1][0])} kimg")
            for name, points in lines.quality.items()
        },
        "Workers": measured("world_size", ""),
        "Model FLOPs utilisation": measured("mfu", "1"),
        "GPU utilisation": measured("gpu_utilisation", "1"),
        "CPU utilisation": measured("cpu_utilisation", "1"),
        "GPU memory": measured("gpu_gib", "GiB"),
        "Host memory in use": measured("host_memory_gib", "GiB"),
    }


def _dollars(lines: RunLines, rate: Quantity) -> dict[str, Quantity]:
    if rate.value is None:
        return {"Cost": Quantity.absent("USD", "the launcher gave no price")}
    price = lines.price_source or "the launcher's price of all nodes"
    rate = rate.model_copy(update={"provenance": "list-price", "source": price})
    spent = sum(lines.spent_usd.values())
    source = f"training time of each session x price of all nodes: {price}"
    return {
        "Cost": Quantity(value=spent, unit="USD", provenance="estimated", source=source),
        "Cost per hour": rate,
    }


class Device(NamedTuple):
    """Energy of a device in this session."""

    name: str
    joules: float | None
    provenance: str
    source: str


def get_devices(lines: RunLines) -> list[Device]:
    """Of the newest line, at most 32."""
    energy = lines.last.get("energy")
    found = list[Device]()
    for name, reading in list(energy.items())[:_MOST_DEVICES] if isinstance(energy, dict) else ():
        if isinstance(reading, list) and len(reading) == 3:
            joules, provenance, source = reading
            found.append(Device(clip(name, 40), parse_number(joules), clip(provenance, 20), clip(source, 160)))
    return found


def _short(figure: Quantity) -> Quantity:
    """Texts of a record are its writer's, and may be long."""
    provenance: Provenance = figure.provenance
    update = {"unit": clip(figure.unit, 20), "source": clip(figure.source, 250), "note": clip(figure.note, 150)}
    return figure.model_copy(update={**update, "provenance": provenance})


def _quality_points(view: RunView) -> dict[str, list[tuple[float, float]]]:
    """By metric, from the log, or from the record where the log has none."""
    if view.lines.quality or view.run is None or view.run.record.quality_in_training is None:
        return view.lines.quality
    found = dict[str, list[tuple[float, float]]]()
    for point in view.run.record.quality_in_training.points[-_MOST_QUALITY_POINTS:]:
        found.setdefault(clip(point.name, 20), []).append((point.kimg, point.value))
    return found


def run_charts(view: RunView) -> list[Chart]:
    """Rate, losses, quality and power of one run."""
    lines = view.lines

    def drawn(title: str, unit: str, names: Mapping[str, str], *, from_zero: bool = False) -> Chart:
        every = [Series(label, series(lines, name)) for name, label in names.items()]
        return line_chart(title, unit, every, _LOG, from_zero=from_zero)

    quality = [Series(name, points) for name, points in _quality_points(view).items()]
    return [
        drawn("Images per second", "", {"images_per_sec": "images/s"}, from_zero=True),
        drawn("Losses", "", {"loss_g": "G", "loss_d": "D"}),
        line_chart("Quality", "", quality, "metrics computed while training"),
        drawn("Power", "W", {"watts": "watts"}, from_zero=True),
    ]


def compared_charts(views: Sequence[RunView]) -> list[Chart]:
    """The same of several runs, each on one axis, in the order of the runs."""
    names = {"images_per_sec": "Images per second", "loss_g": "Loss G", "loss_d": "Loss D", "watts": "Power, W"}
    charts = [
        line_chart(title, "", [Series(view.row.id, thin(series(view.lines, name))) for view in views], _LOG)
        for name, title in names.items()
    ]
    quality = [_quality_points(view) for view in views]
    for name in list(dict.fromkeys(name for metrics in quality for name in metrics))[:2]:
        points = [
            Series(view.row.id, thin(metrics.get(name, []))) for view, metrics in zip(views, quality, strict=True)
        ]
        charts.append(line_chart(f"Quality: {name}", "", points, "computed while training"))
    return charts


def thin(points: Sequence[tuple[float, float | None]]) -> Sequence[tuple[float, float | None]]:
    """At most 150 points, the last among them."""
    step = -(-len(points) // _COMPARED_POINTS) or 1
    return [*reversed(points[::-1][::step])]


def compared_figures(views: Sequence[RunView]) -> list[tuple[str, list[Quantity]]]:
    """A row for each figure that a run has, with a value or a reason per run."""
    every = [get_figures(view) for view in views]
    labels = dict.fromkeys(label for figures in every for label in figures)
    none = Quantity.absent("", "this run has no such figure")
    return [(label, [figures.get(label, none) for figures in every]) for label in labels]
