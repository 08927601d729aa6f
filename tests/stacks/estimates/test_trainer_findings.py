"""A plan tells what the trainer would refuse on the nodes: each rule that it can know, with the value that mends it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import TypeAdapter

from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.stacks.base.shared import get_training
from gangway.stacks.config.job_settings import effective_config
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.throughput import get_train_config
from gangway.stacks.estimates.trainer_findings import memory_on, trainer_findings
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.providers.gcp.plan import plan as plan_gcp
from gangway.trainer.config.network_size import device_gib
from gangway.trainer.config.parts.rules import RULES
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.step_memory import estimate
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import as_keys

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
ONE_OF_EACH = ("aws-demo", "azure-nc-dev", "gcp-a3-spot", "gcp-v5e-pod", "hosts-lab", "openstack-gpu")
SETTINGS = {"batch_size": 4096, "precision": "bf16", "lr_g": 1e-5, "tf32": False}


def nodes_and_settings(num_nodes: int, **settings: Any) -> Callable[[dict[str, Any]], None]:
    """The demo's H100x8 on so many nodes, with a budget that is no matter."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:cluster"]["nodes"] = {"min": num_nodes, "max": num_nodes}
        values["gangway:job"]["settings"] = settings
        values["gangway:budget"]["monthly_usd"] = 10_000_000

    return edit


def of_the_batch(found: tuple[Finding, ...]) -> list[tuple[Severity, str, str, str]]:
    return [(f.severity, f.code, f.message, f.fix) for f in found if f.code.startswith("batch.")]


def test_a_batch_of_the_settings_that_is_too_small_for_the_nodes_is_an_error(edited: Edited) -> None:
    """The preset's 64 images would do for the 64 workers; the 32 that the stack file says would not."""
    plan = make_plan(edited(nodes_and_settings(8, batch_size=32)))
    assert plan.has_errors
    assert of_the_batch(plan.findings) == [
        (
            Severity.ERROR,
            "batch.too-small",
            "batch_size 32 of job.settings has less than one image for each of 64 workers",
            "set nodes: {min: 4, max: 4}, or gangway:job.settings.batch_size: 64",
        )
    ]


def test_a_batch_of_the_settings_that_is_large_enough_is_no_error(edited: Edited) -> None:
    """Nine nodes have 72 workers: too many for the preset's 64 images, and not for 512."""
    plan = make_plan(edited(nodes_and_settings(9, batch_size=512)))
    assert not plan.has_errors
    assert of_the_batch(plan.findings) == [
        (
            Severity.INFO,
            "batch.uneven",
            "batch_size 512 of job.settings does not divide evenly (idle is estimated): "
            "on 9 nodes 64 of 72 workers get one image fewer (11% idle)",
            "set nodes: {min: 8, max: 8} (also even: 1, 2, 4), or gangway:job.settings.batch_size: 576",
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("num_nodes", "batch_size"), [(8, 64), (9, 576)])
def test_the_corrected_batch_has_nothing_to_tell(edited: Edited, num_nodes: int, batch_size: int) -> None:
    config = edited(nodes_and_settings(num_nodes, batch_size=batch_size))
    assert of_the_batch(make_plan(config).findings) == []


@pytest.mark.slow
def test_a_batch_that_no_smaller_number_of_nodes_shares_is_mended_by_itself(edited: Edited) -> None:
    """Seven images and eight workers a node."""
    found = make_plan(edited(nodes_and_settings(1, batch_size=7))).findings
    assert of_the_batch(found) == [
        (
            Severity.ERROR,
            "batch.too-small",
            "batch_size 7 of job.settings has less than one image for each of 8 workers",
            "choose a smaller machine type, or gangway:job.settings.batch_size: 8",
        )
    ]


@pytest.mark.slow
def test_on_tpus_the_batch_of_the_settings_has_to_divide(gcp_edited: Callable[..., StackConfig]) -> None:
    config = gcp_edited("gcp-v5p-multislice")
    planned = plan_gcp(config)
    workers = config.cluster.nodes.max * planned.machine.num_accelerators.value
    job = {"settings": {"batch_size": workers + 1}}
    uneven = gcp_edited("gcp-v5p-multislice", job=job)
    (finding,) = [f for f in make_plan(uneven).findings if f.code.startswith("batch.")]
    assert (finding.severity, finding.code) == (Severity.ERROR, "batch.uneven")
    assert f"batch_size {workers + 1} of job.settings does not divide evenly" in finding.message
    assert finding.fix.endswith(f"or gangway:job.settings.batch_size: {2 * workers}")
    even = gcp_edited("gcp-v5p-multislice", job={"settings": {"batch_size": 2 * workers}})
    assert of_the_batch(make_plan(even).findings) == []


@pytest.mark.slow
def test_a_number_of_slices_is_advised_by_the_batch_of_the_settings(gcp_edited: Callable[..., StackConfig]) -> None:
    """A request has a fixed number of slices; the one advised shares the batch that is trained with."""
    planned = plan_gcp(gcp_edited("gcp-v5p-multislice"))
    chips = planned.machine.num_accelerators.value

    def advised(batch_size: int) -> str:
        changes = {"job": {"settings": {"batch_size": batch_size}}, "cluster": {"nodes": {"min": 1, "max": 3}}}
        config = gcp_edited("gcp-v5p-multislice", **changes)
        return next(f.fix for f in make_plan(config).findings if f.code == "tpu.fixed-number")

    assert advised(3 * chips) == "set nodes: {min: 3, max: 3}"
    assert advised(2 * chips) == "set nodes: {min: 2, max: 2}"


def found_on(config: StackConfig, machine_type: str) -> list[tuple[str, str, str]]:
    found = list(trainer_findings(config, load_provider("aws").machine(machine_type)))
    assert all((f.severity, f.path) == (Severity.ERROR, "gangway:job.settings") for f in found)
    return [(f.code, f.message, f.fix) for f in found]


@pytest.mark.parametrize(
    ("machine_type", "settings", "code", "message", "fix"),
    [
        (
            "p5.48xlarge",
            {"backend": "gloo", "cuda_graphs": True, "compile": "on"},
            "trainer.cuda-graphs",
            "the trainer refuses cuda_graphs true: a worker computes on a CPU, which has no CUDA graphs; "
            "allowed: false",
            "set gangway:job.settings.cuda_graphs: false",
        ),
        (
            "p5.48xlarge",
            {"backend": "xla"},
            "trainer.backend",
            "the trainer refuses backend xla: it needs torch_xla, which the environment for H100x8 does not have; "
            "allowed: auto, gloo or nccl",
            "set gangway:job.settings.backend: auto",
        ),
        (
            "p5.48xlarge",
            {"channels": 3},
            "trainer.channels",
            "the trainer refuses channels 3: digits has 1; allowed: 1",
            "set gangway:job.settings.channels: 1",
        ),
        (
            "p5.48xlarge",
            {"num_classes": 7},
            "trainer.num-classes",
            "the trainer refuses num_classes 7: digits has 10 classes; allowed: 0 or 10",
            "set gangway:job.settings.num_classes: 10",
        ),
        (
            "p5.48xlarge",
            {"dataset": "clips"},
            "trainer.frames",
            "the trainer refuses frames 1: clips is made of clips of several frames; allowed: 2 or more",
            "change frames",
        ),
        (
            "p5.48xlarge",
            {"dataset": "cifar10", "channels": 3, "resolution": 64},
            "trainer.resolution",
            "the trainer refuses resolution 64: cifar10 is 32x32; allowed: 32",
            "set gangway:job.settings.resolution: 32",
        ),
        (
            "p5.48xlarge",
            {"metrics": "video-is", "metrics_kimg": 10},
            "trainer.metrics",
            "the trainer refuses metrics video-is: it is for video, and the run's images have one frame; "
            "allowed: fd-enl0",
            "set gangway:job.settings.metrics: fd-enl0",
        ),
        (
            "p5.48xlarge",
            {"metrics": "is", "metrics_kimg": 10, "metrics_samples": 5},
            "trainer.metrics-samples",
            "the trainer refuses metrics_samples 5: fewer than is can be computed of; allowed: 10 or more",
            "set gangway:job.settings.metrics_samples: 10",
        ),
    ],
    ids=str,
)
def test_what_the_machine_or_the_data_cannot_do_is_an_error(
    edited: Edited, machine_type: str, settings: dict[str, Any], code: str, message: str, fix: str
) -> None:
    assert found_on(edited(nodes_and_settings(1, **settings)), machine_type) == [(code, message, fix)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "code", "fix"),
    [
        ({"backend": "nccl"}, "trainer.backend", "set gangway:job.settings.backend: xla"),
        ({"backend": "gloo"}, "trainer.backend", "set gangway:job.settings.backend: xla"),
        ({"precision": "fp16"}, "trainer.precision", "set gangway:job.settings.precision: bf16"),
        ({"shard": "fsdp2"}, "trainer.shard", "set gangway:job.settings.shard: ddp"),
        ({"cuda_graphs": True, "compile": "on"}, "trainer.cuda-graphs", "set gangway:job.settings.cuda_graphs: false"),
    ],
    ids=str,
)
def test_what_a_tpu_cannot_do_is_an_error_and_mended_by_the_fix(
    gcp_edited: Callable[..., StackConfig], settings: dict[str, Any], code: str, fix: str
) -> None:
    config = gcp_edited("gcp-v5e-pod", job={"settings": settings})
    (finding,) = [f for f in make_plan(config).findings if f.code.startswith("trainer.")]
    assert (finding.severity, finding.code, finding.fix) == (Severity.ERROR, code, fix)
    field, value = fix.removeprefix("set gangway:job.settings.").split(": ")
    mended = {**settings, field: value == "true" if value in ("true", "false") else value}
    machine = plan_gcp(config).machine
    assert list(trainer_findings(gcp_edited("gcp-v5e-pod", job={"settings": mended}), machine)) == []


def test_a_tpus_plan_goes_on_with_settings_that_its_backend_does_not_support(
    gcp_edited: Callable[..., StackConfig],
) -> None:
    """They are findings, so that the plan shows them beside everything else."""
    config = gcp_edited("gcp-v5e-pod", job={"settings": {"shard": "fsdp2"}})
    found = get_training(config, run_dir="/r", data_dir="", fabric_min_gbps=None, backend="xla")
    assert (found.config["shard"], found.config["backend"]) == ("fsdp2", "xla")
    codes = {
        each.code for each in trainer_findings(config, plan_gcp(config).machine) if each.severity is Severity.ERROR
    }
    assert codes == {"trainer.shard"}


def test_it_is_told_with_the_other_findings_that_all_providers_share(edited: Edited) -> None:
    found = common_findings(
        edited(nodes_and_settings(1, num_classes=7)), load_provider("aws").machine("p5.48xlarge"), None
    )
    assert "trainer.num-classes" in {f.code for f in found}


@pytest.mark.parametrize("machine_type", ["trn1.32xlarge", "dl1.24xlarge"])
def test_of_a_machine_that_nothing_trains_on_nothing_more_is_said(edited: Edited, machine_type: str) -> None:
    assert found_on(edited(nodes_and_settings(1, num_classes=7)), machine_type) == []


def _as_written(changes: Mapping[str, object]) -> dict[str, object]:
    """As a stack file has them: what is no plain value is JSON in a text."""
    plain = TypeAdapter(dict[str, object]).dump_python(dict(changes), mode="json", by_alias=True, exclude_none=True)
    return {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in plain.items()}


@pytest.mark.slow
def test_every_rule_of_the_trainer_is_told_of_the_stack_file(
    repo: Path, edited: Edited, load_module: Callable[[Path], ModuleType]
) -> None:
    """Values that do not go together, whatever the machine: the file is refused, with the trainer's own way out."""
    broken = load_module(repo / "tests" / "trainer" / "config" / "test_train_config_rules.py").BROKEN
    told = set()
    for base, given, field, fix in broken:
        changes = _as_written(given)
        with pytest.raises(ExceptionGroup) as group:
            edited(lambda values: values["gangway:job"].update(preset=base.preset, settings=changes))  # noqa: B023
        (mistake,) = group.value.exceptions
        assert isinstance(mistake, InputError)
        assert f"conflicts with the rest of preset {base.preset}" in mistake.problem
        assert f"gangway:job.settings.{field}" in mistake.place or mistake.problem.startswith(f"{field} conflicts")
        (rule,) = [r for r in RULES if r.field == field and as_keys(r.allowed) in mistake.allowed]
        # Of a file's keys, and not of a command line.
        assert as_keys(fix) in mistake.fix
        assert "--" not in str(mistake)
        told.add(rule)
    assert told == set(RULES)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"augment": "color"}, "color needs channels 3"),
        ({"augment": "colour"}, "color, translation, cutout"),
        ({"metrics": "fd-enl1", "metrics_kimg": 1}, "fd-enl0"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"resolution": 48}, "resolution"),
        ({"lr_g": 0}, "lr_g"),
        ({"beta1": 1}, "beta1"),
        ({"precision": "fp64"}, "precision"),
        ({"keep_checkpoints": 1}, "keep_checkpoints"),
        ({"dataset": "mnist"}, "dataset"),
    ],
    ids=str,
)
def test_every_kind_of_value_that_a_field_refuses_is_told_of_the_stack_file(
    edited: Edited, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExceptionGroup) as group:
        edited(lambda values: values["gangway:job"].update(settings=settings))
    (mistake,) = group.value.exceptions
    assert isinstance(mistake, InputError)
    assert mistake.place == "gangway:job.settings" or "gangway:job" in mistake.place
    assert words in str(mistake)


def test_data_of_the_settings_is_what_has_to_be_there(edited: Edited) -> None:
    """The preset's digits prepare themselves, faces do not: and the other way round."""
    machine = load_provider("aws").machine("p5.48xlarge")

    def about_data(preset: str, **settings: Any) -> list[tuple[str, str]]:
        def edit(values: dict[str, Any]) -> None:
            values["gangway:job"].update(preset=preset, settings=settings)
            values["gangway:storage"].pop("source", None)

        return [(f.code, f.message) for f in common_findings(edited(edit), machine, None) if f.code.startswith("data.")]

    ((code, message),) = about_data("dcgan-digits", dataset="celeba", channels=3)
    assert code == "data.missing"
    assert message.startswith("job.settings trains on celeba, which nodes cannot fetch by themselves")
    assert about_data("dcgan-celeba64", dataset="photos") == []


@pytest.mark.slow
@pytest.mark.parametrize("stack", ONE_OF_EACH)
def test_plan_launch_and_record_have_one_configuration(repo: Path, stack: str) -> None:
    """What findings read is what the trainer reads, and so what the record has."""
    shipped = from_file(repo / "stacks" / f"Pulumi.{stack}.yaml")
    job = shipped.training.model_copy(update={"settings": SETTINGS, "seed": 11, "checkpoint_kimg": 12.5})
    config = shipped.model_copy(update={"job": job})
    planned = make_plan(config)
    trained = TrainConfig.from_json(json.dumps(planned.job["training"]["config"]))
    backend = "xla" if planned.job["backend"] == "xla" else None
    assert trained == effective_config(job.preset, job.settings, job.overrides(backend))
    assert (trained.seed, trained.checkpoint_kimg, trained.kimg) == (11, 12.5, job.kimg)
    assert planned.pace.checkpoint_kimg == 12.5
    assert {name: getattr(trained, name) for name in SETTINGS} == SETTINGS
    assert config.training.effective_config() == trained.model_copy(update={"backend": "auto"})


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"resolution": 32, "channels": 1, "augment": "translation"}], ids=str)
def test_the_size_of_pictures_is_said_to_the_nodes_which_would_take_that_of_the_data(
    edited: Edited, settings: dict[str, Any]
) -> None:
    """The plan knows no pictures: what it has counted with is trained, or refused at the start."""
    config = edited(lambda values: values["gangway:job"].update(preset="few-images", settings=settings))
    trained = TrainConfig.from_json(json.dumps(make_plan(config).job["training"]["config"]))
    size = config.training.effective_config()
    assert (trained.resolution, trained.channels) == (size.resolution, size.channels)
    machine = load_provider("aws").machine("p5.48xlarge")
    (told,) = [found for found in common_findings(config, machine, None) if found.code == "data.prepared"]
    assert f"data prepare folder --source PATH_OR_URL --resolution {size.resolution}" in told.fix


def test_a_backend_of_the_settings_counts_more_than_the_machines(gcp_edited: Callable[..., StackConfig]) -> None:
    """As in the trainer, which takes the last of two flags."""
    config = gcp_edited("gcp-v5e-pod", job={"settings": {"backend": "gloo"}})
    machine = plan_gcp(config).machine
    assert get_train_config(config, machine).backend == "gloo"
    assert get_train_config(gcp_edited("gcp-v5e-pod"), machine).backend == "xla"
    assert (
        effective_config(config.training.preset, config.training.settings, config.training.overrides("xla")).backend
        == "gloo"
    )


def _found(edited: Edited, nodes: tuple[int, int], *segments: dict[str, Any]) -> list[tuple[Severity, str, str]]:
    """Of the demo's nodes, of 8 workers each."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:cluster"]["nodes"] = {"min": nodes[0], "max": nodes[1]}
        values["gangway:job"]["settings"] = {"segments": json.dumps(segments)}
        values["gangway:budget"]["monthly_usd"] = 10_000_000

    plan = make_plan(edited(edit))
    told = [(f.severity, f.message, f.fix) for f in plan.findings if f.code == "trainer.segments"]
    assert plan.has_errors == any(severity == Severity.ERROR for severity, _, _ in told)
    return told


@pytest.mark.slow
def test_planned_workers_that_the_stack_does_not_run_are_an_error(edited: Edited) -> None:
    told = _found(edited, (2, 2), {"from_image": 1000, "workers": 4}, {"from_image": 5000, "precision": "bf16"})
    assert told == [
        (
            Severity.ERROR,
            "the trainer refuses segments.0.workers 4: the stack's nodes run 16 workers, so the run would end at "
            "image 1,024; allowed: 16, or 0 for any number",
            '"workers": 16 or 0 in segments.0 of job.settings',
        )
    ], "told once, of the segment that says it"
    for workers in (16, 0):
        assert _found(edited, (2, 2), {"from_image": 1000, "workers": workers}) == []


@pytest.mark.slow
def test_planned_workers_are_compared_with_all_that_the_nodes_may_be(edited: Edited) -> None:
    ((severity, message, fix),) = _found(edited, (1, 3), {"from_image": 1000, "workers": 12})
    assert (severity, fix) == (Severity.ERROR, '"workers": 8 or 0 in segments.0 of job.settings')
    assert "run 8 to 24 workers" in message
    assert message.endswith("allowed: a multiple of 8 from 8 to 24, or 0 for any number")
    ((severity, message, fix),) = _found(edited, (1, 3), {"from_image": 1000, "workers": 16})
    assert severity == Severity.WARNING
    assert "may run 8 to 24 workers, but from image 1,024 on, the trainer refuses any other number" in message
    assert fix == 'set gangway:cluster.nodes: {min: 2, max: 2}, or "workers": 0 in segments.0 of job.settings'


@pytest.mark.slow
def test_a_segment_whose_batch_is_too_small_for_the_workers_is_an_error(edited: Edited) -> None:
    ((severity, message, fix),) = _found(edited, (1, 2), {"from_image": 1000, "batch_size": 8})
    assert severity == Severity.ERROR
    assert message.startswith("the trainer refuses segments.0, whose batch_size is 8: fewer images in a step than")
    assert message.endswith("allowed: at least 16 with 16 workers")
    assert fix.startswith('"batch_size": 16 in segments.0')
    assert _found(edited, (1, 2), {"from_image": 1000, "batch_size": 16}) == []


def test_a_segment_after_the_end_is_a_warning(edited: Edited) -> None:
    ((severity, message, fix),) = _found(edited, (1, 1), {"from_image": 100_000_000, "workers": 3})
    assert severity == Severity.WARNING
    assert message.startswith("segments.0 (from_image 100,000,000) has no step: the run ends after")
    assert "kimg" in fix


@pytest.mark.slow
@pytest.mark.parametrize("planned", [True, False])
def test_on_tpus_a_segments_batch_has_to_divide(gcp_edited: Callable[..., StackConfig], *, planned: bool) -> None:
    stack = gcp_edited("gcp-v5e-pod")
    workers = stack.cluster.nodes.max * plan_gcp(stack).machine.num_accelerators.value

    def told(batch_size: int) -> list[str]:
        segment = {"from_image": 1000, "batch_size": batch_size, **({"workers": workers} if planned else {})}
        found = make_plan(gcp_edited("gcp-v5e-pod", job={"settings": {"segments": json.dumps([segment])}})).findings
        return [each.fix for each in found if each.code == "trainer.segments"]

    (fix,) = told(workers + 1)
    assert f'"batch_size": {2 * workers} in segments.0' in fix
    assert told(2 * workers) == []


MACHINE = load_provider("aws").machine("p5.48xlarge")
IMAGENET = PRESETS["r3gan-imagenet64"]


def of_preset(preset: str, **settings: Any) -> Callable[[dict[str, Any]], None]:
    """The demo's two nodes of eight H100 with another job, and a budget that is no matter."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:job"] |= {"preset": preset, "settings": settings}
        values["gangway:storage"]["source"] = "s3://my-bucket/pictures"
        values["gangway:budget"]["monthly_usd"] = 10_000_000

    return edit


def of_memory(found: tuple[Finding, ...]) -> list[tuple[Severity, str]]:
    codes = ("memory.estimate", "trainer.batch-gpu", "trainer.ngf", "trainer.ndf")
    return [(each.severity, each.code) for each in found if each.code in codes]


@pytest.mark.slow
def test_what_fits_is_said_with_its_parts(edited: Edited) -> None:
    plan = make_plan(edited(of_preset("r3gan-imagenet64")))
    assert of_memory(plan.findings) == []
    memory = plan.to_json()["expected_run"]["memory"]
    assert memory["total"] == estimate(IMAGENET, 8, 2).total == sum(estimate(IMAGENET, 8, 2))
    assert (memory["has"], memory["images"], memory["provenance"]) == (80, 32, "estimated")
    assert memory["least"] == device_gib(IMAGENET, 32)


@pytest.mark.slow
def test_more_than_there_is_is_a_warning_with_the_numbers_and_a_micro_batch(edited: Edited) -> None:
    plan = make_plan(edited(of_preset("r3gan-imagenet64", batch_gpu=128)))
    assert of_memory(plan.findings) == [(Severity.WARNING, "memory.estimate")]
    (found,) = (each for each in plan.findings if each.code == "memory.estimate")
    assert "130 of 80 GiB" in found.message
    assert "at least " in found.message
    assert found.fix.startswith("set gangway:job.settings.batch_gpu: 64")
    assert of_memory(make_plan(edited(of_preset("r3gan-imagenet64", batch_gpu=64))).findings) == []


@pytest.mark.slow
def test_what_cannot_be_is_the_trainers_own_error_alone(edited: Edited) -> None:
    plan = make_plan(edited(of_preset("r3gan-imagenet64", batch_gpu=256)))
    assert of_memory(plan.findings) == [(Severity.ERROR, "trainer.batch-gpu")]


@pytest.mark.parametrize("backend", ["gloo", "xla"])
def test_where_no_gpu_computes_nothing_is_said(backend: str) -> None:
    assert memory_on(IMAGENET.replace({"backend": backend}), MACHINE) is None
    found = memory_on(IMAGENET, MACHINE)
    assert found is not None
    assert found.in_words() == "35 of 80 GiB (3.5 weights, gradients and moments, 31 activations)"


def test_split_networks_leave_more_room() -> None:
    whole, split = (memory_on(IMAGENET.replace({"shard": shard}), MACHINE, 8) for shard in ("ddp", "fsdp2"))
    assert whole is not None
    assert split is not None
    assert split.moments == pytest.approx(whole.moments / 64)
    assert split.total < whole.total
