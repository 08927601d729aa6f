#!/usr/bin/env bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/opt/gangway/lib
exec python3 -m images.node.aws.slurm_scaler /etc/gangway/slurm-scaler.json /run/gangway-scaler/state \
    > >(logger -t gangway-scaler) 2>&1
