"""`python -m steelyard`.

Python puts the current folder first in its search path here, where a file json.py would take the place of
Python's own. It is taken out before anything else is imported. Python itself has imported a few modules by
then; with `python -P -m steelyard`, or the command `steelyard`, the folder is not searched at all.
"""

import os
import sys

if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]

from steelyard.cli import main

main()
