"""What the diary tells of quality: the newest value of each, and the cost of those computed while training."""

from typing import Any

import pytest

from gangway.trainer.records.quality import (
    QualityProtocol,
    QualityRecord,
    latest_judgements,
    latest_quality,
    quality_in_training,
)
from gangway.trainer.records.quantity import Quantity


def _line(name: str, value: float, images: int, cost_sec: float | None = None) -> dict[str, Any]:
    texts = {"extractor": "x", "weights_sha256": "", "resizer": "", "split": ""}
    counts = {"dim": 1, "num_reals": 2, "num_fakes": 2, "num_real_halves": 1, "seed": 0}
    protocol = QualityProtocol.model_validate({**texts, **counts, "kimg": images / 1000})
    absent = Quantity.absent("", "not computed while training")
    record = QualityRecord(
        name=name, untrained=absent, trained=Quantity.measured(value, "", name), real_vs_real=absent, protocol=protocol
    )
    line = {
        "event": "quality",
        "images": images,
        "time": 1e9 + images,
        "session": 0,
        "quality": record.model_dump(mode="json"),
    }
    return line if cost_sec is None else {**line, "in_training": {"cost_sec": cost_sec, "share_of_wall": 0.1}}


def test_the_newest_value_of_each_counts() -> None:
    lines = [
        _line("A", 9, 1000, 2.0),
        _line("B", 3, 1000, 2.0),
        _line("A", 8, 2000, 3.0),
        {"images": 2000},
        _line("A", 7, 2000),
    ]
    assert [(record.name, record.trained.value) for record in latest_quality(lines)] == [("A", 7), ("B", 3)]
    assert [(told.time, told.quality.name) for told in latest_judgements(lines)] == [
        (1e9 + 2000, "A"),
        (1e9 + 1000, "B"),
    ]


def test_a_moments_cost_counts_once_for_all_its_values() -> None:
    lines = [_line("A", 9, 1000, 2.0), _line("B", 3, 1000, 2.0), _line("A", 8, 2000, 3.0), _line("A", 7, 2000)]
    told = quality_in_training(lines, wall_sec=50.0)
    assert told is not None
    assert [(point.name, point.kimg, point.value) for point in told.points] == [("A", 1, 9), ("B", 1, 3), ("A", 2, 8)]
    assert told.cost_sec.value == pytest.approx(5)
    assert told.share_of_wall.value == pytest.approx(0.1)
    untold = quality_in_training(lines, wall_sec=0.0)
    assert untold is not None
    assert untold.share_of_wall.provenance == "absent"


def test_without_metrics_there_is_nothing_to_tell() -> None:
    assert quality_in_training([_line("A", 7, 2000)], wall_sec=50.0) is None
