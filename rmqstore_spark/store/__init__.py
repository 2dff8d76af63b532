"""The store format: one module for each structure on disk. Knows numpy and pyarrow, never Spark.

Only the package `write` in it changes anything on disk.
"""
