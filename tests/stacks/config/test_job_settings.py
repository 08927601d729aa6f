"""What a job may change of its preset: checked with the stack file, and handed to the trainer as a document."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from gangway.components.core.findings import InputError
from gangway.stacks.config.job_settings import check_settings, effective_config
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.trainer.config.editor_schema import settings_schema
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.run_record import RunContext

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def get_document(config: StackConfig) -> dict[str, Any]:
    return dict(make_plan(config).job["training"]["config"])


def test_seed_settings_and_id_reach_the_trainer(edited: Edited) -> None:
    job = {"seed": 7, "settings": {"batch_size": 256, "tf32": False}, "run_id": "mine-s7"}
    plan = make_plan(edited(lambda values: values["gangway:job"].update(job)))
    document = plan.job["training"]["config"]
    assert (document["seed"], document["batch_size"], document["tf32"]) == (7, 256, False)
    assert RunContext.model_validate_json(plan.job["env"]["GANGWAY_CONTEXT"]).run_id == "mine-s7"


def test_nothing_is_said_where_nothing_is_asked(demo_config: StackConfig) -> None:
    job = demo_config.training
    assert job.checkpoint_kimg is None
    assert get_document(demo_config) == PRESETS[job.preset].replace({"kimg": job.kimg}).document()


@given(preset=st.sampled_from(sorted(PRESETS)), seed=st.integers(0, 2**63 - 1), kimg=st.floats(0.001, 1e6))
def test_the_trainer_reads_the_document_as_it_was_meant(preset: str, seed: int, kimg: float) -> None:
    trained = effective_config(preset, {"seed": seed}, {"kimg": kimg, "seed": 1})
    assert (trained.seed, trained.kimg) == (seed, kimg)
    assert TrainConfig.from_json(json.dumps(trained.document())) == trained


def test_settings_that_the_machines_backend_does_not_support_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        effective_config("r3gan-cifar10", {"activation_checkpointing": True}, {"backend": "xla"})
    assert caught.value.place == "settings"
    assert "activation_checkpointing" in caught.value.fix


# what stands in the section, then what is said
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"settings": {"batch_sise": 1}}, ["gangway:job.settings.batch_sise: not a field", "did you mean 'batch_size'?"]),
    ({"settings": {"kimg": 1}}, ["gangway:job.settings.kimg", "settings without kimg", "write kimg next to settings"]),
    (
        {"settings": {"precision": "fp64"}},
        ["gangway:job.settings.precision: not an accepted value", "bf16", "did you mean 'fp16'?"],
    ),
    ({"settings": {"cuda_graphs": True}}, ["dcgan-digits", "cuda_graphs"]),
    ({"seed": -1}, ["gangway:job.seed", "from 0"]),
    ({"run_id": "../x"}, ["gangway:job.run_id"]),
]


@pytest.mark.parametrize(("job", "said"), WRONG)
def test_a_mistake_is_told(edited: Edited, job: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ExceptionGroup) as group:
        edited(lambda values: values["gangway:job"].update(job))
    (told,) = group.value.exceptions
    assert isinstance(told, InputError)
    for words in said:
        assert words in str(told)
    assert told.fix


def test_every_field_of_the_trainer_can_be_said_once() -> None:
    own = {"preset", "kimg", "checkpoint_kimg", "seed"}
    config = PRESETS["dcgan-digits"]
    check_settings(
        "dcgan-digits", {name: getattr(config, name) for name in TrainConfig.model_fields if name not in own}
    )


def get_bucket(config: StackConfig, type_token: str) -> dict[str, Any]:
    (bucket,) = [r for r in make_plan(config).resources if r.type == type_token and r.name.endswith("-runs")]
    return dict(bucket.inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "type_token"), [("aws-g5-dev", "aws:s3/bucket:Bucket"), ("gcp-a3-spot", "gcp:storage/bucket:Bucket")]
)
def test_a_bucket_goes_with_its_records_where_that_is_said(repo: Any, stack: str, type_token: str) -> None:
    config = from_file(repo / "stacks" / f"Pulumi.{stack}.yaml")
    assert "forceDestroy" not in get_bucket(config, type_token)
    job = config.training.model_copy(update={"keep_runs": False})
    assert get_bucket(config.model_copy(update={"job": job}), type_token)["forceDestroy"] is True


def test_elsewhere_the_runs_stay_anyway(repo: Any, tmp_path: Any) -> None:
    source = (repo / "stacks/Pulumi.azure-nc-dev.yaml").read_text("utf-8")
    path = tmp_path / "Pulumi.mine.yaml"
    path.write_text(source.replace("max_hours: 2,", "max_hours: 2, keep_runs: false,"), "utf-8")
    with pytest.raises(ExceptionGroup) as group:
        from_file(path)
    assert "gangway:job.keep_runs: `destroy`" in str(group.value.exceptions[0])


SCHEMA = json.loads(settings_schema())
REPO = Path(__file__).resolve().parents[3]


def _findings(schema: Any, written: Any) -> list[str]:
    known = Registry[Any]().with_resource("settings.schema.json", Resource.from_contents(SCHEMA))
    return [error.message for error in Draft202012Validator(schema, registry=known).iter_errors(written)]


def test_the_keys_that_settings_take_are_offered() -> None:
    with pytest.raises(InputError) as caught:
        check_settings("dcgan-digits", {"batch_sise": 1})
    assert sorted(SCHEMA["$defs"]["settings"]["properties"]) == str(caught.value.allowed).split(", ")


@pytest.mark.parametrize("path", sorted((REPO / "gangway" / "suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_suites_pass(path: Path) -> None:
    suite = yaml.safe_load(path.read_text("utf-8"))
    assert _findings(SCHEMA, suite) == []
    assert _findings(SCHEMA, {**suite, "settings": {"batch_sise": 1}})


def _of_a_stack(load_module: Callable[[Path], ModuleType]) -> Any:
    """As the page has it."""
    pages = load_module(REPO / "tests" / "docs" / "test_commands.py")
    blocks = pages.get_blocks((REPO / "docs" / "own-images.md").read_text("utf-8"))
    (schema,) = [block.text for block in blocks if block.marks.get("file") == "stack.schema.json"]
    return json.loads(schema)


@pytest.mark.parametrize("path", sorted((REPO / "stacks").glob("Pulumi.*.yaml")), ids=lambda path: path.stem)
def test_shipped_stack_files_pass_and_a_setting_of_another_family_does_not(
    path: Path, load_module: Callable[[Path], ModuleType]
) -> None:
    schema, stack = _of_a_stack(load_module), yaml.safe_load(path.read_text("utf-8"))
    assert _findings(schema, stack) == []
    # Of a cluster with a queue there is none.
    job = stack["config"].setdefault("gangway:job", {"preset": "dcgan-digits"})
    job["settings"] = {"architecture": "dcgan", "stable_kimg": 1}
    assert "0 was expected" in _findings(schema, stack)


def test_a_controller_is_offered_and_a_wrong_bound_marked(load_module: Callable[[Path], ModuleType]) -> None:
    schema = _of_a_stack(load_module)

    def marked(controller: dict[str, Any]) -> list[str]:
        return _findings(schema, {"config": {"gangway:job": {"preset": "dcgan-digits", "controller": controller}}})

    assert marked({"policy": "model", "bounds": {"batch_size": [64, 512], "precision": ["bf16"]}}) == []
    assert marked({"policy": "modl"})
    assert marked({"bounds": {"batch_size": [64]}})
    assert marked({"bounds": {"batchsize": [64, 512]}})
