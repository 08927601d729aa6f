. "$(dirname "${BASH_SOURCE[0]}")/cloud.sh"

slurm_name() { imds tags/instance/gangway:slurm-node; }

munge_key() {
    python3 -c '
import sys, boto3
found = boto3.client("ssm", region_name=sys.argv[1]).get_parameter(Name=sys.argv[2], WithDecryption=True)
print(found["Parameter"]["Value"])' "$REGION" "$MUNGE_KEY"
}
