"""Schemas as Spark has them and as Arrow has them.

An engine that speaks Spark's protocol without being Spark hands an Arrow schema where PySpark's documentation says
StructType: Sail does, and takes only some types as DDL. So a schema is given as a StructType and taken as either.
"""

import pyarrow as pa
from pyspark.sql.types import StructType


def struct_of(schema: StructType | pa.Schema) -> StructType:
    """A schema as PySpark's own type, with the nullability that it has."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema) if isinstance(schema, pa.Schema) else schema
