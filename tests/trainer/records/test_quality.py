"""What the diary tells of quality: the newest value of each, and the cost of those computed while training."""

from typing import Any

import pytest

from gangway.trainer.config.values.metric_names import DIGIT_CLASSES, DIGITS_RECOGNISED
from gangway.trainer.metrics.metric_registry import METRICS_BY_NAME, Counts
from gangway.trainer.records.quality import (
    QualityProtocol,
    QualityRecord,
    latest_judgements,
    quality_in_training,
    sentence,
    value_text,
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
    assert [(record.name, record.trained.value) for _, record in latest_judgements(lines)] == [("A", 7), ("B", 3)]
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


ABSENT = Quantity.absent("", "not computed while training")


def _record(name: str, trained: float, metric_name: str, compared: tuple[float, float] | None = None) -> QualityRecord:
    texts = {"extractor": "x", "weights_sha256": "", "resizer": "", "split": ""}
    counts = {"dim": 1, "num_reals": 2, "num_fakes": 2, "num_real_halves": 1, "seed": 0, "kimg": 20}
    protocol = QualityProtocol.model_validate(
        {**texts, **counts, "parameters": METRICS_BY_NAME[metric_name].parameters(Counts(2, 2))}
    )
    untrained, halves = (Quantity.measured(value, "", name) for value in compared) if compared else (ABSENT, ABSENT)
    return QualityRecord(
        name=name,
        untrained=untrained,
        trained=Quantity.measured(trained, "", name, note="2 fakes"),
        real_vs_real=halves,
        protocol=protocol,
        better="higher" if compared else "lower",
    )


def test_a_collapsed_generator_is_seen() -> None:
    assert sentence(_record(DIGITS_RECOGNISED, 1.0, "digits-classes", (0.0, 0.994))) == (
        "digits recognised  untrained 0 %  trained 100 % (80 % wanted)  real vs real 99.4 %  "
        "(of the images: those that the classifier is more than 90 % sure of; higher is better; 2 fakes)"
    )
    assert sentence(_record(DIGIT_CLASSES, 1, "digits-classes", (0, 10))) == (
        "digit classes  untrained 0 of 10  trained 1 of 10 (too few, 9 of 10 wanted)  real vs real 10 of 10  "
        "(digits that make up 1 % or more of the recognised images; higher is better; 2 fakes)"
    )


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (DIGITS_RECOGNISED, 0.8, "80 % (80 % wanted)"),
        (DIGITS_RECOGNISED, 0.799, "79.9 % (too few, 80 % wanted)"),
        (DIGIT_CLASSES, 9, "9 of 10 (9 of 10 wanted)"),
        (DIGIT_CLASSES, 8, "8 of 10 (too few, 9 of 10 wanted)"),
    ],
)
def test_what_is_wanted_stands_beside_the_value(name: str, value: float, told: str) -> None:
    assert f"  trained {told}  (" in sentence(_record(name, value, "digits-classes"))


def test_a_score_is_a_plain_number_and_says_of_which_state_it_is() -> None:
    record = _record("FD-ENL0", 12.345678, "fd-enl0")
    assert sentence(record) == "FD-ENL0  trained 12.35  (lower is better; 2 fakes)"
    assert sentence(record, "after 10 kimg") == "FD-ENL0  trained 12.35  (after 10 kimg; lower is better; 2 fakes)"


def test_a_record_without_the_gate_is_told_without_it() -> None:
    assert (
        sentence(_record(DIGIT_CLASSES, 9, "fd-enl0")) == "digit classes  trained 9 of 10  (lower is better; 2 fakes)"
    )


def test_values_alone_have_their_unit_too() -> None:
    told = {name: value_text(name, 1) for name in (DIGITS_RECOGNISED, DIGIT_CLASSES, "IS")}
    assert told == {DIGITS_RECOGNISED: "100 %", DIGIT_CLASSES: "1 of 10", "IS": "1"}


def test_a_record_of_another_protocol_is_told_without_what_it_does_not_say() -> None:
    record = _record(DIGITS_RECOGNISED, 0.9, "fd-enl0")
    assert sentence(record) == "digits recognised  trained 90 %  (lower is better; 2 fakes)"
