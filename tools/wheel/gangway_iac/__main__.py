"""`python -m gangway_iac`: the `gangway` command; `python -m gangway_iac -m trainer ...`: a module of Gangway's, as
`python -m` runs one.
"""

import sys
from runpy import run_module

from gangway_iac import add_to_path, main

if sys.argv[1:2] != ["-m"] or len(sys.argv) < 3:
    main()
add_to_path()
del sys.argv[:2]
run_module(sys.argv[0], run_name="__main__", alter_sys=True)
