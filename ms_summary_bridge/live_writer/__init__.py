"""The process that writes while a training runs, and the way to it."""

from ms_summary_bridge.errors import check_recording as _check_recording

_check_recording("the monitor")
