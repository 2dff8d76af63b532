"""Files of stores: listed, opened read-only, read by position, counted. Bytes only; nothing here knows a format.

`Files` is the seam under all reading: files has the local one, remote has that of object storage and HDFS, and tests
hand in others. `OpenFile` is one open file, `Prices` says what a request costs. schedule runs independent requests side
by side, read_ahead fetches what is read from end to end before it is needed, guest leaves memory and time to a broker
on the same disk, storage knows the options that say how remote stores are reached.
"""
