"""The training configuration: TrainConfig, schedules, segments, presets and flags. No torch."""
