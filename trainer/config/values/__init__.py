"""Value types of the configuration: numbers, schedules, segments, metric names, layer rates."""
