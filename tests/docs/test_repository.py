"""What a public repository has besides its pages: a citation, an index, forms for reports."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT
from tests.support.docs.llms import LLMS, llms_txt
from tests.support.docs.pages import DOCS, anchors, links
from tests.support.docs.reference import commands

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
FIELDS = {"markdown", "input", "textarea", "dropdown", "checkboxes"}


def test_the_citation_has_what_its_schema_requires_and_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["type"] == "software"
    assert citation["title"] == "kp_batch"
    assert citation["authors"] == project["authors"]  # an entity has a name
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert citation["abstract"] == project["description"]
    assert {*citation["keywords"]} <= {*project["keywords"]}
    known = {"cff-version", "message", "type", "title", "abstract", "version", "license"}
    assert {*citation} <= known | {"authors", "keywords"}


def test_the_index_for_programs_is_the_map_of_the_pages() -> None:
    assert LLMS.read_text("utf-8") == llms_txt()
    assert len([*links(LLMS)]) > len([*DOCS.rglob("*.md")])
    for link in links(LLMS):
        path, _, place = link.partition("#")
        assert (ROOT / path).exists(), link
        assert not place or place in anchors(ROOT / path), link


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_is_one_that_github_shows(form: Path) -> None:
    read: dict[str, Any] = yaml.safe_load(form.read_text("utf-8"))
    assert {*read} == {"name", "description", "labels", "body"}
    asked = [field for field in read["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in read["body"]} <= FIELDS
    assert len({field["id"] for field in asked}) == len(asked) > 1
    assert all(field["attributes"]["label"] for field in asked)
    assert [field for field in asked if field.get("validations", {}).get("required")]
    there = {"--version", *re.findall(r"^## kp-batch (\S+)", "\n".join(commands()), re.MULTILINE)}
    assert {*re.findall(r"kp-batch ([a-z-]+)", form.read_text("utf-8"))} <= there


def test_a_report_of_a_fault_asks_for_what_explains_it() -> None:
    [form] = [path.read_text("utf-8") for path in FORMS if path.stem == "bug_report"]
    for asked in ("`kp-batch --version`", "Command", "Message", "`kp-batch settings --json`"):
        assert asked in form
