@images/templates/hosts/installer.sh

ENGINE_HINT='install Docker Engine from docker.com or your distribution'
STACK=lab

@FILES

NEEDS=(
    'python3: install Python 3.9 or later, which reads the run'"'"'s record'
    'nvidia-smi: install NVIDIA'"'"'s driver, 580 or later, for the trainer'"'"'s CUDA 13'
    'aws: install the AWS CLI, version 2, which uploads records to the run store'
)

REFUSED=(
)

SERVICES=(
    gangway-metadata.service
    gangway-rendezvous.service
    gangway-prometheus.service
    gangway-trainer.service
    gangway-watch.timer
    gangway-record.timer
)

write_files() {
put /etc/gangway/job.json 0600 <<'GANGWAY_FILE'
{
 "name": "dcgan-celeba64",
 "image": "123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab",
 "backend": "nccl",
 "num_nodes_min": 2,
 "num_nodes_max": 4,
 "processes_per_node": 8,
 "rendezvous": {
  "host": "head.gangway.internal",
  "port": 29400,
  "standalone": false
 },
 "volumes": [
  {
   "source": "/shared/gangway",
   "target": "/shared/gangway",
   "read_only": false
  },
  {
   "source": "/data",
   "target": "/data",
   "read_only": true
  }
 ],
 "env": {
  "GANGWAY_NOTE": "it's \"50 %\" of $HOME\n\u00fc\u00f1\u00ed",
  "NCCL_NET": "IB"
 },
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
    --gpus
    all
    --device
    /dev/infiniband
    --env
    $'GANGWAY_NOTE=it\'s "50 %" of $HOME\012\303\274\303\261\303\255'
    --env
    NCCL_NET=IB
    --mount
    type=bind,source=/shared/gangway,target=/shared/gangway
    --mount
    type=bind,source=/data,target=/data,readonly
    --label
    gangway.stack=lab
    --label
    team=ml-platform
    --mount
    type=bind,source=/run/gangway-member.pem,target=/run/gangway-member.pem,readonly
    --log-driver
    none
    --mount
    type=bind,source=/etc/gangway/train.json,target=/etc/gangway/train.json,readonly
    123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
    --member-key
    /run/gangway-member.pem
    --job-dir
    /shared/gangway/runs/lab/.launch/1a4304d023e2
    --max-hours
    8
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
ALLOWED_SOURCES='10.30.0.11 fd00::12 10.99.0.0/16'
BUCKET_URI=s3://my-bucket/runs/lab
CONTAINER_ENGINE=docker
CONTAINER_NAME=gangway-trainer
DATA_DIR=''
GPUS_PLANNED=8
GPU_ARGUMENTS='--gpus all'
HEALTH_CHECKS='check-gpu.sh check-rdma.sh check-shared.sh check-container.sh'
IMAGE=123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
IMAGE_REGISTRY=registry.example.com
JOB_KEY=1a4304d023e2
JOB_NAME=dcgan-celeba64
JOB_PORTS=9400,29400
LOG_GROUP=journal
MAX_SEC=28800
MEMBER_KEY=/etc/gangway/member.pem
RDMA_DEVICES=8
RDMA_GBPS=400
RDMA_HCAS=''
RDMA_LINK_LAYER=InfiniBand
RESULTS_AT_END=''
RESULTS_SEC=''
ROLE=worker
RUN_DIR=/shared/gangway/runs/lab
RUN_ID=''
SHARED_DIR=/shared/gangway
STACK=lab
TERMINATE_WHEN_DONE=''
TRAINER_UID=10001
TRIES_AGAIN=yes
GANGWAY_FILE
@put /opt/gangway/bin/common.sh 0755 0 images/templates/node/common.sh:bare
@put /opt/gangway/bin/cloud.sh 0755 0 cloud-746f9eb4.sh.txt
@put /opt/gangway/bin/check-gpu.sh 0755 0 images/templates/node/check-gpu.sh:bare
@put /opt/gangway/bin/check-rdma.sh 0755 0 images/templates/node/check-rdma.sh:bare
@put /opt/gangway/bin/check-shared.sh 0755 0 images/templates/hosts/check-shared.sh:bare
@put /opt/gangway/bin/close-ports.sh 0755 0 images/templates/hosts/close-ports.sh:bare
@put /opt/gangway/bin/fetch-key.sh 0755 0 images/templates/node/fetch-key.sh:bare
@put /opt/gangway/bin/pull-image.sh 0755 0 images/templates/node/pull-image.sh:bare
@put /opt/gangway/bin/check-container.sh 0755 0 images/templates/hosts/check-container.sh:bare
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
@put /etc/systemd/system/gangway-prepare.service 0644 0 gangway-prepare-e855192c.service.txt
@put /etc/systemd/system/gangway-metadata.service 0644 0 gangway-metadata-9cdfeffb.service.txt
@put /etc/systemd/system/gangway-rendezvous.service 0644 0 gangway-rendezvous-3690dc65.service.txt
@put /etc/systemd/system/gangway-prometheus.service 0644 0 gangway-prometheus-21918fcc.service.txt
@put /etc/systemd/system/gangway-trainer.service 0644 0 gangway-trainer-c6cbc30c.service.txt
@put /etc/systemd/system/gangway-watch.timer 0644 0 gangway-watch-5b618a86.timer.txt
@put /etc/systemd/system/gangway-record.timer 0644 0 gangway-record-e975fffe.timer.txt
@put /etc/systemd/system/gangway-watch.service 0644 0 gangway-watch-98a7c772.service.txt
@put /etc/systemd/system/gangway-record.service 0644 0 gangway-record-90f960f9.service.txt
put /etc/gangway/prometheus.yaml 0644 <<'GANGWAY_FILE'
# Prometheus on the first machine: the others by their addresses. Rendered by gangway.images.observability.
# Rank 0 alone listens, on whichever machine it runs: the other machines are targets that are down, and that is right.
global:
  scrape_interval: 15s
scrape_configs:
  - job_name: gangway-trainer
    static_configs:
      - targets:
          - "10.30.0.11:9400"
          - "[fd00::12]:9400"
        labels:
          stack: "lab"
GANGWAY_FILE
}

main "$@"
exit
