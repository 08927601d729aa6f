"""What `gangway.components.PROVIDER` offers: every component of the package, and none of them loaded before its use."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pulumi
import pytest

PROVIDERS = "aws", "azure", "gcp", "hosts", "openstack"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_component_is_left_out(provider: str) -> None:
    package = importlib.import_module(f"gangway.components.{provider}")
    found: set[type] = set()
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not info.name.endswith(("__main__", "stop_groups")):  # programs: a plugin, a Lambda function
            module = importlib.import_module(info.name)
            found |= {
                member
                for _, member in inspect.getmembers(module, inspect.isclass)
                if issubclass(member, pulumi.ComponentResource) and member.__module__ == module.__name__
            }
    assert found
    assert {getattr(package, name) for name in package.__all__} == found
    assert len(package.__all__) == len(found)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_package_loads_no_sdk_and_refuses_other_names(provider: str) -> None:
    program = (
        f"import sys, gangway.components.{provider} as package; "
        "print([name for name in sys.modules if name.startswith('pulumi')], hasattr(package, 'Nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
