"""The page about Prometheus metrics."""

from gangway.sim.forecast import gauges as forecast
from gangway.trainer.telemetry import prometheus as trainer
from tools.reference.markdown import code, page, section, table, text

_ABOUT = """
Every Prometheus gauge that Gangway exports. A missing figure has no sample.
"""
_TRAINER = """
Served by `python -m gangway.trainer train --metrics-port N` on rank 0, over all workers, from the latest line of
`stats.jsonl`.
"""
_FORECAST = """
Written by `gangway forecast --gauges FILE` for a textfile collector: see [forecast.md](../forecast.md).
"""


def metrics() -> str:
    """docs/reference/metrics.md."""
    gauges = [(code(trainer.PREFIX + gauge.name), code(key), text(gauge.help)) for key, gauge in trainer.GAUGES.items()]
    phases = trainer.PHASE_GAUGE
    gauges.append((code(f"{trainer.PREFIX}{phases.name}{{phase}}"), code("phase_sec"), text(phases.help)))
    forecasts = [
        (code(forecast.PREFIX + name), _labels(*forecast.LABELS.get(name, ())), text(what))
        for name, what in forecast.GAUGES.items()
    ]
    return page(
        "Metrics",
        _ABOUT,
        section("Training", _TRAINER, table(("gauge", "key in stats.jsonl", "what it is"), gauges)),
        section("Forecasts", _FORECAST, table(("gauge", "labels", "what it is"), forecasts)),
    )


def _labels(*further: str) -> str:
    return ", ".join(map(code, ("series", "of", *further)))
