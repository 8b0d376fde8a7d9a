"""What `raf` costs, measured beside the floor of the same machine in the same run.

`python -m benchmarks` prints a table and then one line of JSON with machine and versions.  One file
per concern; each has `measure(size)` and returns rows.
"""
