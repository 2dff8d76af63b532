"""The S3 settings of a Spark session's Hadoop configuration, as our options."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from rmqstore_spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "fs.s3a."
_OPTIONS = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint": "aws_endpoint_url",
    "endpoint.region": "aws_region",
}
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def storage_options(spark: "SparkSession", bucket: str | None = None) -> dict[str, str]:
    """rmqstore_spark.storage_options()."""
    context = getattr(spark, "_jsc", None)
    if context is None:
        raise OptionError(
            "storage_options: a session of Spark Connect does not show its Hadoop configuration; give the options"
        )
    configuration = context.hadoopConfiguration()
    names = [*_OPTIONS, "path.style.access", "connection.ssl.enabled", "aws.credentials.provider"]
    found: dict[str, str] = {}
    for name in names:
        for key in (f"{_PREFIX}{name}", f"{_PREFIX}bucket.{bucket}.{name}")[: 2 if bucket else 1]:
            value = cast(Any, configuration).get(key)
            if value:
                found[name] = str(value)
    return options_of(found)


def options_of(found: Mapping[str, str]) -> dict[str, str]:
    """Our options for Hadoop's settings.

    Args:
        found: the settings by their names after `fs.s3a.`.
    """
    options = {option: found[name] for name, option in _OPTIONS.items() if name in found}
    endpoint = options.get("aws_endpoint_url")
    if endpoint is not None and "://" not in endpoint:
        scheme = "http" if found.get("connection.ssl.enabled", "").lower() == "false" else "https"
        options["aws_endpoint_url"] = f"{scheme}://{endpoint}"
    if found.get("path.style.access", "").lower() == "false" and endpoint is not None:
        options["aws_virtual_hosted_style_request"] = "true"
    if found.get("aws.credentials.provider", "").strip().endswith(_ANONYMOUS):
        options["aws_skip_signature"] = "true"
    return options
