"""`python -m trainer.launch`: see trainer.launch.launcher."""

import sys

from trainer.launch.launcher import main

sys.argv[0] = "python -m trainer.launch"  # by which torchrun's --help names its program
sys.exit(main(sys.argv[1:]))
