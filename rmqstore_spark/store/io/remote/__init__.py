"""Files in object storage and HDFS.

files has the facade, `RemoteFiles`, and file an open object, `RemoteFile`. Behind them: buckets (which client serves a
path), listing (what there is, in few requests), ranges (one range of a pinned object), pages (the cache of what is read
here and there), spans (which requests serve many small reads; pure arithmetic), tries (what is asked again, and how
often). objects is the only module that knows obstore, hdfs the only one that knows hdfs-native.
"""
