"""The store format: one module for each structure on disk. Knows numpy and pyarrow, never Spark, never writes."""
