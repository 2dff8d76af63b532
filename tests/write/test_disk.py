"""What stands at a name that a write needs is refused, and named, also where it came between two looks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.write.fs.disk import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with Tree(str(tmp_path)) as tree:
        yield tree


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/", path)], ids=["a pipe", "a link"])
def test_a_second_name_only_for_a_file(tmp_path: Path, tree: Tree, make: Callable[[str], None]) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    make(source)
    with pytest.raises(RmqStoreError, match="source: expected a regular file, found another thing"):
        tree.link(source, target)
    os.unlink(source)
    os.unlink(target)
    Path(source).write_bytes(b"x")
    tree.link(source, target)
    assert os.path.samefile(source, target)


@pytest.mark.parametrize("make_directory", [Tree.make_directory, Tree.make_private])
def test_a_directory_where_something_else_stands(
    tmp_path: Path, tree: Tree, make_directory: Callable[[Tree, str], None]
) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"")
    with pytest.raises(RmqStoreError, match="config: expected a directory of the store's own, found a file"):
        make_directory(tree, str(path))
    path.unlink()
    make_directory(tree, str(path))
    make_directory(tree, str(path))
    assert path.is_dir()
