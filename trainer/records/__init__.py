"""From what a session writes down to the run's record: pure sums over stats.jsonl, without torch. Imports nothing.

`summary` folds it into a `trainer.records.run_record.RunRecord`, with `stops`, `utilisation`, `capacity` and
`reckoning` (dollars, energy, carbon) each for its part; `seal` is the digest.
"""
