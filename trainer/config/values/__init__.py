"""Value types of the configuration: numbers, schedules, segments, names of metrics, learning rates per layer."""
