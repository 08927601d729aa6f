"""Names of metrics: each is known everywhere, and a wrong one is told with the nearest."""

import pytest
from pydantic_core import PydanticCustomError

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import METRICS, parse, parse_names
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.metrics.metric_registry import FEATURE_SPACES, METRICS_BY_NAME


def test_every_name_has_a_metric_and_every_metric_a_space() -> None:
    assert {METRICS_BY_NAME[name].space for name in METRICS} == set(FEATURE_SPACES)


def test_parsing() -> None:
    assert parse("none") == ()
    assert parse("fid, kid") == ("fid", "kid")
    with pytest.raises(PydanticCustomError, match=r"fid, fid-clean, is, .*, by commas; or none"):
        parse("fidd")


def test_what_is_no_inception_metric_never_borrows_its_name() -> None:
    assert "never an FID" in METRICS["fd-enl0"]
    assert "never an Inception Score" in METRICS["digits-classes"]
    assert "never the papers' score" in METRICS["fd-enl0-frames"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"metrics": "fdi"}, "metrics"), ({"metrics": "fid"}, "metrics_kimg"), ({"metrics_kimg": 2}, "metrics_kimg")],
)
def test_a_configuration_names_metrics_and_when(
    tiny_config: TrainConfig, changes: dict[str, object], field: str
) -> None:
    with pytest.raises(TrainerError) as caught:
        tiny_config.replace(changes)
    assert caught.value.place == f"TrainConfig.{field}"
    assert tiny_config.replace({"metrics": "fd-enl0", "metrics_kimg": 2}).metrics == "fd-enl0"


KNOWN = ("cat", "dog")


def test_names_are_taken_apart() -> None:
    assert parse_names("none", KNOWN) == ()
    assert parse_names("dog", KNOWN) == ("dog",)
    assert parse_names("dog, cat", KNOWN) == ("dog", "cat")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dog,cot", {"allowed": "cat, dog, by commas; or none", "value": "cot", "fix": "did you mean 'cat'?"}),
        ("xyz", {"allowed": "cat, dog, by commas; or none", "value": "xyz"}),
        ("", {"allowed": "cat, dog, by commas; or none"}),
        ("none, cat", {"allowed": "names, or none alone", "value": "none, cat", "fix": "leave none out"}),
        ("cat,dog,cat", {"allowed": "each name at most once", "fix": "leave the second cat out"}),
    ],
)
def test_what_is_no_such_list_is_refused(text: str, told: dict[str, str]) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        parse_names(text, KNOWN)
    assert caught.value.context == told
