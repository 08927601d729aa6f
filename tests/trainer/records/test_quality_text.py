"""Values on a terminal: with a unit, and with what is wanted, so that a collapsed generator is seen at a glance."""

import pytest

from gangway.trainer.config.values.metric_names import DIGIT_CLASSES, DIGITS_RECOGNISED
from gangway.trainer.metrics.metric_registry import Counts, metric
from gangway.trainer.records.quality import QualityProtocol, QualityRecord, sentence, value_text
from gangway.trainer.records.quantity import Quantity

ABSENT = Quantity.absent("", "not computed while training")


def _record(name: str, trained: float, metric_name: str, compared: tuple[float, float] | None = None) -> QualityRecord:
    texts = {"extractor": "x", "weights_sha256": "", "resizer": "", "split": ""}
    counts = {"dim": 1, "num_reals": 2, "num_fakes": 2, "num_real_halves": 1, "seed": 0, "kimg": 20}
    protocol = QualityProtocol.model_validate(
        {**texts, **counts, "parameters": metric(metric_name).parameters(Counts(2, 2))}
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
