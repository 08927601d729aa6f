"""Quality: how good a generator's images are, by metrics that say how they were computed. Importing it loads nothing.

`features`, `inception` and `c3d` are feature networks, `weights` their files; `collect` has features over all workers,
`scores` scores from them, `metric_registry` which network and score make a metric. `evaluate` computes all of a run's
metrics by one protocol, in training and of a checkpoint.
"""
