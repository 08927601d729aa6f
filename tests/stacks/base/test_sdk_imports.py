"""Pulumi's SDKs loaded by the name: the same classes as of the whole packages, and few of them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[3]
# Of each SDK a service whose types refer to each other, to enumerations and to another module.
SERVICES = (
    "pulumi_aws.ec2",
    "pulumi_aws.s3",
    "pulumi_gcp.storage",
    "pulumi_azure_native.network",
    "pulumi_openstack.compute",
)
# Run once with the finder and once without; says of each type what Pulumi reads of it.
DESCRIBE = """
import inspect, json, sys
from importlib import import_module
if sys.argv[1] == "by name":
    from gangway.stacks.base.sdk_imports import import_by_name
    import_by_name()
from pulumi import _types

def described(kind):
    if not hasattr(kind, "_pulumi_input_type") and not hasattr(kind, "_pulumi_output_type"):
        return [sorted(getattr(kind, "__annotations__", ())), [base.__name__ for base in kind.__mro__]]
    hints = _types._types_from_py_properties(kind)
    return [{name: repr(hint) for name, hint in hints.items()}, [base.__name__ for base in kind.__mro__], kind.__doc__]

service = import_module(sys.argv[2])
found = {}
for part, names in json.loads(sys.argv[3]).items():
    module = import_module(f"{sys.argv[2]}.{part}")
    for name in names:
        kind = getattr(module, name)
        assert part == "outputs" or getattr(service, name) is kind
        found[f"{part}.{name}"] = described(kind)
print(json.dumps(found, sort_keys=True))
"""
# What a plan has loaded of its SDK, and whether a name made a service load whole.
COUNT = """
import sys
from pathlib import Path
from types import ModuleType
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.base.sdk_imports import packages
from gangway.stacks.loading.loader import from_file
make_plan(from_file(Path(sys.argv[1])))
services = {name: module for name, module in sys.modules.items()
            if name.partition(".")[0] in packages() and name.count(".") == 1 and type(module) is ModuleType}
print([name for name, module in services.items()
       if type(module.__loader__).__name__ == "_Service" and "__getattr__" not in vars(module)], end=" ")
print(sum(name.rpartition(".")[0] in services for name in sys.modules))
"""


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _types(service: str) -> dict[str, list[str]]:
    """The names of a service's types, every twelfth: the source is the only list that loads none of them."""
    package, _, name = service.partition(".")
    (found,) = [Path(entry) / package / name for entry in sys.path if (Path(entry) / package / name).is_dir()]
    names = {}
    for part in ("_inputs", "outputs"):
        lines = (found / f"{part}.py").read_text("utf-8").splitlines()
        names[part] = [line.split()[1].split("(")[0].rstrip(":") for line in lines if line.startswith("class ")][::12]
    return names


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
def test_a_type_is_the_same_as_in_the_whole_package(service: str) -> None:
    names = json.dumps(_types(service))
    by_name: dict[str, Any] = json.loads(_python(DESCRIBE, "by name", service, names))
    whole: dict[str, Any] = json.loads(_python(DESCRIBE, "whole", service, names))
    assert by_name, "types were compared"
    assert by_name == whole


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["aws-p5-spot", "gcp-a3-spot", "gcp-v5e-pod", "azure-ndv5-spot", "azure-nc-dev"])
def test_a_plan_loads_no_service_whole(stack: str) -> None:
    whole, _, number = _python(COUNT, f"stacks/Pulumi.{stack}.yaml").rpartition(" ")
    assert whole == "[]"
    assert 0 < int(number) < 120, "modules of the services: pulumi_aws.ec2 alone has 250"


@pytest.mark.slow
def test_a_name_that_is_nowhere_loads_the_service_whole_and_is_missing() -> None:
    code = """
import sys
from gangway.stacks.base.sdk_imports import import_by_name
import_by_name()
from pulumi_aws import sns
try:
    sns.NotThere
except AttributeError as error:
    print(error)
print(sns.Topic.__name__, sns.TopicSubscriptionArgs.__name__, "pulumi_aws.sns.sms_preferences" in sys.modules)
"""
    assert _python(code) == "module 'pulumi_aws.sns' has no attribute 'NotThere'\nTopic TopicSubscriptionArgs True\n"


@pytest.mark.slow
def test_a_resource_has_the_types_of_its_unions() -> None:
    code = """
from gangway.stacks.base.sdk_imports import import_by_name
import_by_name()
from pulumi import _types
from pulumi_azure_native import virtualmachineimages
print("distribute" in _types.input_type_types(virtualmachineimages.VirtualMachineImageTemplateArgs))
"""
    assert _python(code).strip() == "True"


def test_a_service_that_was_found_before_is_loaded_whole() -> None:
    """Whoever imports a component first, and plans a stack after it, has both kinds in one process."""
    code = """
import sys
from pulumi_aws import s3, sns
from gangway.stacks.base.sdk_imports import import_by_name
import_by_name()
import pulumi_aws.kms
print(s3.BucketCorsConfigurationCorsRuleArgs.__name__, s3.Bucket.__name__, len(s3._inputs.__all__) > 100)
print(pulumi_aws.kms.Key.__name__, "pulumi_aws.kms.grant" in sys.modules)
"""
    assert _python(code) == "BucketCorsConfigurationCorsRuleArgs Bucket True\nKey True\n"
