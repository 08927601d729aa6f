"""The walk of a value sees real calls: it begins at the stack file's model and ends at the trainer's configuration."""

import pytest

from tools.value_walk import VALUES, follow, lines


@pytest.mark.parametrize("setting", [setting for setting in VALUES if setting.startswith("job.")])
def test_a_walk_goes_from_the_stack_file_to_the_trainer(setting: str) -> None:
    walk = follow(setting)
    files = list(walk.handled)
    on_the_way = ["stacks/config/job_settings.py", "trainer/config/train_config.py"]
    assert [path for path in files if path in on_the_way] == on_the_way
    assert next(lines(setting, walk)) == f"{setting}: {len(files)} files"


def test_an_accelerator_becomes_a_machine_in_the_catalogue() -> None:
    walk = follow("cluster.accelerator")
    assert "Catalog.machine_for" in walk.handled["components/catalog/loader.py"]
    assert not any(path.startswith("components/aws/") for path in walk.handled)  # a tag's value is not counted
