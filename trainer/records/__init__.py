"""From what a session writes down to the run's record: pure sums over a diary, without torch.

`diary` is stats.jsonl, `clock` its time, `identity` which run and session it is, `provenance` which code. `summary`
folds them into a `trainer.record.RunRecord`, with `stops`, `utilisation`, `capacity` and `reckoning` (dollars, energy,
carbon) each for its part; `seal` is the digest. Nothing is imported here.
"""
