"""mypy reads the SDK services that this project uses; a service that it skips would be typed as Any without a word."""

import ast
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
_BY_RULE = {rule["follow_imports"]: rule["module"] for rule in _CONFIG["overrides"] if "follow_imports" in rule}
_SDKS = frozenset(pattern.removesuffix(".*") for pattern in _BY_RULE["skip"])


def imported_services(source: str) -> Iterator[str]:
    """Modules one level below an SDK that the source imports, or reaches as an attribute of the imported SDK."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _SDKS:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in _SDKS:
            yield ".".join(node.module.split(".")[:2])
        elif isinstance(node, ast.Import):
            for name in node.names:
                sdk, _, below = name.name.partition(".")
                if sdk in _SDKS and below:
                    yield f"{sdk}.{below.partition('.')[0]}"
                if sdk in _SDKS:
                    aliases[name.asname or sdk] = sdk
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield f"{aliases[node.value.id]}.{node.attr}"


def _is_folder(module: str) -> bool:
    """Whether it is a service: a package of its own, and no class or function of the SDK's."""
    sdk, _, service = module.partition(".")
    spec = find_spec(sdk)
    assert spec is not None, f"{sdk} is not installed"
    assert spec.origin is not None, f"{sdk} is no package"
    return (Path(spec.origin).parent / service).is_dir()


def test_mypy_reads_every_service_in_use_and_no_other() -> None:
    packages = ("components", "gangway", "images", "stacks", "trainer", "tests", "examples")
    texts = (file.read_text("utf-8") for package in packages for file in (ROOT / package).rglob("*.py"))
    found = {module for text in texts if any(sdk in text for sdk in _SDKS) for module in imported_services(text)}
    listed = {pattern.removesuffix(".*") for pattern in _BY_RULE["normal"] if pattern.endswith(".*")}
    assert {module for module in found if _is_folder(module)} == listed
