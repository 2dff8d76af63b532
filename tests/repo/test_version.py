"""setup.cfg has the version; what else names it says the same."""

import configparser
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_version_is_the_same_everywhere() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    version = setup["metadata"]["version"]

    releases = re.findall(r"^## \[([\d.]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0][0] == version
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], str(cited["date-released"])) == releases[0]
