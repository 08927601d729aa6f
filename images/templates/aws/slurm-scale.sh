#!/usr/bin/env bash
# Slurm's ResumeProgram and SuspendProgram, and what a timer runs each minute: images/node/aws/slurm_scaler.py. Slurm waits
# for nobody's output, so it goes to the journal.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/opt/gangway/lib
exec python3 -m gangway.images.node.aws.slurm_scaler /etc/gangway/slurm-scaler.json /run/gangway-scaler/state \
    > >(logger -t gangway-scaler) 2>&1
