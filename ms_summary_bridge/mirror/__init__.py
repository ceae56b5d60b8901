"""Mirror: a logdir as a viewer should see it, with what the viewer cannot read converted and all else as it is.

A child process does the work (`process`), in rounds (`mirror`), directory by directory (`directory`).

TensorBoard is given one path, `Home.logdir`. It is a symbolic link: to the logdir itself while nothing of MindSpore's
is below it, and to a tree of links (`overlay`) once there is. A link is replaced in one step, so a reader sees the one
or the other, and every path below keeps its name. MindInsight is given `Home.base`, where each run has a directory
(`base`).

Why a mirror for TensorBoard, and not a data provider (`--grpc_data_provider`), which works too: a provider takes the
place of the whole logdir, so it would have to read TensorFlow's runs as well, with the sampling, the restarts and the
plugins of TensorBoard, twice, since there are two loaders; and a fault in it would take every run away. Here
TensorBoard reads all files itself, at their own speed, and what it reads of TensorFlow's are the files themselves. When
the mirror fails, the link leads back to the logdir. Measured on TensorBoard 2.21: both loaders follow links to
directories and files, go on reading a file that grows behind a link, and notice neither that the link to their logdir
is replaced.
"""
