// Three components of Gangway in somebody's own program: a network, a bucket for runs, a budget that stops nodes.
// `pulumi package add ../../components/aws` makes the SDK and adds it to package.json.
import * as pulumi from "@pulumi/pulumi";
import * as gangway from "@gangway/gangway-aws";

const stack = pulumi.getStack();
const tags = { team: "ml-platform", cost_center: "4711", "gangway:stack": stack };

const runs = new gangway.RunBucket(stack, { tags });
const network = new gangway.TrainingNetwork(stack, {
    cidr: "10.42.0.0/16",
    region: "us-east-2",
    zones: ["us-east-2a", "us-east-2b"],
    egress: gangway.Egress.ENDPOINTS,
    s3BucketArns: [runs.bucketArn],
    tags,
});
const budget = new gangway.Budget(stack, {
    monthlyUsd: 2000,
    emails: ["ml-platform@example.com"],
    alertPercent: [50, 80, 100],
    stopAtPercent: 110, // of the Auto Scaling groups that carry the tag
    tagKey: "gangway:stack",
    tagValue: stack,
    tags,
});

export const bucket = runs.bucketName;
export const subnets = network.privateSubnetIds;
export const budgetName = budget.budgetName;
