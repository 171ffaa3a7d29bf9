"""The files for releases and public hosting agree with the package and with each other."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")


def test_python_versions_that_were_not_tried_are_not_promised() -> None:
    prefix = "Programming Language :: Python :: "
    promised = {text.removeprefix(prefix) for text in PROJECT["classifiers"] if text.startswith(f"{prefix}3.")}
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (3\.\d+) \| (.+) \|$", page, re.MULTILINE))
    assert promised == {version for version, tried in rows.items() if "not tried" not in tried}
    tested = set(re.findall(r'"(3\.\d+)"', WORKFLOW))
    assert tested == set(rows)
    allowed = re.findall(r"continue-on-error: \$\{\{ matrix\.python == '(3\.\d+)' \}\}", WORKFLOW)
    assert set(allowed) == tested - promised


def test_the_workflow_calls_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    called = re.findall(r"run: make (\w+)", WORKFLOW)
    assert called
    assert set(called) <= set(targets)


def test_actions_are_pinned_to_commits_and_get_no_credentials() -> None:
    used = re.findall(r"uses: (.+)", WORKFLOW)
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    assert WORKFLOW.count("persist-credentials: false") == sum("/checkout@" in line for line in used)
    assert "\npermissions:\n  contents: read\n\n" in WORKFLOW


def test_the_source_archive_names_what_exists() -> None:
    """Tests read these files, so an archive that lacks one cannot be tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in included if not list(ROOT.glob(name.removeprefix("/")))] == []
    assert {"/.github", "/Dockerfile", "/docs", "/regard", "/tests", "/web"} <= set(included)


def test_the_dockerfile_copies_what_exists_and_is_sent() -> None:
    """Only what .dockerignore lets through reaches the build; without README and licence there is no wheel."""
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.+)$", docker, re.MULTILINE) for word in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    first, *others = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert first == "*"
    assert sorted(line.removeprefix("!") for line in others if line.startswith("!")) == sorted(copied)
    needed = {"pyproject.toml", "regard", PROJECT["readme"], *PROJECT["license-files"]}
    assert needed <= set(copied)
