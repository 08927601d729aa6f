"""The run record: statistics lines, figures with provenance, `run.json` and its summary. No torch."""
