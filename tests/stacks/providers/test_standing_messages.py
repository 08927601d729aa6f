"""Messages to a stack with a queue name no setting of `gangway:job`, a section that its file does not have."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangway.components.core.capacity import CapacityBlock, FlexStart
from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.sections import CommandConfig, JobConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.loading.unsupported_settings import provider_mistakes
from gangway.stacks.program import get_program

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
