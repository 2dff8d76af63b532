"""setup.cfg has the version, and those of the tools; what else names them says the same."""

import configparser
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def _setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


def test_version_is_the_same_everywhere() -> None:
    version = _setup()["metadata"]["version"]

    releases = re.findall(r"^## \[([\d.]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0][0] == version
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], str(cited["date-released"])) == releases[0]


def test_tools_are_pinned() -> None:
    """No release of a tool changes what is built or found: only a commit does. And a build is the same with and without
    an environment of its own."""
    extras = {name: text.split("\n") for name, text in _setup()["options.extras_require"].items()}
    pinned = {
        name: sorted(line for line in extras[name] if line and not line.startswith("#"))
        for name in ("build", "lint", "wheel")
    }
    for name, lines in pinned.items():
        assert lines, name
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), lines
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert sorted(project["build-system"]["requires"]) == pinned["build"]
