"""Three components of Gangway in somebody's own program: a network, a bucket for runs, a budget that stops nodes."""

import pulumi

from gangway.components.aws import Budget, RunBucket, TrainingNetwork
from gangway.components.core.fields import Egress

STACK = pulumi.get_stack()
TAGS = {"team": "ml-platform", "cost_center": "4711", "gangway:stack": STACK}

runs = RunBucket(STACK, {"tags": TAGS})
network = TrainingNetwork(
    STACK,
    {
        "cidr": "10.42.0.0/16",
        "region": "us-east-2",
        "zones": ["us-east-2a", "us-east-2b"],
        "egress": Egress.ENDPOINTS,
        "s3_bucket_arns": [runs.bucket_arn],
        "tags": TAGS,
    },
)
budget = Budget(
    STACK,
    {
        "monthly_usd": 2000,
        "emails": ["ml-platform@example.com"],
        "alert_percent": [50, 80, 100],
        "stop_at_percent": 110,  # of the Auto Scaling groups that carry the tag
        "tag_key": "gangway:stack",
        "tag_value": STACK,
        "tags": TAGS,
    },
)

pulumi.export("bucket", runs.bucket_name)
pulumi.export("subnets", network.private_subnet_ids)
pulumi.export("budget", budget.budget_name)
