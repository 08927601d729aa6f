# shellcheck shell=bash
# What Slurm's scripts ask of AWS: which node this machine is, and the key of the cluster. boto3 is the distribution's own,
# for not every image has AWS's command line.
# shellcheck source=cloud.sh
. "$(dirname "${BASH_SOURCE[0]}")/cloud.sh"

# slurm_name: of the tag that the controller gives; fails where there is none yet.
slurm_name() { imds tags/instance/gangway:slurm-node; }

munge_key() {
    python3 -c '
import sys, boto3
found = boto3.client("ssm", region_name=sys.argv[1]).get_parameter(Name=sys.argv[2], WithDecryption=True)
print(found["Parameter"]["Value"])' "$REGION" "$MUNGE_KEY"
}
