"""Which of Azure's containers may go with what is in them."""

import pytest

from gangway.components.azure.retention import IMPORT_LOG, RETENTION

URN = "urn:pulumi:dev::gangway::gangway:azure:{}$azure-native:storage:BlobContainer::x"


@pytest.mark.parametrize("key", ["containerName", "name"])  # an input, and an output
def test_the_import_log_is_disposable_and_run_records_are_not(key: str) -> None:
    runs = URN.format("RunBucket")
    assert RETENTION.is_disposable(runs, {key: f"demo{IMPORT_LOG}"})
    assert not RETENTION.is_disposable(runs, {key: "demo-runs"})
    assert RETENTION.is_disposable(URN.format("FlowLogStore"), {key: "demo-runs"})
