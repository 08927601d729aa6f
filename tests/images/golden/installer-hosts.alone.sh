@images/templates/hosts/installer.sh

ENGINE_HINT='install podman and podman-docker, which installs podman there'
STACK=lab

@FILES

NEEDS=(
    'python3: install Python 3.9 or later, which reads the run'"'"'s record'
)

REFUSED=(
)

SERVICES=(
    gangway-metadata.service
    gangway-trainer.service
    gangway-watch.timer
)

write_files() {
put /etc/gangway/job.json 0600 <<'GANGWAY_FILE'
{
 "name": "dcgan-celeba64",
 "image": "123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab",
 "backend": "gloo",
 "num_nodes_min": 2,
 "num_nodes_max": 4,
 "processes_per_node": 8,
 "rendezvous": {
  "host": "head.gangway.internal",
  "port": 29400,
  "standalone": false
 },
 "volumes": [],
 "env": {},
 "module": "gangway.trainer",
 "training": {
  "config": {
   "preset": "dcgan-celeba64"
  },
  "config_file": "/etc/gangway/train.json",
  "run_dir": "/fsx/runs/dcgan-celeba64",
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
GANGWAY_FILE
put /etc/gangway/job.env 0600 <<'GANGWAY_FILE'
DOCKER_ARGV=(
@arguments docker-run 0 4 docker-run-43ee22f5.txt
    --user
    10001:10001
    --env
    USER=10001
    --log-driver
    none
    --mount
    type=bind,source=/etc/gangway/train.json,target=/etc/gangway/train.json,readonly
    123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
    --job-dir
    /var/lib/gangway/runs/lab/.launch/1a4304d023e2
    --nnodes=2:4
    --rdzv-backend=gangway
    --rdzv-endpoint=head.gangway.internal:29400
    --rdzv-id=dcgan-celeba64
    --rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=3
    --nproc-per-node=8
    --max-restarts=3
    --shutdown-timeout=25
    -m
    gangway.trainer
    train
    --config
    /etc/gangway/train.json
    --run-dir
    /fsx/runs/dcgan-celeba64
)
GANGWAY_FILE
put /etc/gangway/node.env 0600 <<'GANGWAY_FILE'
BUCKET_URI=/srv/results/lab
CONTAINER_ENGINE=podman
CONTAINER_NAME=gangway-trainer
DATA_DIR=''
GPUS_PLANNED=0
GPU_ARGUMENTS=''
HEALTH_CHECKS=''
IMAGE=123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
IMAGE_REGISTRY=registry.example.com
JOB_KEY=1a4304d023e2
JOB_NAME=dcgan-celeba64
LOG_GROUP=journal
MAX_SEC=''
RESULTS_AT_END=''
RESULTS_SEC=''
ROLE=worker
RUN_DIR=/var/lib/gangway/runs/lab
RUN_ID=''
SHARED_DIR=''
STACK=lab
TERMINATE_WHEN_DONE=''
TRAINER_UID=10001
TRIES_AGAIN=yes
GANGWAY_FILE
@put /opt/gangway/bin/common.sh 0755 0 images/templates/node/common.sh:bare
@put /opt/gangway/bin/cloud.sh 0755 0 cloud-746f9eb4.sh.txt
@put /opt/gangway/bin/pull-image.sh 0755 0 images/templates/node/pull-image.sh:bare
@put /opt/gangway/bin/check-shared.sh 0755 0 images/templates/hosts/check-shared.sh:bare
@put /opt/gangway/bin/close-metadata.sh 0755 0 images/templates/node/close-metadata.sh:bare
@put /opt/gangway/bin/run-trainer.sh 0755 0 images/templates/node/run-trainer.sh:bare
@put /opt/gangway/bin/upload-record.sh 0755 0 images/templates/node/upload-record.sh:bare
@put /opt/gangway/bin/leave-node.sh 0755 0 images/templates/node/leave-node.sh:bare
@put /opt/gangway/bin/watch-node.sh 0755 0 images/templates/node/watch-node.sh:bare
@put /opt/gangway/lib/gangway/images/node/outbox.py 0644 0 outbox-63e91e53.py.txt
put /etc/gangway/train.json 0644 <<'GANGWAY_FILE'
{
 "preset": "dcgan-celeba64"
}
GANGWAY_FILE
@put /etc/systemd/system/gangway-prepare.service 0644 0 gangway-prepare-3db9b1fc.service.txt
@put /etc/systemd/system/gangway-metadata.service 0644 0 gangway-metadata-9cdfeffb.service.txt
@put /etc/systemd/system/gangway-trainer.service 0644 0 gangway-trainer-c6cbc30c.service.txt
@put /etc/systemd/system/gangway-watch.timer 0644 0 gangway-watch-5b618a86.timer.txt
@put /etc/systemd/system/gangway-watch.service 0644 0 gangway-watch-98a7c772.service.txt
}

main "$@"
exit
