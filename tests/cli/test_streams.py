"""Where a standard stream is closed, full or for ASCII only, or an argument is no text, a command says so in one line
and with its exit code; it never fails in silence."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from oracle import stores
from support.command import COMMAND, nothing_found, run, run_without_output

TOPIC = "ascii-only"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("streams") / "склад"
    builder = stores.StoreBuilder(root, index=True)
    for number in range(3):
        builder.append(topic=TOPIC, keys=f"ключ-{number}", body="тело".encode())
    builder.close()
    return root


def shell(line: str, *arguments: str | bytes | Path, **environment: str) -> tuple[int, str, str]:
    """The exit code of `line` in a shell, where "$@" is the command; and what came out."""
    words = [os.fsencode(each) for each in ["sh", "-c", line, "sh", *COMMAND, *arguments]]
    ran = subprocess.run(words, capture_output=True, check=False, env={**os.environ, **environment}, timeout=300)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


WRITING = [["topics"], ["messages", "--format", "json"], ["messages", "--format", "parquet"], ["check"], ["show"]]


@pytest.mark.parametrize("command", [*WRITING, ["--help"], ["get", "--key", "ключ-1"]], ids=" ".join)
@pytest.mark.parametrize(("stream", "why"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")])
def test_what_cannot_be_written_is_one_line(command: list[str], stream: str, why: str, store: Path) -> None:
    """One command as a shell starts it, the others without a Python of their own."""
    name, *options = command
    arguments: list[str | Path] = [name, *([] if name == "--help" else [store]), *options]
    code, _, err = run_without_output(*arguments, is_closed=stream == ">&-")
    if command == WRITING[1]:
        assert shell(f'"$@" {stream}', *arguments) == (code, "", err)
    assert (code, err) == (2, f"rmqstore: standard output: cannot be written: {why}; send it elsewhere\n")


@pytest.mark.slow
@pytest.mark.long
def test_nothing_to_write_needs_no_output(store: Path, tmp_path: Path) -> None:
    """And no file takes the place of a closed one."""
    output = tmp_path / "x.json"
    code, _, err = shell('"$@" >&- <&-', "messages", store, "--output", output)
    assert (code, err) == (0, f"{output} has 3 rows\n")
    assert output.read_text().count("\n") == 3
    assert shell('"$@" >&-', "get", store, "--key", "x") == (4, "", nothing_found("key 'x'", store) + "\n")
    assert shell('"$@" >&- 2>&- <&-', "copy", store, tmp_path / "new") == (0, "", "")
    assert shell('"$@"', "check", tmp_path / "new")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full"])
def test_without_standard_error_the_code_and_the_rows_are_the_same(stream: str, store: Path) -> None:
    """Nothing of it comes among the rows."""
    assert shell(f'"$@" {stream}', "get", store, "--key", "x") == (4, "", "")
    assert shell(f'"$@" {stream}', "messages", "/nowhere") == (2, "", "")
    assert shell(f'"$@" {stream}', "messages", store, "--format", "csv", "--columns", "topic") == (
        0,
        f"topic\n{f'{TOPIC}{chr(10)}' * 3}",
        "",
    )


def test_a_reader_that_has_gone_is_no_error(store: Path) -> None:
    code, _, err = shell('("$@"; echo code $? >&2) | true', "messages", store, "--format", "json")
    assert (code, err) == (0, "code 0\n")
    code, _, err = shell('("$@"; echo code $? >&3) 3>&2 2>&1 | true', "get", store, "--key", "x")
    assert (code, err) == (0, "code 4\n")


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["-I"]])
def test_in_a_locale_of_ascii(options: list[str], store: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    line = f'python="$1"; shift; exec "$python" {" ".join(options)} "$@"'
    commands: list[list[str | Path]] = [["topics", store], ["show", store], ["messages", store, "--key", "ключ-1"]]
    for arguments in commands:
        expected = run(*arguments)
        assert expected.code == 0
        assert shell(line, *arguments, **ascii_only) == expected
    assert "тело" in expected.out
    told = nothing_found("key 'нет'", store)
    assert shell(line, "messages", store, "--key", "нет", **ascii_only)[::2] == (4, f"{told}\n")


def test_an_output_of_ascii_gets_no_other_characters(store: Path) -> None:
    code, out, err = shell('"$@"', "topics", store, "--columns", "topic", PYTHONIOENCODING="ascii")
    assert (code, out, err) == (0, f"topic\n----------\n{TOPIC}\n", "")
    code, out, _ = shell('"$@"', "messages", store, "--columns", "keys", "-n", "1", PYTHONIOENCODING="ascii")
    assert (code, out.splitlines()[-1]) == (0, "\\u043a\\u043b\\u044e\\u0447-0")


NO_TEXT = b"\xff"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            [b"messages", b"{store}", b"--key", NO_TEXT],
            r"option 'key': expected text in UTF-8, found '\udcff'",
        ),
        ([b"get", b"{store}", NO_TEXT], r"option 'msgId': expected text in UTF-8, found '\udcff'"),
        ([b"history", b"{store}", NO_TEXT], r"option 'key': expected text in UTF-8, found '\udcff'"),
        ([b"messages", b"{store}", b"--topic", NO_TEXT], r"option 'subscribe': expected text in UTF-8"),
        ([b"messages", b"{store}", b"--columns", NO_TEXT], r"option 'columns': expected text in UTF-8"),
        ([b"messages", b"{store}", b"--assign", rb'{"\udcff": [0]}'], r"option 'assign': expected JSON such as"),
        ([b"messages", b"{none}"], r"in UTF-8"),
        ([b"segments", b"{none}"], r"in UTF-8"),
        ([b"show", b"{none}", b"{store}"], r"in UTF-8"),
        ([b"messages", b"{none}/../*"], r"in UTF-8"),
        ([b"copy", b"{store}", b"{none}/new"], r"in UTF-8"),
        ([b"rebuild", b"{none}"], r"in UTF-8"),
        ([b"messages", b"{store}", b"--storePathCommitLog", b"{none}"], r"in UTF-8"),
        ([NO_TEXT], r"there is no command '\udcff'; see rmqstore --help"),
        ([b"messages", b"--" + NO_TEXT], r"there is no option '--\udcff'; see rmqstore messages --help"),
        ([b"messages", b"{store}", b"--format", NO_TEXT], r"'\udcff' is not one of"),
    ],
)
def test_arguments_that_are_no_text(arguments: list[bytes], told: str, store: Path, tmp_path: Path) -> None:
    none = os.path.join(os.fsencode(tmp_path), NO_TEXT)
    shutil.copytree(store, os.fsdecode(none))
    given = [each.replace(b"{store}", os.fsencode(store)).replace(b"{none}", none) for each in arguments]
    code, out, err = run(*map(os.fsdecode, given))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_a_file_whose_name_is_no_text_is_written(store: Path, tmp_path: Path) -> None:
    output = os.path.join(os.fsencode(tmp_path), NO_TEXT + b".csv")
    code, _, err = shell('"$@"', "messages", store, "--output", output)
    assert (code, err.count("\n")) == (0, 1)
    assert os.listdir(os.fsencode(tmp_path)) == [NO_TEXT + b".csv"]
