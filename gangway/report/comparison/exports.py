"""Run records for other programs: FOCUS as CSV or Parquet, a CSV of figures, JSON."""

import csv
import importlib
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from gangway.finops.bill.focus import NUMBERS, TIMES, Version, exported_columns
from gangway.finops.bill.reader import pyarrow_missing
from gangway.report.comparison.groups import Member, workers
from gangway.report.comparison.ledgers import as_columns
from gangway.report.comparison.ledgers import as_json as ledger_json
from gangway.report.comparison.measures import JOULES_PER_KWH, MEASURES, num_gpus
from gangway.sim.forecast.ledger import Standing
from gangway.trainer.records.decisions import CONTROLLER, Fate
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

_BEGIN_FORMULA = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With full-width forms, which some programs treat alike."""
_MEASURES = ("s_per_epoch", "loss_g", "loss_d", "gpu_percent", "cpu_percent", "memory_gib", "mfu_percent")


def focus_csv(rows: Sequence[Mapping[str, Any]], version: Version = Version.V1_4) -> str:
    """FOCUS rows as CSV; null is an empty field."""
    return _csv(exported_columns(version), rows)


def focus_parquet(rows: Sequence[Mapping[str, Any]], path: Path, version: Version = Version.V1_4) -> bytes:
    """FOCUS rows as Parquet. `rows`: by column; `path`: for the message. InputError: pyarrow is not installed."""
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise pyarrow_missing(path) from None
    kinds = {**dict.fromkeys(NUMBERS, arrow.float64()), **dict.fromkeys(TIMES, arrow.timestamp("ms", tz="UTC"))}
    schema = arrow.schema([(column, kinds.get(column, arrow.string())) for column in exported_columns(version)])
    timed = [{**row, **{column: datetime.fromisoformat(row[column]) for column in TIMES}} for row in rows]
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(timed, schema=schema), buffer)
    return buffer.getvalue()


def report_json(
    records: Sequence[RunRecord],
    table: Mapping[str, Any] | None,
    no_table: str,
    signatures: Mapping[str, Mapping[str, str | None]],
    forecasts: Sequence[Standing] = (),
) -> str:
    """Records and their table as JSON. `table`: None if they do not fit one, for the reason `no_table`."""
    data = {
        "table": table,
        "no_table": no_table,
        "signatures": signatures,
        "forecasts": [ledger_json(series) for series in forecasts],
        "runs": [record.model_dump(mode="json") for record in records],
    }
    return json.dumps(data, indent=2) + "\n"


def figures_csv(members: Sequence[Member], forecasts: Sequence[Standing] = ()) -> str:
    """One line per run with figures and provenance; unknown ones are empty. Lines repeat the ledgers' figures."""
    rows = [{**_line(member), **as_columns(forecasts)} for member in members]
    return _csv(tuple(rows[0]), rows)


def _line(member: Member) -> dict[str, Any]:
    record = member.record
    measured = {key: (MEASURES[key].of(member), 1.0) for key in _MEASURES}
    figures = {
        "wall_sec": (record.wall_sec, 1.0),
        "images_per_sec": (record.images_per_sec, 1.0),
        "usd": (record.cost.total_usd, 1.0),
        "it_kwh": (record.energy.it_joules, 1 / JOULES_PER_KWH),
        "facility_kwh": (record.energy.facility_joules, 1 / JOULES_PER_KWH),
        "gco2e": (record.carbon.gco2e, 1.0),
        "embodied_gco2e": (record.carbon.embodied_gco2e, 1.0),
        "sci_g_per_kimg": (record.carbon.sci_g_per_kimg, 1.0),
        "peak_memory_gib": (record.peak_memory_gib, 1.0),
        **measured,
        **{f"{metric.name}_trained": (metric.trained, 1.0) for metric in record.quality},
    }
    return {
        "run_id": record.id,
        "suite": member.suite,
        "arm": member.arm,
        "stack": member.stack if member.suite else record.stack,
        "provider": record.provider,
        "region": record.region,
        "machine_type": record.machine_type,
        "capacity": " ".join(record.capacity),
        "preset": record.config.preset,
        "seed": record.seed,
        "workers": workers(member),
        "gpus": num_gpus(member),
        "status": record.status,
        "start": record.sessions[0].start,
        "end": record.sessions[-1].end,
        "sessions": len(record.sessions),
        "interruptions": len(record.interruptions),
        "images": record.images,
        **{key: text for name, (figure, scale) in figures.items() for key, text in _cells(name, figure, scale)},
        **_controller(record),
    }


def _controller(record: RunRecord) -> dict[str, Any]:
    if not record.has_controller:
        return {}
    fates = Counter(one.fate for one in record.decisions)
    return {
        CONTROLLER: record.choices.get(CONTROLLER, ""),
        **{f"decisions_{fate}": fates[fate] for fate in get_args(Fate)},
        "decisions": "\n".join(f"{one.at} {one.images} images: {one.sentence}" for one in record.decisions),
    }


def _cells(name: str, figure: Quantity, scale: float) -> tuple[tuple[str, Any], tuple[str, str]]:
    value = None if figure.value is None else figure.value * scale
    return (name, value), (f"{name}_provenance", figure.provenance)


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    # Runs may use different metrics: missing ones stay empty.
    extra = [column for row in rows for column in row if column not in columns]
    writer = csv.DictWriter(text, [*columns, *dict.fromkeys(extra)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: _as_text(value) for column, value in row.items()} for row in rows)
    return text.getvalue()


def _as_text(value: Any) -> Any:
    """Quote what a spreadsheet reads as a formula (OWASP, "CSV Injection"), and unify line breaks. Numbers stay."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_BEGIN_FORMULA) else text
