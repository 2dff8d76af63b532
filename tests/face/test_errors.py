"""Our errors are where users import them from, reach the driver as they left the worker, and name the nearest name."""

from __future__ import annotations

import difflib
import importlib
import pickle
import pkgutil

import pytest

import rmqstore_spark
from rmqstore_spark import RmqStoreError
from rmqstore_spark.errors import nearest


def _classes(base: type[RmqStoreError]) -> list[type[RmqStoreError]]:
    return [base, *(found for below in base.__subclasses__() for found in _classes(below))]


for _module in pkgutil.walk_packages(rmqstore_spark.__path__, "rmqstore_spark."):
    importlib.import_module(_module.name)
ERRORS = [kind for kind in _classes(RmqStoreError) if kind.__module__.startswith("rmqstore_spark")]


def test_all_are_found() -> None:
    names = {"RmqStoreError", "OptionError", "NotAStoreError", "DamagedStoreError", "BadRowError", "StorageError"}
    assert {kind.__name__ for kind in ERRORS} >= names


@pytest.mark.parametrize("kind", ERRORS)
def test_they_are_where_they_say(kind: type[RmqStoreError]) -> None:
    assert getattr(importlib.import_module(kind.__module__), kind.__name__) is kind
    assert kind.__module__ != "rmqstore_spark" or kind.__name__ in rmqstore_spark.__all__


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_they_pickle(kind: type[RmqStoreError], protocol: int) -> None:
    text = "partition 1, row 20: column 'käse': expected a binary, found null"
    again = pickle.loads(pickle.dumps(kind(text), protocol))
    assert type(again) is kind
    assert str(again) == text


@pytest.mark.parametrize("typo", ["Oders-12345", "orders-1234", "Orders_12345", "xOrders-12345", "Orders-12345x"])
def test_nearest_of_many_names_compares_few(typo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison takes its time, and a store may have 100,000 topics."""
    compared = []
    get_close_matches = difflib.get_close_matches

    def counted(name: str, names: list[str], n: int, cutoff: float) -> list[str]:
        compared.append(len(names))
        return get_close_matches(name, names, n, cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    many = (
        [f"Payments-{number}" for number in range(3000)] + ["Orders-12345"] + [f"T{number}" for number in range(3000)]
    )
    assert nearest(typo, many) == " Did you mean 'Orders-12345'?"
    assert compared[0] <= 500
    assert nearest("zzz", many) == ""


@pytest.mark.parametrize(("name", "known"), [("lag", ["salvage", "show"]), ("Nope", ["Popped", "Plain"])])
def test_what_has_little_in_common_is_not_meant(name: str, known: list[str]) -> None:
    assert nearest(name, known) == ""
