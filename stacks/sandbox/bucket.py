"""Sandbox handlers: an S3 bucket and the settings that Pulumi has as resources of their own."""

import json
from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _bucket(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDestroy")
    name = wire.physical_name("bucket")
    # The region S3 began in is the one that may not be named.
    home = aws.region == "us-east-1"
    place = {} if home else {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    aws.call("s3", "CreateBucket", {"Bucket": name, **place})
    tags = wire.tags()
    if tags:
        aws.call("s3", "PutBucketTagging", {"Bucket": name, "Tagging": {"TagSet": tags["Tags"]}})

    def held() -> Mapping[str, Any]:
        location = aws.read("s3", "GetBucketLocation", {"Bucket": name})["LocationConstraint"]
        found = aws.read("s3", "GetBucketTagging", {"Bucket": name})["TagSet"] if tags else []
        return {"Region": location or "us-east-1", "Tags": found}

    outputs = wire.outputs(bucket=name, arn=f"arn:aws:s3:::{name}")
    return Applied(name, outputs, {"Region": aws.region, **tags}, held)


def _public_access_block(aws: Aws, wire: Wire) -> Applied:
    bucket = wire.take("bucket")["bucket"]
    inputs = {"bucket": bucket, "publicAccessBlockConfiguration": wire.rest()}
    parameters = aws.request("s3", "PutPublicAccessBlock", inputs)
    aws.call("s3", "PutPublicAccessBlock", parameters)
    declared = parameters["PublicAccessBlockConfiguration"]

    def held() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("s3", "GetPublicAccessBlock", {"Bucket": bucket})
        block: Mapping[str, Any] = answer["PublicAccessBlockConfiguration"]
        return block

    return Applied(bucket, wire.outputs(), declared, held)


def _versioning(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("s3", "PutBucketVersioning", wire.rest())
    aws.call("s3", "PutBucketVersioning", parameters)
    bucket = parameters["Bucket"]

    def held() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("s3", "GetBucketVersioning", {"Bucket": bucket})
        return answer

    return Applied(bucket, wire.outputs(), parameters["VersioningConfiguration"], held)


def _policy(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("s3", "PutBucketPolicy", wire.rest())
    aws.call("s3", "PutBucketPolicy", parameters)
    bucket = parameters["Bucket"]

    def held() -> Mapping[str, Any]:
        return {"Policy": json.loads(aws.read("s3", "GetBucketPolicy", {"Bucket": bucket})["Policy"])}

    return Applied(bucket, wire.outputs(), {"Policy": json.loads(parameters["Policy"])}, held)


def _ownership(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("bucket"), "ownershipControls": {"rules": wire.take("rule")["rule"]}}
    parameters = aws.request("s3", "PutBucketOwnershipControls", inputs)
    aws.call("s3", "PutBucketOwnershipControls", parameters)
    bucket = parameters["Bucket"]

    def held() -> Mapping[str, Any]:
        answer = aws.read("s3", "GetBucketOwnershipControls", {"Bucket": bucket})
        controls: Mapping[str, Any] = answer["OwnershipControls"]
        return controls

    return Applied(bucket, wire.outputs(), parameters["OwnershipControls"], held)


def _encryption(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("bucket"), "serverSideEncryptionConfiguration": wire.rest()}
    names = {"sseAlgorithm": "SSEAlgorithm", "kmsMasterKeyId": "KMSMasterKeyID"}
    parameters = aws.request("s3", "PutBucketEncryption", inputs, **names)
    aws.call("s3", "PutBucketEncryption", parameters)
    bucket = parameters["Bucket"]

    def held() -> Mapping[str, Any]:
        answer = aws.read("s3", "GetBucketEncryption", {"Bucket": bucket})
        configuration: Mapping[str, Any] = answer["ServerSideEncryptionConfiguration"]
        return configuration

    return Applied(bucket, wire.outputs(), parameters["ServerSideEncryptionConfiguration"], held)


def _lifecycle(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("bucket"), "lifecycleConfiguration": wire.rest()}
    parameters = aws.request("s3", "PutBucketLifecycleConfiguration", inputs)
    aws.call("s3", "PutBucketLifecycleConfiguration", parameters)
    bucket = parameters["Bucket"]

    def held() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("s3", "GetBucketLifecycleConfiguration", {"Bucket": bucket})
        return answer

    return Applied(bucket, wire.outputs(), parameters["LifecycleConfiguration"], held)


HANDLERS = {
    "aws:s3/bucket:Bucket": _bucket,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _public_access_block,
    "aws:s3/bucketVersioning:BucketVersioning": _versioning,
    "aws:s3/bucketPolicy:BucketPolicy": _policy,
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _ownership,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _encryption,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _lifecycle,
}
