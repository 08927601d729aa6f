"""`python -m gangway.trainer.launch`: see gangway.trainer.launch.launcher."""

import sys

from gangway.trainer.launch.launcher import main

sys.argv[0] = "python -m gangway.trainer.launch"  # by which torchrun's --help names its program
sys.exit(main(sys.argv[1:]))
