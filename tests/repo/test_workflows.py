"""The public CI and pre-commit call targets of the Makefile, with no more rights than they need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
CODE = re.DOTALL | re.MULTILINE
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def load(path: Path) -> dict[Any, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def made(command: str) -> list[str]:
    return re.findall(r"\bmake (?:--no-print-directory )?([a-z0-9-]+)", command)


def test_there_are_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "nightly", "release", "wheels"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_keeps_to_the_rules(path: Path) -> None:
    workflow = load(path)
    assert True in workflow  # `on`, which YAML 1.1 takes for a word for true
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 90, name
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(workflow["jobs"]), name
    for step in steps(workflow):
        if "uses" in step:
            # A tag or a branch may be moved to other code.
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]


def test_an_action_is_the_same_one_everywhere() -> None:
    used = re.findall(
        r"uses: ([\w/-]+)@([0-9a-f]{40})  # (v[\d.]+)$", "".join(map(Path.read_text, WORKFLOWS)), re.MULTILINE
    )
    assert len({name for name, *_ in used}) == len(set(used)) == 6


def test_workflows_call_targets_that_exist() -> None:
    called = {target for path in WORKFLOWS for step in steps(load(path)) for target in made(step.get("run", ""))}
    assert {"lint", "docs", "test-fast", "test", "sanitize", "interop", "wheel", "sdist", "try-wheel"} <= called
    assert called <= TARGETS


def test_pages_name_targets_that_exist() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "benchmarks" / "README.md"]
    code = "\n".join(found for page in pages for found in re.findall(r"^```.*?^```$|`[^`\n]+`", page.read_text(), CODE))
    named = set(re.findall(r"^`?make ([a-z0-9-]+)", code, re.MULTILINE))
    assert {"demo", "test", "docs", "wheel", "bench"} <= named
    assert named <= TARGETS


def test_public_ci_calls_what_must_pass_before_a_merge() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    before_a_merge = set(re.findall(r"^(?:alone|beside) \d+ ([a-z0-9-]+)(?: .*)?$", run, re.MULTILINE))
    assert before_a_merge == {"lint", "docs", "test", "test-long", "wheel", "sanitize", "fuzz", "test-spark41"}
    assert before_a_merge <= {
        target
        for step in steps(load(ROOT / ".github" / "workflows" / "ci.yml"))
        for target in made(step.get("run", ""))
    }


def test_only_the_release_may_write() -> None:
    allowed = {
        (path.stem, name): job["permissions"]
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
        if "permissions" in job
    }
    assert allowed == {("release", "pypi"): {"id-token": "write"}, ("release", "github"): {"contents": "write"}}


def test_pre_commit_runs_lint() -> None:
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    (hook,) = repository["hooks"]
    assert made(hook["entry"]) == ["lint"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_form_is_read(path: Path) -> None:
    form = load(path)
    if path.stem == "config":
        assert set(form) == {"blank_issues_enabled"}
        return
    assert form["name"]
    assert form["description"]
    for part in form["body"]:
        assert part["type"] in {"markdown", "textarea"}
        assert part["attributes"].get("label" if part["type"] == "textarea" else "value")
