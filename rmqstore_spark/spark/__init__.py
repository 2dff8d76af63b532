"""What Spark asks of a data source, answered by the packages beside it. The only one that imports pyspark."""
