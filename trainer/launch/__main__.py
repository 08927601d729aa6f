"""`python -m trainer.launch`: see trainer.launch.launcher."""

import sys

from trainer.launch.launcher import main

sys.exit(main(sys.argv[1:]))
