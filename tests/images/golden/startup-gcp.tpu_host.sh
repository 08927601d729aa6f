#!/usr/bin/env bash
# A Gangway host of a TPU slice. Rendered by gangway.images.gcp; Cloud TPU's images run this at each boot.
set -euo pipefail
install -D -m 0600 /dev/stdin /etc/gangway/job.json <<'GANGWAY_END_OF_FILE'
{
 "name": "dcgan-celeba64",
 "image": "us-central1-docker.pkg.dev/acme-ml/gangway/trainer@sha256:abababababababababababababababababababababababababababababababab",
 "backend": "xla",
 "num_nodes_min": 2,
 "num_nodes_max": 4,
 "processes_per_node": 4,
 "rendezvous": {
  "host": "head.gangway.internal",
  "port": 29400,
  "standalone": false
 },
 "volumes": [
  {
   "source": "/var/lib/gangway",
   "target": "/var/lib/gangway",
   "read_only": false
  }
 ],
 "env": {
  "GANGWAY_NOTE": "it's \"50 %\" of $HOME\n\u00fc\u00f1\u00ed",
  "NCCL_SOCKET_IFNAME": "enp0s12",
  "GLOO_SOCKET_IFNAME": "enp0s12",
  "LD_LIBRARY_PATH": "/var/lib/tcpxo/lib64",
  "NCCL_NET": "Plugin"
 },
 "module": "gangway.trainer",
 "training": {
  "config": {
   "backend": "xla"
  },
  "config_file": "/etc/gangway/train.json",
  "run_dir": "/var/lib/gangway/runs/demo",
  "data_dir": "",
  "metrics_port": null,
  "log_format": "text",
  "fabric_min_gbps": null,
  "controller": null,
  "options": []
 },
 "run_id": "",
 "max_restarts": 3,
 "shutdown_timeout_sec": 25
}
GANGWAY_END_OF_FILE
install -D -m 0600 /dev/stdin /etc/gangway/job.env <<'GANGWAY_END_OF_FILE'
DOCKER_ARGV=(
    run
    --rm
    --init
    --name
    gangway-trainer
    --network
    host
    --ipc
    host
    --ulimit
    memlock=-1
    --ulimit
    nofile=131072
    --privileged
    --pids-limit
    32768
    --env
    HOME=/tmp
    --user
    0:0
    --env
    PJRT_DEVICE=TPU
    --env
    $'GANGWAY_NOTE=it\'s "50 %" of $HOME\012\303\274\303\261\303\255'
    --env
    GLOO_SOCKET_IFNAME=enp0s12
    --env
    LD_LIBRARY_PATH=/var/lib/tcpxo/lib64
    --env
    NCCL_NET=Plugin
    --env
    NCCL_SOCKET_IFNAME=enp0s12
    --mount
    type=bind,source=/var/lib/gangway,target=/var/lib/gangway
    --label
    team=ml-platform
    --log-driver
    none
    --mount
    type=bind,source=/run/gangway-notices,target=/run/gangway-notices,readonly
    --mount
    type=bind,source=/run/gangway-member.pem,target=/run/gangway-member.pem,readonly
    --mount
    type=bind,source=/etc/gangway/train.json,target=/etc/gangway/train.json,readonly
    us-central1-docker.pkg.dev/acme-ml/gangway/trainer@sha256:abababababababababababababababababababababababababababababababab
    --watch
    /run/gangway-notices/held
    --member-key
    /run/gangway-member.pem
    --job-dir
    /var/lib/gangway/runs/demo/.launch/43c20edebcad
    --max-hours
    8
    --
    --nproc-per-node=4
    --max-restarts=3
    -m
    gangway.trainer
    train
    --config
    /etc/gangway/train.json
    --run-dir
    /var/lib/gangway/runs/demo
)
RUN=(
    /opt/gangway/bin/run-tpu.sh
)
GANGWAY_END_OF_FILE
install -D -m 0600 /dev/stdin /etc/gangway/node.env <<'GANGWAY_END_OF_FILE'
BUCKET_URI=gs://gangway-records/demo
CONTAINER_NAME=gangway-trainer
DATA_BY=''
DATA_DIR=''
DATA_SOURCE=''
ENDED_OBJECT=dcgan-celeba64/ended-c3e2e64f5311
GPUS_PLANNED=0
GVNICS_PLANNED=0
HEALTH_CHECKS=''
IMAGE=us-central1-docker.pkg.dev/acme-ml/gangway/trainer@sha256:abababababababababababababababababababababababababababababababab
IMAGE_REGISTRY=us-central1-docker.pkg.dev
IN_GROUP=''
JOB_KEY=43c20edebcad
JOB_NAME=dcgan-celeba64
LOG_GROUP=gangway-demo
MAX_SEC=28800
MEMBER_KEY=projects/acme-ml/secrets/demo-member-key
MOUNT_POINT=/var/lib/gangway/runs
MOUNT_SOURCE=gangway-records/demo/shared
NUM_SLICES=2
PROJECT=acme-ml
QUEUED_RESOURCE=projects/acme-ml/locations/us-central1-a/queuedResources/demo
RDMA_NICS_PLANNED=0
REGION=us-central1
RESULTS_AT_END=''
RESULTS_SEC=''
ROLE=worker
RUN_DIR=/var/lib/gangway/runs/demo
RUN_ID=''
SCRATCH_MOUNT_POINT=''
STACK=demo
TERMINATE_WHEN_DONE=yes
TRAINER_UID=0
TRIES_AGAIN=yes
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/__init__.py <<'GANGWAY_END_OF_FILE'
@__init__-b944db79.py.txt 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/__init__.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/__init__.py 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/web.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/web.py 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/safe_files.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/safe_files.py 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/gcp/api.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/gcp/api.py 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/log_shipper.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/log_shipper.py 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/gcp/logs.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/gcp/logs.py 0
install -D -m 0644 /dev/stdin /etc/apt/apt.conf.d/99gangway <<'GANGWAY_END_OF_FILE'
@99gangway-0ecde20e.txt 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/notices.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/notices.py 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/gcp/notices.py <<'GANGWAY_END_OF_FILE'
@gangway/images/node/gcp/notices.py 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/common.sh <<'GANGWAY_END_OF_FILE'
@common-fe61755b.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/cloud.sh <<'GANGWAY_END_OF_FILE'
@cloud-c7457a63.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/install-docker.sh <<'GANGWAY_END_OF_FILE'
@install-docker-6d1389fd.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/mount-bucket.sh <<'GANGWAY_END_OF_FILE'
@mount-bucket-26c4a134.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/fetch-key.sh <<'GANGWAY_END_OF_FILE'
@fetch-key-64c8c70e.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/pull-image.sh <<'GANGWAY_END_OF_FILE'
@pull-image-f9ed88b1.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/close-metadata.sh <<'GANGWAY_END_OF_FILE'
@close-metadata-ce5da31f.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/run-trainer.sh <<'GANGWAY_END_OF_FILE'
@run-trainer-eecadc57.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/upload-record.sh <<'GANGWAY_END_OF_FILE'
@upload-record-0e7b1be4.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/leave-node.sh <<'GANGWAY_END_OF_FILE'
@leave-node-2441dfba.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/watch-node.sh <<'GANGWAY_END_OF_FILE'
@watch-node-e822b97b.sh.txt 0
install -D -m 0755 /dev/stdin /opt/gangway/bin/run-tpu.sh <<'GANGWAY_END_OF_FILE'
@run-tpu-148a3059.sh.txt 0
install -D -m 0644 /dev/stdin /opt/gangway/lib/gangway/images/node/outbox.py <<'GANGWAY_END_OF_FILE'
@outbox-63e91e53.py.txt 0
install -D -m 0644 /dev/stdin /etc/gangway/train.json <<'GANGWAY_END_OF_FILE'
{
 "backend": "xla"
}
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-notices.service <<'GANGWAY_END_OF_FILE'
@gangway-notices-6cb6b5b7.service.txt 0
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-prepare.service <<'GANGWAY_END_OF_FILE'
@gangway-prepare-a57db2ec.service.txt 0
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-watch.service <<'GANGWAY_END_OF_FILE'
@gangway-watch-98a7c772.service.txt 0
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-metadata.service <<'GANGWAY_END_OF_FILE'
@gangway-metadata-9cdfeffb.service.txt 0
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-trainer.service <<'GANGWAY_END_OF_FILE'
@gangway-trainer-24b9571b.service.txt 0
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-watch.timer <<'GANGWAY_END_OF_FILE'
@gangway-watch-5b618a86.timer.txt 0
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-logs.service <<'GANGWAY_END_OF_FILE'
@gangway-logs-45f22161.service.txt 0
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-rendezvous.service <<'GANGWAY_END_OF_FILE'
@gangway-rendezvous-cec5d53c.service.txt 0
systemctl daemon-reload
# Nothing is awaited: this script runs inside a unit of the image's own.
systemctl enable gangway-metadata.service gangway-trainer.service gangway-watch.timer gangway-logs.service
systemctl start --no-block gangway-metadata.service gangway-trainer.service gangway-watch.timer gangway-logs.service
