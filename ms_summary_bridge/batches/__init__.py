"""The batch lane: records of scalars alone, many at a time as arrays.

Scalars are most of all records of a long training. A record whose bytes have a shape that the general way has met
before differs from the last one of that shape in its wall time, its step and its floats alone, so a chunk of them is
found, checked, taken apart and put together again by numpy. Anything else goes the general way, record by record;
without this package every output is the same, only later (a property test says so).
"""
