"""Records a whole training from one section of a file: values, console lines, a journal and warnings.

Layer: errors, callback < **monitor**.
"""
