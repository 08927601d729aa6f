"""Sandbox handlers of EC2 Image Builder and CodeBuild."""

from collections.abc import Mapping

from gangway.sandbox.aws import Aws, Handler, Wire, put, validated
from gangway.sandbox.rows import Applied

_TOKEN = {"clientToken": "sandbox"}  # the provider sends one for each request
_AMI = "ami-5a5d6b0c5a5d6b0c5"
_VERSION = "semanticVersion"
_PLACE = "arn:aws:imagebuilder:{aws.region}:{aws.account}"


def _builder(operation: str, path: str) -> Handler:
    """The handler of a resource of Image Builder. `path`: of its ARN, which is its id."""
    arn = f"{_PLACE}:{path}"
    return put("imagebuilder", operation, arn, named="name", fixed=_TOKEN, outputs={"arn": arn}, version=_VERSION)


def _machine_image(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("tags"), **wire.rest(), **_TOKEN}
    parameters = aws.request("imagebuilder", "CreateImage", inputs)
    arn = f"{parameters['imageRecipeArn'].replace(':image-recipe/', ':image/')}/1"
    made = [{"amis": [{"accountId": aws.account, "image": _AMI, "region": aws.region}]}]
    return validated(aws, wire, "imagebuilder", "CreateImage", parameters, arn, arn=arn, outputResources=made)


def _project(aws: Aws, wire: Wire) -> Applied:
    """Moto refuses a project without the location of a source, which AWS takes."""
    name, arn = wire.physical_name(), f"arn:aws:codebuild:{aws.region}:{aws.account}:project/{wire.inputs['name']}"
    tags = [{"key": key, "value": value} for key, value in wire.take_value("tags", {}).items()]
    inputs = {"name": name, **wire.rest(), "tags": tags}
    parameters = aws.request("codebuild", "CreateProject", inputs, buildTimeout="timeoutInMinutes")
    return validated(aws, wire, "codebuild", "CreateProject", parameters, arn, "; it has it for sources only", arn=arn)


HANDLERS: Mapping[str, Handler] = {
    "aws:codebuild/project:Project": _project,
    "aws:imagebuilder/component:Component": _builder("CreateComponent", "component/{name}/{semanticVersion}/1"),
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": _builder(
        "CreateDistributionConfiguration", "distribution-configuration/{name}"
    ),
    "aws:imagebuilder/image:Image": _machine_image,
    "aws:imagebuilder/imageRecipe:ImageRecipe": _builder("CreateImageRecipe", "image-recipe/{name}/{semanticVersion}"),
    "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration": _builder(
        "CreateInfrastructureConfiguration", "infrastructure-configuration/{name}"
    ),
}
