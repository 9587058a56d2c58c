"""Commands that other packages add to the command line."""

import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from unbayes.cli.plugins import GROUP, add_plugins

RUNNER = CliRunner()


def _invoke(name, arguments=()):
    """Call a command of the module `plugin`, on a command line that has nothing else."""
    app = typer.Typer()
    app.callback()(lambda: None)
    add_plugins(app, [EntryPoint(name, f"plugin:{name}", GROUP)])
    return RUNNER.invoke(app, [name, *arguments])


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Write a module `plugin` that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text):
        monkeypatch.delitem(sys.modules, "plugin", raising=False)
        (tmp_path / "plugin.py").write_text(text)

    yield write
    sys.modules.pop("plugin", None)


def test_a_plugin_is_a_command_with_its_options(plugin):
    plugin("def greet(name: str, loud: bool = False):\n    print(name.upper() if loud else name)\n")
    assert _invoke("greet", ["world"]).output == "world\n"
    assert _invoke("greet", ["world", "--loud"]).output == "WORLD\n"
    assert _invoke("greet").exit_code == 2


def test_a_missing_extra_is_named_when_the_command_runs(plugin):
    plugin("REQUIREMENT = 'shop[extra]'\ndef buy():\n    import no_such_package.part\n")
    refused = _invoke("buy")
    assert refused.exit_code == 1
    assert refused.output == "buy needs pip install 'shop[extra]' (missing: no_such_package)\n"


def test_a_plugin_that_cannot_be_imported_spoils_no_other_command(plugin):
    plugin("import no_such_package\ndef buy(): pass\n")
    refused = _invoke("buy")
    assert refused.exit_code == 1
    assert refused.output == "buy needs pip install 'plugin' (missing: no_such_package)\n"


def test_a_module_that_the_product_lacks_is_a_bug(plugin):
    plugin("def buy():\n    import unbayes.no_such_module\n")
    assert isinstance(_invoke("buy").exception, ModuleNotFoundError)
