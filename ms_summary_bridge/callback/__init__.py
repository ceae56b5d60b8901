"""The callback: live summaries for MindInsight and TensorBoard while a model trains."""

from ms_summary_bridge.errors import check_recording as _check_recording

_check_recording("SummaryBridge")
