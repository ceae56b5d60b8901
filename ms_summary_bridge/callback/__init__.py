"""The callback: live summaries for MindInsight and TensorBoard while a model trains."""
