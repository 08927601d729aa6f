"""Dynamic providers stay where they are: the state of every stack names their modules and classes, which are pickled by
reference, and a stack whose provider cannot be imported can neither be changed nor destroyed.
"""

import ast
from pathlib import Path


def test_no_dynamic_provider_has_moved(repo: Path) -> None:
    found = {
        f"{path.relative_to(repo / 'components').as_posix()}:{node.name}"
        for path in (repo / "components").rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "ResourceProvider" for base in node.bases)
    }
    assert found == {
        "aws/kept_images.py:KeptImagesProvider",
        "aws/last_export.py:LastExportProvider",
        "core/settling.py:SettlingProvider",
        "gcp/machine_image.py:BuiltImageProvider",
        "gcp/tpu/queued_tpu.py:ActiveTpuProvider",
        "gcp/tpu/queued_tpu.py:QueuedTpuProvider",
    }
