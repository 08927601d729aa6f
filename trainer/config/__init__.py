"""What a human writes of a run: TrainConfig, the presets, the metrics' names. Imports no torch."""
