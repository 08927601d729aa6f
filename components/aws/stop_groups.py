"""The Lambda function that ends a stack's nodes when its budget is exceeded; `gangway.components.aws.budget` uploads
it.

It suspends first: otherwise the ladder's alarms would fill the next rung while this one empties. To continue, raise the
budget, then `pulumi up --refresh` to restore sizes and processes.
"""

import os


def handler(event: object, context: object) -> list[str]:
    """Set every Auto Scaling group whose tag gangway:stack is STACK to zero, and return their names."""
    import boto3

    client = boto3.client("autoscaling")
    pages = client.get_paginator("describe_auto_scaling_groups").paginate(
        Filters=[{"Name": "tag:gangway:stack", "Values": [os.environ["STACK"]]}]
    )
    names = [group["AutoScalingGroupName"] for page in pages for group in page["AutoScalingGroups"]]
    for name in names:
        client.suspend_processes(
            AutoScalingGroupName=name, ScalingProcesses=["Launch", "AlarmNotification", "ScheduledActions"]
        )
        client.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=0, DesiredCapacity=0)
        print(f"budget used up: {name} set to zero")
    return names
