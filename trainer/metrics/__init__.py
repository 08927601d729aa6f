"""Quality: how good a generator's images are, by metrics that say how they were computed. Importing it loads nothing.

`features`, `inception`, `c3d` and `recognition` are the feature networks, `weights` their files; `collect` has features
over all workers, `frechet` and `scores` a score from them, `metric_registry` which network and score make a metric.
`evaluator` computes all of a run's metrics by one protocol, `evaluate` asks it, in training and of a checkpoint.
"""
