"""The GAN trainer that Gangway puts on a cluster; what the launcher knows (price, region, machine) enters by
`--context`.

From outside import only `trainer.config.train_config`, `trainer.core.errors` and `trainer.records.run_record`, which do
not import torch.
"""
