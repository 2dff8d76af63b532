"""What Spark asks of a data source, answered by the rooms below. The only room that imports pyspark."""
