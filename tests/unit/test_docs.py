"""Every error code and cause is explained, and the site builds without a dead link."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.patience import PATIENCE_S

from shardyard.api.errors import TokenUnreadable, WeakToken
from shardyard.api.http.problems import CODES
from shardyard.api.http.sweep_document import read_sweep
from shardyard.api.http.validation_errors import job_schema, read_spec
from shardyard.service.errors import DataFolderOpen, DataFolderUnusable, InvalidDatabase, InvalidSetting
from shardyard.service.policies.retry import INFRASTRUCTURE
from shardyard.service.queries.incidents import HAPPENED
from shardyard.workers.messages.event import KINDS
from shardyard.workers.tasks.checkpoint_task import REMEDIES

ROOT = Path(__file__).parents[2]
#: Codes that only the command line reports.
START = {
    error.code
    for error in (DataFolderOpen, DataFolderUnusable, InvalidDatabase, InvalidSetting, TokenUnreadable, WeakToken)
}
#: Where errors of the client and the command line are raised or printed, with their code.
RAISED = re.compile(
    r'(?:ApiError|super\(\).__init__|print_error)\(\s*"([a-z_]+)"|^    code = "([a-z_]+)"', re.MULTILINE
)


def test_every_code_and_cause_is_explained_once() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    explained = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    of_service = {"exception_repeated", "max_duration_exceeded", "secret_unavailable", "spec_unreadable"}
    files = [
        *(ROOT / "api" / "client").rglob("*.py"),
        *(ROOT / "api" / "cli").rglob("*.py"),
        ROOT / "api" / "errors.py",
    ]
    of_clients = {code for file in files for codes in RAISED.findall(file.read_text()) for code in codes if code}
    assert {"unreachable", "os_error", "port_taken"} <= of_clients
    assert sorted(explained) == sorted(
        {*CODES, *INFRASTRUCTURE, *HAPPENED, *REMEDIES, *START, *of_service, *of_clients}
    )


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_dead_link_breaks_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Index\n\n[dead](#nowhere), [dead](nowhere.md)\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(yaml.safe_dump({"INHERIT": str(ROOT / "mkdocs.yml"), "hooks": [], "nav": ["index.md"]}))
    done = build(config, tmp_path / "site")
    assert done.returncode != 0 and done.stderr.count("WARNING -") == 2


def test_make_docs_counts_warnings() -> None:
    """mkdocs' --quiet drops warnings before its strict mode counts them."""
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line]
    assert "quiet" not in line and " -q" not in line


def test_the_reference_names_every_field_of_a_spec(site: Path) -> None:
    page = (site / "reference" / "spec.html").read_text()
    for name in ("elastic_grace_s", "micro_batch", "resume_from", "label_smoothing", "straggler"):
        assert f"<code>{name}</code>" in page
    assert 'href="#trainlayout"' in page and 'id="trainlayout"' in page


def test_the_reference_names_every_field_of_a_command_apart_from_those_of_a_training(site: Path) -> None:
    page = (site / "reference" / "spec.html").read_text()
    of_command = page[page.index('id="a-job-that-runs-a-command"') :]
    for part in job_schema("command")["$defs"].values():
        for name in part["properties"] if part["title"] != "SecretUse" else ():
            assert f"<code>{name}</code>" in of_command, (part["title"], name)
    assert 'href="#policy-of-a-command"' in of_command and 'href="#policy"' not in of_command


def test_the_reference_names_every_kind_and_field_of_events(site: Path) -> None:
    page = (site / "reference" / "events.html").read_text()
    for kind, event_type in KINDS.items():
        assert f'<h2 id="{kind}"><code>{kind}</code>' in page
        for field in fields(event_type):
            assert f"<code>{field.name}</code>" in page, (kind, field.name)


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    """So the site works without a network."""
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//(?!127)', page.read_text()), page


def specs_on_pages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every whole spec on a page for users: a YAML block with a name and what to run."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for number, block in enumerate(
            re.findall(r"^```ya?ml\b[^\n]*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        ):
            document = yaml.safe_load(block)
            if isinstance(document, dict) and "name" in document and {"train", "command"} & document.keys():
                yield f"{page.stem}-{number}", document


@pytest.mark.parametrize("document", [pytest.param(one, id=name) for name, one in specs_on_pages()])
def test_specs_on_pages_are_specs(document: dict[str, Any]) -> None:
    spec = read_sweep(document)[1] if "sweep" in document else read_spec(document)
    assert spec.name == document["name"]
