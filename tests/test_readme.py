"""What the README and the pages of docs/ say is true: code runs, commands exist, links lead somewhere.

In a page, the python blocks run in order and share their variables. A text block right after a python block is what
that block prints. A block after an html comment `<!-- test: skip, why -->` is left out.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import streamnb
from streamnb.cli import app

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
# The page of the benchmarks tells of runs that take minutes.
PAGES = [README, *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "benchmarks.md")]


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line of its first line (1-based), and what stands before it."""

    language: str
    text: str
    line: int
    skipped: bool
    follows: int | None  # the block right before, with nothing but blank lines between


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        between = text[end : match.start()].strip()
        last_line = between.splitlines()[-1] if between else ""
        line = text.count("\n", 0, match.start(2)) + 1
        skipped = re.fullmatch(r"<!-- test: skip, .+ -->", last_line) is not None
        found.append(Block(match[1], match[2], line, skipped, None if between or not found else len(found) - 1))
        end = match.end()
    return found


def section(page: Path, heading: str) -> str:
    """Return what stands under a heading, up to the next one of its level."""
    text = page.read_text(encoding="utf-8")
    return re.split(r"^## ", text.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The python blocks of a page run in order, and the text blocks after them are what they print."""
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {"__name__": page.stem}
    printed: dict[int, str] = {}
    for i, block in enumerate(blocks(page)):
        if block.skipped:
            continue
        if block.language == "python":
            # Blank lines before the code make the line of an error that of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as stdout:
                exec(code, variables)
            printed[i] = stdout.getvalue()
        elif block.language == "text" and block.follows in printed:
            assert printed[block.follows] == block.text, f"{page.name}, line {block.line}"
    assert printed, f"{page.name} has no code that is run"


def test_the_readme_shows_an_error() -> None:
    """The error on purpose stands in the README with its exact text, which the test above compares."""
    shown = [block for block in blocks(README) if block.language == "text" and block.follows is not None]
    assert any("did you mean 'petal_lenght'?" in block.text for block in shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file that is there."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


# The command line ---------------------------------------------------------------------------------------------------

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_in_the_readme(name: str) -> None:
    """The README's section on the command line shows each command."""
    assert re.search(rf"^streamnb {name}\b", section(README, "On the command line"), re.MULTILINE)


def command_lines() -> list[str]:
    """Return each `streamnb ...` line of the bash blocks of all pages."""
    lines = [
        line for page in PAGES for block in blocks(page) if block.language == "bash" for line in block.text.split("\n")
    ]
    return [line for line in lines if line.startswith("streamnb ")]


@pytest.mark.parametrize("line", command_lines())
def test_command_lines_parse(line: str) -> None:
    """Each option and argument of a line that the pages show exists; nothing is run."""
    _, name, *arguments = shlex.split(line, comments=True)
    COMMANDS[name].make_context(name, arguments)


def test_the_two_commands_of_setting_up() -> None:
    """The README opens with two commands, for the main job and for the tests, and the gate takes just these."""
    opening = README.read_text(encoding="utf-8").split("\n## ", 1)[0]
    shown = re.findall(r"^```bash\n(.*?)^```$", opening, re.MULTILINE | re.DOTALL)
    lines = README.read_text(encoding="utf-8").splitlines()
    wanted = re.findall(r"\$\(command_of '([^']+)'\)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert sorted(wanted) == ["-m pytest", "streamnb demo"]
    # `grep -m1 -F`: the first line that contains the words.
    taken = [next(line for line in lines if words in line) for words in wanted]
    assert sorted(f"{line}\n" for line in taken) == sorted(shown)


# Doctests -----------------------------------------------------------------------------------------------------------

# Beam has an environment of its own, and test_beam.py.
LEFT_OUT = {"streamnb.__main__", "streamnb.adapters.beam"}
MODULES = [m.name for m in pkgutil.walk_packages(streamnb.__path__, "streamnb.") if m.name not in LEFT_OUT]


@pytest.mark.parametrize("name", ["streamnb", *MODULES])
def test_examples_in_docstrings(name: str) -> None:
    """The examples in the docstrings of a module run and print what they show."""
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
