"""What Spark asks of a data source, answered by the rooms below. The only room that imports pyspark.

datasource is the entry. reader, stream_reader and table_reader read, writer and stream_writer write; pushdown makes a
selection of Spark's filters, hadoop takes storage options from Spark's configuration, worker is what a task does first.
"""
