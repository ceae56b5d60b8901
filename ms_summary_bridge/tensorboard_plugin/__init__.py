"""The plugin by which a plain `tensorboard --logdir DIR` shows MindSpore's summary directories below DIR.

The one place that imports tensorboard.

TensorBoard finds it by the entry point group `tensorboard_plugins`, and is shown a mirror of DIR; see
`ms_summary_bridge.mirror` for how, and why no data provider. What TensorBoard's dashboards have no place for is on a
page of our own (`plugin`), which is read from DIR itself.
"""
