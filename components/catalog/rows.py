"""From a YAML file of the catalogue to rows whose every value names its source.

A file has `sources` (title, url, as_of, confidence) and tables. A row names one source for all its values; a value
from elsewhere is written `{value: ..., source: ...}`. A value left out is one nobody knows. Not a validator: the models
of `components.catalog.schema`, `gcp_schema` and `azure_schema` are.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from components.catalog.azure_schema import InfinibandFabric
from components.catalog.gcp_schema import GpuDirectFabric, RoceFabric
from components.catalog.schema import EfaFabric, Fact

__all__ = ["FABRIC_FIELDS", "Source", "by_model", "read_file", "with_facts"]

Source = dict[str, Any]
FABRICS: Mapping[str, type[BaseModel]] = {
    "efa": EfaFabric,
    "gpudirect": GpuDirectFabric,
    "roce": RoceFabric,
    "infiniband": InfinibandFabric,
}
FABRIC_FIELDS = ("fabric", "gpu_fabric", "infiniband")


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Source]]:
    """The tables of one file, and its sources in the shape of a fact that lacks only its value."""
    tables: dict[str, Any] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    sources = tables.pop("sources")
    return tables, {
        name: {"source": about["title"], **{key: about[key] for key in ("url", "as_of", "confidence") if key in about}}
        for name, about in sources.items()
    }


def with_facts(model: type[BaseModel], row: Mapping[str, Any], sources: Mapping[str, Source]) -> dict[str, Any]:
    """`row` in the shape of `model`: each value that `model` wants as a fact gets its own source, else the row's."""
    facts = _fact_fields(model)
    shaped = {key: value for key, value in row.items() if key != "source" and key not in facts}
    for name in facts:
        value = row.get(name)
        own = value if isinstance(value, Mapping) and "source" in value else {"value": value, "source": row["source"]}
        shaped[name] = {"value": own["value"], **sources[own["source"]]}
    for name in FABRIC_FIELDS:
        if shaped.get(name) is not None:
            shaped[name] = with_facts(FABRICS[shaped[name]["kind"]], shaped[name], sources)
    return shaped


def by_model(
    model: type[BaseModel], rows: Iterable[Mapping[str, Any]], sources: Mapping[str, Source]
) -> dict[str, dict[str, Any]]:
    """Rows in the shape of `model`, by the accelerator's model that each of them names."""
    plain = ((row["model"], {key: value for key, value in row.items() if key != "model"}) for row in rows)
    return {name: with_facts(model, row, sources) for name, row in plain}


@cache
def _fact_fields(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if _is_fact(field.annotation))


def _is_fact(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Fact)
