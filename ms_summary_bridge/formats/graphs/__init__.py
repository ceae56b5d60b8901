"""Graphs: MindSpore's ANF graphs and TensorFlow's GraphDefs, drawn as each other and restored."""
