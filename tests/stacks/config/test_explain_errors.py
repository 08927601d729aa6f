"""The translation of pydantic's findings, on a model made for it."""

from copy import deepcopy
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from gangway.components.core.findings import InputError
from gangway.stacks.config.explain_errors import explain
from gangway.stacks.loading.loader import from_file


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Cat(_Strict):
    """One branch of a union."""

    kind: Literal["cat"]
    lives: int = Field(default=9, le=9)


class Dog(_Strict):
    """The other branch."""

    kind: Literal["dog"]
    tricks: tuple[str, ...] = ()


class Colour(StrEnum):
    """Words to choose from."""

    RED = "red"
    GREEN = "green"


class Zoo(_Strict):
    """The root."""

    animals: tuple[Annotated[Cat | Dog, Field(discriminator="kind")], ...] = Field(default=(), min_length=1)
    boss: Cat | None = None
    gate: Colour = Colour.RED
    name: str = "zoo"

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 3:
            raise ValueError("at most three letters; cut it")
        return name


def explained(values: dict[str, Any]) -> list[InputError]:
    with pytest.raises(ValidationError) as caught:
        Zoo.model_validate(values)
    return explain(caught.value, Zoo, "zoo.yaml")


def test_the_unions_tag_is_not_part_of_the_path() -> None:
    (error,) = explained({"animals": [{"kind": "cat", "lives": 10}]})
    assert error.place == "zoo.yaml: gangway:animals[0].lives"
    assert (error.value, error.allowed) == (10, "a whole number, at most 9")


def test_a_user_key_that_is_spelled_like_a_tag_stays_in_the_path() -> None:
    (error,) = explained({"boss": {"kind": "cat", "cat": 1}})
    assert error.place == "zoo.yaml: gangway:boss.cat"
    assert error.allowed == "kind, lives"


def test_an_unknown_key_lists_those_of_its_model() -> None:
    (error,) = explained({"animls": []})
    assert (error.problem, error.value) == ("unknown key", "animls")
    assert error.allowed == "animals, boss, gate, name"
    assert error.fix == "did you mean 'animals'?"


def test_an_unknown_key_in_a_branch_lists_that_branchs_keys() -> None:
    (error,) = explained({"animals": [{"kind": "dog", "trick": ["sit"]}]})
    assert error.place == "zoo.yaml: gangway:animals[0].trick"
    assert error.allowed == "kind, tricks"
    assert error.fix == "did you mean 'tricks'?"
    # Another kind's key is no key of this one.
    (error,) = explained({"animals": [{"kind": "dog", "lives": 9}]})
    assert (error.problem, error.allowed) == ("unknown key", "kind, tricks")


def test_words_come_with_the_nearest_one() -> None:
    (error,) = explained({"gate": "gren"})
    assert (error.problem, error.value) == ("not an accepted value", "gren")
    assert (error.allowed, error.fix) == ("red or green", "did you mean 'green'?")
    (error,) = explained({"animals": [{"kind": "dogg"}]})
    assert (error.value, error.fix) == ("dogg", "did you mean 'dog'?")


def test_our_own_rules_bring_their_fix() -> None:
    (error,) = explained({"name": "serengeti"})
    assert (error.allowed, error.fix, error.value) == ("at most three letters", "cut it", "serengeti")


def test_a_missing_tag_is_told_as_a_missing_key() -> None:
    (error,) = explained({"animals": [{"lives": 9}]})
    assert error.place == "zoo.yaml: gangway:animals[0].kind"
    assert (error.problem, error.allowed, error.fix) == ("missing", "one of cat, dog", "add kind: cat"), (
        "lives are a cat's"
    )


def test_a_list_of_bad_items_is_not_also_too_short() -> None:
    (error,) = explained({"animals": [{"kind": "cat", "lives": 10}]})
    assert error.place.endswith("lives")
    (error,) = explained({"animals": []})
    assert error.place == "zoo.yaml: gangway:animals"
    assert error.allowed == "a list of at least 1 entry"
    assert error.fix == "write a list of at least 1 entry"


def mistakes(repo: Path, tmp_path: Path, stack: str, setting: str, value: object) -> list[InputError]:
    """What is wrong with a shipped stack in which one setting is another."""
    values: dict[str, Any] = deepcopy(yaml.safe_load((repo / f"stacks/Pulumi.{stack}.yaml").read_text())["config"])
    section, _, key = setting.partition(".")
    holder = values.setdefault(f"gangway:{section}", {}) if key else values
    holder[key or f"gangway:{section}"] = value
    path = tmp_path / f"Pulumi.{stack}.yaml"
    path.write_text(yaml.safe_dump({"config": values}))
    try:
        from_file(path)
    except InputError as mistake:
        return [mistake]
    except ExceptionGroup as group:
        return [mistake for mistake in group.exceptions if isinstance(mistake, InputError)]
    return []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "setting", "value", "fix"),
    [
        ("hosts-lab", "site.accelerator", "L40S", "add the number per machine, such as accelerator: L40Sx1"),
        ("hosts-lab", "hosts.shared_dir", "nfs/gangway", "write shared_dir: /nfs/gangway"),
        ("aws-demo", "budget.monthly_usd", "€90,000", "convert €90,000 to US dollars"),
        ("aws-demo", "budget.monthly_usd", "90,000 EUR", "convert 90,000 EUR to US dollars"),
        ("azure-ndv5-spot", "azure.subscription_id", "my-sub", "write the output of `az account show --query id"),
        ("gcp-a3-spot", "gcp.billing_account", "mine", "write the output of `gcloud billing accounts list`"),
        ("aws-p5-spot", "storage.source", "https://acme-gan/celeba", "write source: s3://acme-gan/celeba"),
        (
            "aws-p5-spot",
            "storage.source",
            "https://acme-gan.s3.us-east-2.amazonaws.com/celeba/",
            "write source: s3://acme-gan/celeba",
        ),
        (
            "gcp-a3-spot",
            "storage.source",
            "https://storage.googleapis.com/acme-gan/celeba",
            "write source: gs://acme-gan/celeba",
        ),
        ("aws-demo", "job.kimg", "25k", "write kimg: 25  # thousands of images; if you meant 25k kimg: 25000"),
        ("aws-demo", "job.kimg", 5e9, "write a usual length: StyleGAN2 trains for 25,000 kimg"),
    ],
)
def test_a_fix_is_made_of_the_value(
    stack: str, setting: str, value: object, fix: str, repo: Path, tmp_path: Path
) -> None:
    (mistake,) = mistakes(repo, tmp_path, stack, setting, value)
    assert mistake.fix.startswith(fix), mistake
    assert "50000" not in mistake.fix


def test_another_currency_is_proposed_with_words_only(repo: Path, tmp_path: Path) -> None:
    (mistake,) = mistakes(repo, tmp_path, "aws-demo", "budget.monthly_usd", "€90,000")
    assert mistake.fix.endswith("if you meant dollars, write monthly_usd: 90000")


@pytest.mark.parametrize(
    ("stack", "storage", "nearest"),
    [
        ("aws-demo", {"capacity_gib": "9.6TiB"}, 9600),
        ("aws-demo", {"capacity_gib": "10TB"}, 9600),
        ("aws-demo", {"capacity_gib": "5k"}, 4800),
        ("aws-demo", {"capacity_gib": "1k"}, 1200),
        ("aws-demo", {"capacity_gib": "10TB", "efa": True}, 9600),
        ("azure-ndv5-spot", {"capacity_gib": "9.6TiB"}, 8192),
        ("gcp-a3-spot", {"capacity_gib": "10TB"}, 18000),
    ],
)
def test_a_size_comes_out_as_the_provider_has_it(
    stack: str, storage: dict[str, Any], nearest: int, repo: Path, tmp_path: Path
) -> None:
    whole = {"kind": "lustre", "throughput_mbps_per_tib": 500, **storage}
    (mistake,) = mistakes(repo, tmp_path, stack, "storage", whole)
    assert mistake.fix == f"write capacity_gib: {nearest}"
    left = mistakes(repo, tmp_path, stack, "storage", {**whole, "capacity_gib": nearest})
    assert [one for one in left if "storage.capacity" in one.place] == []


def test_where_the_tier_is_wrong_too_the_size_is_only_converted(repo: Path, tmp_path: Path) -> None:
    whole = {"kind": "lustre", "throughput_mbps_per_tib": 7, "capacity_gib": "9.6TiB"}
    assert mistakes(repo, tmp_path, "aws-demo", "storage", whole)[0].fix == "write capacity_gib: 9830"


@pytest.mark.parametrize("tier", [{}, [], {"a": [1]}])
@pytest.mark.parametrize("stack", ["gcp-a3-spot", "azure-ndv5-spot", "aws-p5-spot"])
def test_a_tier_that_is_no_word_is_told_and_no_size_is_looked_up_by_it(
    stack: str, tier: object, repo: Path, tmp_path: Path
) -> None:
    """A fuzzer's find."""
    storage = {"kind": "lustre", "capacity_gib": -1, "throughput_mbps_per_tib": tier}
    found = mistakes(repo, tmp_path, stack, "storage", storage)
    assert {mistake.place.rpartition(".")[2] for mistake in found} == {"capacity_gib", "throughput_mbps_per_tib"}
