#!/usr/bin/env bash
# Makes the folders of a command's outputs, which its container has as mounts, and then runs docker. They are beside the
# run folder, and root's but for the last of each: nothing that the command does can change where they lead to.
set -euo pipefail
# shellcheck source=../node/common.sh
. "$(dirname "$0")/common.sh"

for output in $OUTPUTS; do
    prepare_folder "$RUN_DIR.outputs$output" || exit 1
done
exec "$@"
