"""Viewers: either format in either viewer, by one command that makes, starts, watches and stops what it needs.

Nothing is printed here: who calls is told, and says it.

TensorBoard is given the logdir itself: our plugin shows it MindSpore's runs. MindInsight lives in an environment of its
own (`environment`), and is given a directory in the cache, in which TensorBoard's runs are converted and MindSpore's
are linked (`summary_base`). Both run under a guard (`guard`), which ends them when this process is gone.
"""
