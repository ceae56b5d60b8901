"""A script without a main guard, whose processes are started by spawn. Usage: no_guard.py DIRECTORY."""

import multiprocessing
import sys

from small import train, vector_model

from ms_summary_bridge import SummaryBridge

multiprocessing.set_start_method("spawn")
bridge = SummaryBridge(sys.argv[1], collect_freq=1)
train(vector_model(), 3, bridge)
bridge.add_scalar("after the training", 1.5, 4)  # and never closed
