"""Files in object storage and HDFS.

files has the facade, `RemoteFiles`, and file an open object, `RemoteFile`. Behind them: buckets (which client serves a
path), listing (directories and objects, in few requests), paged_list (which pages of a list come side by side; pure
logic), ranges (one range of a pinned object), pages (the cache of scattered small reads), spans (which requests serve
many small reads; pure arithmetic), tries (which requests are tried again, and how often). Only objects knows obstore,
and only hdfs knows hdfs-native.
"""
