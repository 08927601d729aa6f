@images/templates/hosts/installer.sh

ENGINE_HINT='install Docker Engine from docker.com or your distribution'
STACK=lab

@FILES

NEEDS=(
    'python3: install Python 3.9 or later, which reads the run'"'"'s record'
    'nvidia-smi: install NVIDIA'"'"'s driver, a version for your image'"'"'s CUDA'
    'aws: install the AWS CLI, version 2, which uploads records to the run store'
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
 "name": "mine",
 "image": "123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
 "backend": "nccl",
 "num_nodes_min": 1,
 "num_nodes_max": 1,
 "processes_per_node": 8,
 "rendezvous": {
  "host": "localhost",
  "port": 0,
  "standalone": false
 },
 "volumes": [],
 "env": {
  "GANGWAY_RUN_DIR": "/shared/gangway/runs/lab",
  "GANGWAY_NOTICES": "/shared/gangway/runs/lab.notices",
  "GREETING": "two words"
 },
 "module": "gangway.trainer",
 "training": null,
 "command": {
  "words": [
   "python",
   "train.py"
  ],
  "workdir": "/work",
  "torchrun_processes": 8
 },
 "run_id": "",
 "max_restarts": 3,
 "shutdown_timeout_sec": 60
}
GANGWAY_FILE
put /etc/gangway/job.env 0600 <<'GANGWAY_FILE'
DOCKER_ARGV=(
@arguments docker-run 0 4 docker-run-43ee22f5.txt
    --user
    2001000001:2001000001
    --env
    USER=2001000001
    --gpus
    all
    --env
    GANGWAY_NOTICES=/shared/gangway/runs/lab.notices
    --env
    GANGWAY_RUN_DIR=/shared/gangway/runs/lab
    --env
    'GREETING=two words'
    --label
    gangway.stack=lab
    --label
    team=ml-platform
    --log-driver
    none
    --entrypoint
    /bin/sh
    --mount
    type=bind,source=/opt/gangway/bin/own-node.sh,target=/opt/gangway/bin/own-node.sh,readonly
    --mount
    type=bind,source=/opt/gangway/bin/own-job.sh,target=/opt/gangway/bin/own-job.sh,readonly
    --workdir
    /work
    123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
    /opt/gangway/bin/own-node.sh
    /run/gangway-notices/held
    /shared/gangway/runs/lab/.launch/cfedf8fafa70
    28800
    3
    60
    --standalone
    --nnodes=1
    --nproc-per-node=8
    --max-restarts=0
    --
    python
    train.py
)
GANGWAY_FILE
put /etc/gangway/node.env 0600 <<'GANGWAY_FILE'
ALLOWED_SOURCES='10.30.0.11 fd00::12 10.99.0.0/16'
BUCKET_URI=s3://my-bucket/runs/lab
CONTAINER_ENGINE=docker
CONTAINER_NAME=gangway-trainer
DATA_DIR=''
GPUS_PLANNED=8
GPU_ARGUMENTS='--gpus all'
HEALTH_CHECKS='check-gpu.sh check-container.sh'
IMAGE=123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
IMAGE_REGISTRY=registry.example.com
JOB_KEY=cfedf8fafa70
JOB_NAME=mine
JOB_PORTS=9400
LOG_GROUP=journal
MAX_SEC=28800
RESULTS_AT_END=yes
RESULTS_SEC=300
ROLE=worker
RUN_DIR=/shared/gangway/runs/lab
RUN_ID=''
SHARED_DIR=''
STACK=lab
TERMINATE_WHEN_DONE=''
TRAINER_UID=2001000001
TRIES_AGAIN=yes
GANGWAY_FILE
@put /opt/gangway/bin/common.sh 0755 0 images/templates/node/common.sh:bare
@put /opt/gangway/bin/cloud.sh 0755 0 cloud-746f9eb4.sh.txt
@put /opt/gangway/bin/check-gpu.sh 0755 0 images/templates/node/check-gpu.sh:bare
@put /opt/gangway/bin/close-ports.sh 0755 0 images/templates/hosts/close-ports.sh:bare
@put /opt/gangway/bin/pull-image.sh 0755 0 images/templates/node/pull-image.sh:bare
@put /opt/gangway/bin/check-container.sh 0755 0 images/templates/hosts/check-container.sh:bare
@put /opt/gangway/bin/check-shared.sh 0755 0 images/templates/hosts/check-shared.sh:bare
@put /opt/gangway/bin/close-metadata.sh 0755 0 images/templates/node/close-metadata.sh:bare
@put /opt/gangway/bin/run-trainer.sh 0755 0 images/templates/node/run-trainer.sh:bare
@put /opt/gangway/bin/upload-record.sh 0755 0 images/templates/job/upload-record.sh:bare
@put /opt/gangway/bin/leave-node.sh 0755 0 images/templates/node/leave-node.sh:bare
@put /opt/gangway/bin/watch-node.sh 0755 0 images/templates/node/watch-node.sh:bare
@put /opt/gangway/bin/own-node.sh 0755 0 images/templates/job/own-node.sh:bare
@put /opt/gangway/bin/own-job.sh 0755 0 images/templates/job/own-job.sh:bare
@put /opt/gangway/lib/gangway/images/node/outbox.py 0644 0 outbox-523ad0ab.py.txt
@put /opt/gangway/lib/gangway/images/node/run_folder.py 0644 0 run_folder-15050c36.py.txt
@put /etc/systemd/system/gangway-prepare.service 0644 0 gangway-prepare-f10f3bb6.service.txt
@put /etc/systemd/system/gangway-metadata.service 0644 0 gangway-metadata-9cdfeffb.service.txt
@put /etc/systemd/system/gangway-trainer.service 0644 0 gangway-trainer-3f4e010c.service.txt
@put /etc/systemd/system/gangway-watch.timer 0644 0 gangway-watch-5b618a86.timer.txt
@put /etc/systemd/system/gangway-watch.service 0644 0 gangway-watch-8d29a9ce.service.txt
}

main "$@"
exit
