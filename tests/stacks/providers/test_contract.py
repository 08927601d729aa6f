"""What every registered provider keeps, walked over the registry: a new one is judged from its first line on."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from gangway.components.core.capacity import CapacityBlock, FlexStart
from gangway.components.core.findings import InputError
from gangway.stacks.base.provider import Provider
from gangway.stacks.base.registry import PROVIDERS, all_providers, get_provider
from gangway.stacks.base.rule import kind
from gangway.stacks.config.sections import CommandConfig, JobConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file, stack_model
from gangway.stacks.loading.unsupported_settings import provider_mistakes
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.program import get_program

REPO = Path(__file__).resolve().parents[3]
SITES = {"openstack", "hosts"}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    return get_provider(request.param)


@pytest.fixture
def configs(provider: Provider) -> list[StackConfig]:
    """The shipped stacks of the provider."""
    shipped = [from_file(path) for path in sorted(REPO.glob("stacks/Pulumi.*.yaml"))]
    return [config for config in shipped if config.provider == provider.name]


def test_the_registry_has_the_packages_there_are() -> None:
    folders = {path.parent.name for path in (REPO / "stacks" / "providers").glob("*/provider.py")}
    assert set(PROVIDERS) == folders == {"aws", "gcp", "azure", "openstack", "hosts"}
    assert all(module == f"gangway.stacks.providers.{name}.provider" for name, module in PROVIDERS.items())


def test_it_is_called_as_it_is_registered(provider: Provider) -> None:
    assert PROVIDERS[provider.name] == f"gangway.stacks.providers.{provider.name}.provider"
    assert re.fullmatch(r"pulumi-[a-z-]+", provider.sdk)


def test_knowing_a_provider_loads_no_sdk() -> None:
    """Or a plan would wait for every cloud's."""
    sdks = [one.sdk_module for one in all_providers()]
    program = (
        "import sys; from gangway.stacks.base.registry import all_providers; all_providers(); "
        f"print([name for name in {sdks} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Of a field's type, which may be optional or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]


def test_its_settings_are_ones_that_a_stack_file_has(provider: Provider) -> None:
    settings, model = provider.settings, stack_model()
    for path in (*settings.examples, *settings.unsupported, *settings.lacking, settings.data_setting):
        section, _, name = path.partition(".")
        models = models_in(model.model_fields[section].annotation)
        assert not name or any(name in one.model_fields for one in models), path
    assert not set(settings.unsupported) & set(settings.lacking)
    assert settings.image is None or settings.image.pattern.fullmatch(settings.image.example)
    assert settings.store is None or settings.store.folder.startswith(f"{settings.store.scheme}://")
    assert settings.own is None or settings.own.name == provider.name


def test_machines_are_in_a_catalogue_or_in_the_stack_file(provider: Provider) -> None:
    assert provider.settings.reads_site == (provider.name in SITES) == (provider.catalog is None)
    if provider.catalog is not None:
        assert len(provider.catalog().machines) > 5
        assert {row.provider for row in provider.catalog().machines.values()} == {provider.name}
        assert provider.spot_taken is not None


def test_its_types_begin_with_its_package(provider: Provider) -> None:
    package = provider.tags.package
    types = {*provider.tags.inputs(), *provider.machine_types, *provider.budget_types, *provider.region_inputs}
    ours = {of_type for of_type in types if of_type.startswith("pulumi-python:")}
    assert all(of_type.startswith((f"{package}:", "pulumi:providers:")) for of_type in types - ours)
    assert set(provider.tags.other_inputs) | set(provider.tags.spelled) <= set(provider.tags.inputs())


@pytest.mark.slow
def test_its_shipped_stacks_are_planned_priced_and_found_fault_with(
    provider: Provider, configs: list[StackConfig]
) -> None:
    assert configs, "a provider ships a stack"
    program = get_program(provider.name)
    for config in configs:
        planned, made = program.plan(config), make_plan(config)
        assert made.energy.pue == planned.region.pue.value
        if config.job is not None:
            assert made.job["processes_per_node"] * config.cluster.nodes.max >= 1
        assert program.findings(config, planned, None), "there is always something to know"
        assert made.rungs[0].nodes_hourly is not None, "the nodes' lines are found by the pool's name"
        assert made.rungs[0].nodes_hourly > 0
        if provider.machine_types:
            declared = {kind(resource.type) for resource in made.resources}
            assert declared & provider.machine_types
            assert declared & provider.budget_types
            assert declared & set(provider.tags.inputs())


FILES = sorted((Path(__file__).resolve().parents[3] / "stacks").glob("Pulumi.*.yaml"))
STANDING = {config.stack: config for config in map(from_file, FILES) if config.engine.has_queue}
JOB_SETTING = re.compile(
    rf"gangway:job\b|\bjob\.({'|'.join({**JobConfig.model_fields, **CommandConfig.model_fields})})\b"
)
TOMORROW = datetime.now(UTC) + timedelta(days=1)
BLOCK = CapacityBlock(kind="capacity-block", id="cr-0123456789abcdef0", ends_at=TOMORROW, zone="us-east-2a")


def changed(config: StackConfig) -> Iterator[StackConfig]:
    """The stack, and copies with settings that are refused or warned of."""
    yield config
    yield config.model_copy(update={"engine": config.engine.model_copy(update={"keep_runs": False})})
    for rung in (BLOCK, FlexStart(kind="flex-start", max_hours=24)):
        yield config.model_copy(update={"cluster": config.cluster.model_copy(update={"capacity": (rung,)})})


def messages(config: StackConfig) -> Iterator[str]:
    yield from map(str, provider_mistakes(config, "stack"))
    program = get_program(config.provider)
    try:
        for one in program.findings(config, program.plan(config), None):
            yield f"{one.path}: {one.message}: {one.fix}"
    except InputError as refused:
        yield str(refused)


@pytest.mark.parametrize("stack", STANDING)
def test_no_message_names_a_job_setting(stack: str) -> None:
    said = [text for config in changed(STANDING[stack]) for text in messages(config)]
    assert said
    assert [text for text in said if JOB_SETTING.search(text)] == []


@pytest.mark.parametrize(
    "stack", [name for name in STANDING if not get_provider(STANDING[name].provider).settings.deletes_runs]
)
def test_records_that_always_stay_are_a_setting_of_the_engine(stack: str) -> None:
    _, config, *_ = changed(STANDING[stack])
    (mistake,) = provider_mistakes(config, stack)
    assert mistake.place == f"{stack}: gangway:engine.keep_runs"
    assert mistake.fix.startswith("leave keep_runs out")
