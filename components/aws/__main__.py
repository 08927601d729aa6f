"""The AWS components as a Pulumi plugin: `pulumi package add ./components/aws` in a program of any language.

Started by the engine, never by a person. A plugin for each provider, because a host puts every component into one
module and each provider has a network of its own. Declares no component itself.
"""

import sys
from pathlib import Path

# The engine makes this folder sys.path[0]; the packages live two above.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pulumi.provider.experimental import component_provider_host

from components.aws import component_classes
from components.image import TrainerImage

if __name__ == "__main__":
    component_provider_host([*component_classes(), TrainerImage], name="gangway-aws", version="0.1.0")
