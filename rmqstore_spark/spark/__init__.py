"""Spark's data source interface, on top of the rooms below. Only this room imports pyspark.

datasource is the entry. reader, stream_reader and table_reader read, writer and stream_writer write; pushdown makes a
selection of Spark's filters, hadoop takes storage options from Spark's configuration, worker wraps every call of Spark.
"""
