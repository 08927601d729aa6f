"""What forces a new resource, out of Go sources."""

import json
import subprocess

import pytest

from tools.replacing_inputs import GoIndex

SERVICE = "internal/service/fsx"
SOURCES = {
    "func.resourceFileSystem": """
func resourceFileSystem() *schema.Resource {
	return &schema.Resource{
		CreateWithoutTimeout: resourceFileSystemCreate,
		SchemaFunc: func() map[string]*schema.Schema {
			return map[string]*schema.Schema{
				names.AttrKMSKeyID: {Type: schema.TypeString, ForceNew: true}, // ForceNew: true of no input
				"capacity": {Type: schema.TypeInt, Required: true},
				"options": {
					Type: schema.TypeList, ForceNew: true,
					Elem: &schema.Resource{Schema: map[string]*schema.Schema{
						"size": {Type: schema.TypeInt, ForceNew: true},
						"name": {Type: schema.TypeString},
					}},
				},
				"subnet_ids": {ForceNew: true, Elem: &schema.Schema{Type: schema.TypeString}},
				"settings": settingsSchema(),
			}
		},
	}
}""",
    "func.settingsSchema": """
func settingsSchema() *schema.Schema {
	return &schema.Schema{Elem: &schema.Resource{Schema: map[string]*schema.Schema{
		names.AttrVPCID: {ForceNew: true},
	}}}
}""",
    "func.resourceFileSystemCreate": """
func resourceFileSystemCreate(d *schema.ResourceData) diag.Diagnostics {
	d.ForceNew("capacity"); _ = map[string]bool{"ForceNew": true}
}""",
    "method.ruleResource.Schema": """
func (r *ruleResource) Schema(ctx context.Context, q resource.SchemaRequest, response *resource.SchemaResponse) {
	response.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"group": schema.StringAttribute{PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
		"port":  schema.Int64Attribute{PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()}},
	}}
}""",
    "func.resourceOdd": """
func resourceOdd() *schema.Resource {
	return &schema.Resource{Schema: map[string]*schema.Schema{oddName: {ForceNew: true}}}
}""",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> GoIndex:
    """A repository of three resources, as the index of the provider holds them."""
    folder = tmp_path_factory.mktemp("index")
    (service := folder / "index" / SERVICE).mkdir(parents=True)
    (resources := folder / "index/resources").mkdir()
    for name in ("tags", "framework"):
        (folder / "index/internal" / name).mkdir()
        (folder / "index/internal" / name / "func.Nothing.goindex").write_text("func Nothing() {}", "utf-8")
    for name, source in SOURCES.items():
        (service / f"{name}.goindex").write_text(f"package fsx\n{source}\n", "utf-8")
    for name, kind, struct, start in (
        ("aws_file_system", "aws_sdk", "", "resourceFileSystem"),
        ("aws_rule", "aws_framework", "ruleResource", ""),
        ("aws_odd", "aws_sdk", "", "resourceOdd"),
    ):
        verbs = {f"{verb}_index": f"func.{start}{verb.title()}.goindex" for verb in ("create", "read")}
        entry = {"namespace": f"github.com/hashicorp/terraform-provider-aws/{SERVICE}", "sdk_type": kind, **verbs}
        entry |= {"struct_type": struct, "schema_index": "func.guessed.goindex"}
        (resources / f"{name}.json").write_text(json.dumps(entry), "utf-8")
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return GoIndex(folder / ".git")


def test_inputs_blocks_and_the_schemas_of_other_functions(index: GoIndex) -> None:
    assert index.force_new("aws_file_system") == {
        *("kms_key_id", "options#", "options.size", "subnet_ids", "settings.vpc_id"),
    }


def test_the_framework_replaces_by_plan_modifiers(index: GoIndex) -> None:
    assert index.force_new("aws_rule") == {"group"}


def test_an_input_whose_name_is_not_known_is_no_silent_gap(index: GoIndex) -> None:
    with pytest.raises(ValueError, match="aws_odd"):
        index.force_new("aws_odd")
    with pytest.raises(LookupError):
        index.force_new("aws_none")
