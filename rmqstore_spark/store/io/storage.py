"""Locations of remote stores, and the options for reaching them. Secrets among the options are never shown.

The options have the names that object_store gives them (https://docs.rs/object_store: AmazonS3ConfigKey,
GoogleConfigKey, AzureConfigKey, ClientConfigKey), which are also those of environment variables. PyIceberg's names mean
the same.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from rmqstore_spark.errors import OptionError, nearest, quoted

S3, GCS, AZURE, HDFS = "s3", "gs", "azure", "hdfs"
_KINDS = {"s3": S3, "s3a": S3, "s3n": S3, "gs": GCS, "abfs": AZURE, "abfss": AZURE, "hdfs": HDFS}
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<bucket>[^/]*)/*(?P<key>.*?)/*", re.DOTALL)
_HIDDEN = "(hidden)"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # not allowed in an HTTP header or a URL


class StorageOption(NamedTuple):
    """An option of a remote store.

    Attributes:
        help: one line for people.
        aliases: other names of the option.
    """

    name: str
    help: str
    aliases: tuple[str, ...] = ()
    is_secret: bool = False


_TABLE = (
    StorageOption("aws_access_key_id", "S3: the access key", ("s3.access-key-id",)),
    StorageOption("aws_secret_access_key", "S3: the secret key", ("s3.secret-access-key",), is_secret=True),
    StorageOption("aws_session_token", "S3: the token of temporary keys", ("s3.session-token", "aws_token"), True),
    StorageOption("aws_region", "S3: the region", ("s3.region", "aws_default_region")),
    StorageOption("aws_endpoint_url", "S3: the URL of a server that is not Amazon's", ("s3.endpoint", "aws_endpoint")),
    StorageOption("aws_virtual_hosted_style_request", "S3: `true`: the bucket is part of the endpoint's host name"),
    StorageOption("aws_skip_signature", "S3: `true`: a public bucket, read without keys", ("s3.anonymous",)),
    StorageOption("aws_request_payer", "S3: `true`: the bucket lets the reader pay"),
    StorageOption("aws_role_arn", "S3: the role to assume with a web identity token", ("s3.role-arn",)),
    StorageOption("aws_role_session_name", "S3: the name of that session", ("s3.role-session-name",)),
    StorageOption("aws_web_identity_token_file", "S3: the file with that token"),
    StorageOption("google_service_account", "GCS: the file with a service account's key"),
    StorageOption("google_service_account_key", "GCS: that key itself, as JSON", is_secret=True),
    StorageOption("google_application_credentials", "GCS: the file with application default credentials"),
    StorageOption("google_bearer_token", "GCS: a bearer token", ("gcs.oauth2.token",), is_secret=True),
    StorageOption("google_base_url", "GCS: the URL of a server that is not Google's"),
    StorageOption("google_skip_signature", "GCS: `true`: a public bucket"),
    StorageOption("azure_storage_account_key", "Azure: the account's key", ("adls.account-key",), is_secret=True),
    StorageOption(
        "azure_storage_sas_token", "Azure: a shared access signature", ("adls.sas-token", "azure_storage_sas_key"), True
    ),
    StorageOption("azure_storage_token", "Azure: a bearer token", is_secret=True),
    StorageOption("azure_storage_tenant_id", "Azure: the tenant of a service principal", ("adls.tenant-id",)),
    StorageOption("azure_storage_client_id", "Azure: its id", ("adls.client-id",)),
    StorageOption("azure_storage_client_secret", "Azure: its secret", ("adls.client-secret",), is_secret=True),
    StorageOption("azure_federated_token_file", "Azure: the file with a workload identity's token"),
    StorageOption("azure_endpoint", "Azure: the URL of a server that is not Azure's"),
    StorageOption("azure_skip_signature", "Azure: `true`: a public container"),
    StorageOption("allow_http", "`true`: plain HTTP is good enough; so it is where an endpoint's URL says `http:`"),
    StorageOption("connect_timeout", "how long connecting may take, such as `5s`"),
    StorageOption("timeout", "how long one request may take, such as `60s`"),
    StorageOption("proxy_url", "the HTTP proxy to go through", ("s3.proxy-uri",), is_secret=True),
)

STORAGE_OPTIONS: dict[str, StorageOption] = {option.name: option for option in _TABLE}
_NAMES = {name: option for option in _TABLE for name in (option.name, *option.aliases)}
_PREFIXES = {"aws_": S3, "google_": GCS, "azure_": AZURE}
_FAMILIES = (*_PREFIXES, "s3.", "gcs.", "adls.", "secret.")
_SECRET = "secret."  # allowed before the name of any option
# The defaults of spark.redaction.regex and spark.sql.redaction.options.regex.
_HIDDEN_BY_SPARK = re.compile("secret|password|token|access[.]?key|url", re.IGNORECASE)


class Location(NamedTuple):
    """The parts of a remote store's URI.

    Attributes:
        kind: S3, GCS, AZURE or HDFS.
        bucket: or Azure's container; or HDFS' NameNode as host:port, its name service, or '' for the default one.
        account: Azure's storage account; else ''.
        key: of the object or the directory, without a slash at either end.
    """

    kind: str
    bucket: str
    account: str
    key: str


def scheme_of(path: str) -> str | None:
    """The scheme of a URI of a remote store that can be read, None where a path is none."""
    found = _URI.fullmatch(path)
    return found["scheme"] if found and found["scheme"].lower() in _KINDS else None


def location(path: str) -> Location:
    """The parts of a URI. There are no escapes: a key is taken literally.

    Raises:
        OptionError: the path is no URI of a remote store.
    """
    found = _URI.fullmatch(path)
    kind = _KINDS.get(found["scheme"].lower()) if found else None
    if found is None or kind is None:
        raise OptionError(f"{path}: expected a URI such as s3://bucket/path, found another path; give all of one kind")
    bucket, _, host = found["bucket"].partition("@")
    if host and kind != AZURE:
        expected = "a host only" if kind == HDFS else "the name of a bucket only"
        given = "as options or in the environment" if kind != HDFS else "in the environment, as HADOOP_USER_NAME"
        raise OptionError(
            f"{found['scheme']}://{_HIDDEN}@{host}/{found['key']}: expected {expected}, found something before an "
            f"'@'; credentials are given {given}"
        )
    if (kind != HDFS and not bucket) or (kind == AZURE and not host):
        expected = "container@account.dfs.core.windows.net" if kind == AZURE else "the name of a bucket"
        raise OptionError(f"{path}: expected {expected} after {found['scheme']}://, found {found['bucket']!r}")
    return Location(kind, bucket, host.partition(".")[0], found["key"])


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
TIME = re.compile(r"([0-9]+) *(ms|s|m)")


def seconds(name: str, text: str | None, default: float) -> float:
    """The seconds of an option that is a time such as `60s`.

    Raises:
        OptionError: the text is no such time. The text is not shown, as it may be a misplaced secret.
    """
    if text is None:
        return default
    found = TIME.fullmatch(text)
    if found is None or not int(found[1]):
        raise OptionError(f"option {name!r}: expected a time such as 60s, found another text")
    return int(found[1]) * _SECONDS[found[2]]


def plain_uri(path: str) -> str:
    """A remote store's URI without slashes at its end."""
    return path.rstrip("/")


class Storage:
    """How remote stores are reached: by the options, and where these are silent, by the environment.

    A Storage is pickled with its secrets, and shows them nowhere.

    Args:
        given: values by the names of STORAGE_OPTIONS.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = dict(sorted((given or {}).items()))

    def __repr__(self) -> str:
        return f"Storage({', '.join(self._given)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self._given == other._given

    def __hash__(self) -> int:
        return hash(tuple(self._given.items()))

    def of(self, kind: str) -> dict[str, str]:
        """The options for a kind of storage, and those for all kinds."""
        return {name: value for name, value in self._given.items() if _kind_of(name) in (None, kind)}

    def without_secrets(self) -> "Storage":
        """The options that are no secrets, nor half of a pair with one."""
        return Storage({name: value for name, value in self._given.items() if not _is_credential(name)})

    def with_options(self, given: Mapping[str, str]) -> "Storage":
        """These options and others, of which the latter count where both name one.

        Raises:
            OptionError: one of the others is no option of a storage, or is given twice.
        """
        storage, others = taken_out(given)
        if others:
            raise OptionError(f"option {quoted(min(others))} does not say how storage is reached; remove it")
        return Storage({**self._given, **storage._given})

    def hidden(self, text: str) -> str:
        """A foreign text with all known secrets removed."""
        for name, value in self._given.items():
            if STORAGE_OPTIONS[name].is_secret and value:
                text = text.replace(value, _HIDDEN)
        return text


def refuse_shown(given: Mapping[str, str]) -> None:
    """Refuse options with secrets that Spark would show, as Spark recognizes secrets by their names.

    Raises:
        OptionError: there is such an option.
    """
    for name in given:
        option = _NAMES.get(name.lower())
        if option is not None and option.is_secret and not _HIDDEN_BY_SPARK.search(name):
            raise OptionError(
                f"option {name!r}: Spark would show its value in plans and event logs; name it '{_SECRET}{name}', of "
                "which Spark hides the value, or set the environment variable of that name on driver and executors"
            )


def is_storage_option(name: str) -> bool:
    """Does an option say how storage is reached?"""
    return name.lower().startswith(_FAMILIES) or name.lower() in _NAMES


def is_secret(name: str) -> bool:
    """Is the value of an option of this name a secret?"""
    main = storage_name(name)
    return main is not None and STORAGE_OPTIONS[main].is_secret


def storage_name(name: str) -> str | None:
    """The main name of an option that says how storage is reached; None for any other option."""
    option = _NAMES.get(name.lower().removeprefix(_SECRET))
    return option.name if option is not None else None


def taken_out(given: Mapping[str, str]) -> tuple[Storage, dict[str, str]]:
    """The storage that options name, and the other options. Names count in any case.

    Raises:
        OptionError: an option looks like a storage option but is unknown, or is given twice.
    """
    storage: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, text in given.items():
        option = _NAMES.get(name.lower().removeprefix(_SECRET))
        if option is not None:
            if option.name in storage:
                raise OptionError(f"option {option.name!r} is given twice, as {quoted(name)} the second time")
            _refuse_control(f"option {name!r}", text)
            storage[option.name] = text
        elif name.lower().startswith(_FAMILIES):
            raise OptionError(
                f"unknown option {quoted(name)}.{nearest(name, list(_NAMES))} Those of storage are {', '.join(_NAMES)}"
            )
        else:
            others[name] = text
    return Storage(storage), others


def refuse_control_in(environment: Mapping[str, str]) -> None:
    """Refuse an environment whose variables for storage have control characters.

    Raises:
        OptionError: a variable has one. The text is not shown.
    """
    for name, text in environment.items():
        if name.lower().startswith(tuple(_PREFIXES)):
            _refuse_control(f"environment variable {name}", text)


def _refuse_control(what: str, text: str) -> None:
    if _CONTROL.search(text):
        raise OptionError(
            f"{what}: expected a text without control characters, found one in it; a file's end of line does not "
            "belong to it"
        )


def _is_credential(name: str) -> bool:
    return STORAGE_OPTIONS[name].is_secret or name == "aws_access_key_id"


def _kind_of(name: str) -> str | None:
    """The kind of storage that an option is for; None: all."""
    return next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), None)
