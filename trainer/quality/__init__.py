"""Quality: how good the images of a generator are, by metrics that say how they were computed.

    names record history    which metrics there are, what they leave in run.json; no torch
    weights                 files of weights that cannot ship with the trainer
    inception c3d recognition frames    the feature networks
    collect                 features of many images over all workers
    scores manifold         a score from features
    spaces                  which network and which score make a metric
    judge                   all of a run's metrics by one protocol
    in_training             metrics while a run goes on
    speed                   features per second, against torch-fidelity's

The Fréchet distance is in trainer.metrics, EfficientNet-Lite0 in trainer.features, the command in trainer.evaluate.
Importing this package loads nothing: the configuration only needs the names.
"""
