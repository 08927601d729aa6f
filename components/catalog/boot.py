"""How long nodes take until their job can start, by step."""

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import table_reader


class BootTable(Frozen):
    """Minutes by step, of any provider. `first_read_...`: of a disk made from a machine image, which loads what is
    read; `stored_gib`: of one machine image.
    """

    container_gib: Fact[float]
    container_minutes_per_gib: Fact[float]
    start_minutes: Fact[float]
    start_minutes_of_host: Fact[float]
    lustre_minutes: Fact[float]
    slurm_minutes: Fact[float]
    exporters_minutes: Fact[float]
    first_read_minutes_per_gib: Fact[float]
    stored_gib: Fact[float]


load_boot = table_reader(BootTable, "boot")
