"""Verify: the proof that a viewer shows all of a log in another."""

from ms_summary_bridge.convert.verify.comparison import verify_logdirs
from ms_summary_bridge.convert.verify.report import Difference, RunComparison, VerifyReport

__all__ = ["Difference", "RunComparison", "VerifyReport", "verify_logdirs"]
