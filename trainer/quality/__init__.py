"""Quality: how good the images of a generator are, by metrics that say how they were computed.

    names record history words    which metrics there are, what they leave in run.json and say; no torch
    weights                 files of weights that cannot ship with the trainer
    features inception c3d recognition frames    the feature networks, EfficientNet-Lite0 first
    collect                 features of many images over all workers
    frechet scores manifold    a score from features
    spaces                  which network and which score make a metric
    judge                   all of a run's metrics by one protocol
    evaluate                the same, of a run's newest checkpoint
    in_training             metrics while a run goes on
    speed                   features per second, against torch-fidelity's

Importing this package loads nothing: the configuration only needs the names.
"""
