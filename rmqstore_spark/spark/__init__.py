"""Spark's data source interface, on top of the rooms below. Only this room imports pyspark.

datasource is the entry, functions has the table functions of SQL. reader, stream_reader and table_reader read, writer
and stream_writer write; pushdown makes a selection of Spark's filters, hadoop takes storage options from Spark's
configuration, schema makes PySpark's schemas of Arrow's, worker wraps every call of Spark.
"""
