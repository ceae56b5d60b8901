"""`python -m ms_summary_bridge` is the command line."""

import sys

from ms_summary_bridge.cli import main

sys.exit(main())
