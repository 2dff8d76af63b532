"""The store format, read only: one module for each structure on disk. Knows numpy and pyarrow, never Spark."""
