"""The page on the command line shows what its commands print."""

import re

import jax
import pytest

import pages

PAGE = pages.DOCS / "command-line.md"
SESSION = re.compile(r"^```console\n\$ unbayes (?P<command>.*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d\d-\d\dT\S+(?=:)")


@pytest.fixture
def folder_of_a_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.usefixtures("folder_of_a_user")
@pytest.mark.long
def test_the_page_shows_what_its_commands_print(unbayes):
    text = PAGE.read_text()
    list(pages.run(text, PAGE.name))
    sessions = list(SESSION.finditer(text))
    assert len(sessions) == 3
    for session in sessions:
        done = unbayes(*session["command"].split())
        assert done.exit_code == 0, done.output
        output, printed = DATE.sub("", session["output"]), DATE.sub("", done.stdout)
        assert pages.agree(output, printed), f"the page shows\n{output}\nbut it prints\n{printed}"
