"""The training configuration: TrainConfig, its schedules and segments, the presets, command-line flags. No torch."""
