"""From what a session writes down to the run's record: pure sums over stats.jsonl, without torch. Imports nothing."""
