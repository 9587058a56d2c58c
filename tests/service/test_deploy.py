"""What the service is deployed with says what the command line understands, and is what linters ask for."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from unbayes.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
UNIT = DEPLOY / "unbayes.service"
PAGES = sorted((ROOT / "docs").glob("service*.md"))
# Exposure by systemd's own count, of ten; what has no sandbox is above nine.
MOST_EXPOSED = 2.0


def program(name):
    """A program beside this Python, or anywhere."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def require_understood(words):
    """Refuse a command that `unbayes` would not understand."""
    command, context = typer.main.get_command(app), None
    name, *rest = ["unbayes", *words]
    while True:
        context = command.make_context(name, list(rest), parent=context)
        if not hasattr(command, "commands"):
            return
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def has_compose():
    return shutil.which("docker") is not None and run("docker", "compose", "version").returncode == 0


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load(COMPOSE.read_text())


@pytest.mark.skipif(program("hadolint") is None, reason="needs hadolint, which the extra lint brings")
def test_the_dockerfile_is_linted():
    done = run(program("hadolint"), "--format", "json", str(DEPLOY / "Dockerfile"))
    assert json.loads(done.stdout) == []


def test_the_image_is_small_and_harmless():
    text = (DEPLOY / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(stages) == 2
    assert all(re.fullmatch(r"python:3\.\d+-slim-\w+", stage) for stage in stages)
    user = int(re.search(r"^USER (\d+)$", text, re.MULTILINE)[1])
    assert f"--uid {user} " in text
    assert text.index("\nUSER") < text.index("\nENTRYPOINT")
    assert re.search(r"^HEALTHCHECK .*", text, re.MULTILINE)
    assert "/ready" in text
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )?(.*) \S+$", text, re.MULTILINE)
    files = [name for line in copied for name in line.split()]
    assert all((ROOT / name).exists() for name in files)
    known = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert known[1] == "*"
    assert {f"!{name.removeprefix('./')}" for name in files} <= set(known)
    require_understood(json.loads(re.search(r"^CMD (\[\"serve.*\])$", text, re.MULTILINE)[1]))


def test_the_entry_hands_over_the_password(tmp_path):
    (tmp_path / "unbayes").write_text('#!/bin/sh\nprintf "%s|" "$PGPASSWORD" "$@"\n')
    (tmp_path / "unbayes").chmod(0o755)
    (tmp_path / "secret").write_text("word one\n")
    script = (DEPLOY / "entrypoint.sh").read_text()
    script = script.replace("/run/secrets/database_password", str(tmp_path / "secret"))
    (tmp_path / "entry").write_text(script)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = ["/bin/sh", str(tmp_path / "entry"), "token", "list all"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "word one|token|list all|"


def test_compose_runs_two_instances_and_one_worker(compose):
    services = compose["services"]
    commands = {name: each.get("command") for name, each in services.items()}
    instances = [name for name, words in commands.items() if words and words[0] == "serve"]
    assert len(instances) == 2
    assert all("--no-worker" in commands[name] for name in instances)
    assert [name for name, words in commands.items() if words and words[0] == "worker"] == ["worker"]
    for name in [*instances, "worker"]:
        require_understood(commands[name])
    (script,) = commands["prepare"]
    asked = re.findall(r"unbayes-entrypoint ([^&;}]*[^&;} ])", script)
    assert [words.split()[0] for words in asked] == ["init", "token"]
    for words in asked:
        require_understood(shlex.split(words))


def test_compose_gives_no_rights_that_are_not_needed(compose):
    services = dict(compose["services"])
    database = services.pop("database")
    assert "ports" not in database
    assert "POSTGRES_PASSWORD" not in database["environment"]
    for each in services.values():
        assert each["read_only"] is True
        assert each["cap_drop"] == ["ALL"]
        assert each["security_opt"] == ["no-new-privileges:true"]
        assert each["volumes"] == ["keys:/var/lib/unbayes"]
        assert all(port.startswith("127.0.0.1:") for port in each.get("ports", []))
    used = {volume.split(":")[0] for each in compose["services"].values() for volume in each["volumes"]}
    assert used == set(compose["volumes"])
    assert {name for each in compose["services"].values() for name in each["secrets"]} == set(
        compose["secrets"]
    )
    assert "password:" not in COMPOSE.read_text().lower().replace("database_password:", "")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_no_secret_is_in_the_repository():
    done = run("git", "-C", str(ROOT), "ls-files", "deploy/secrets")
    assert done.stdout.split() == ["deploy/secrets/.gitignore"]


@pytest.mark.skipif(not has_compose(), reason="needs docker's compose; its structure is tested all the same")
def test_compose_reads_its_file():
    done = run("docker", "compose", "--file", str(COMPOSE), "config", "--quiet")
    assert done.returncode == 0, done.stderr


def test_the_unit_runs_what_there_is():
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    path, *words = shlex.split(line)
    assert path == "/opt/unbayes/bin/unbayes"
    require_understood(words)
    assert "KillMode=mixed" in UNIT.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_in_order_and_locked_up(tmp_path):
    # Where nothing is installed, its program is not there.
    text = UNIT.read_text().replace("/opt/unbayes/bin/unbayes", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    done = run("systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name))
    assert (done.returncode, done.stderr) == (0, "")
    done = run("systemd-analyze", "security", "--offline=yes", "--no-pager", str(tmp_path / UNIT.name))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(found[1]) <= MOST_EXPOSED


def commands_of(page):
    """The commands of `unbayes` in the shell blocks of a page."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^\$ unbayes (.*)$", block.replace("\\\n", " "), re.MULTILINE):
            words = shlex.split(line, comments=True)
            end = next((i for i, word in enumerate(words) if word in ("|", ">", "&&", "&")), None)
            yield words[:end]


def test_the_operators_page_has_commands():
    assert len(list(commands_of(ROOT / "docs" / "service.md"))) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_commands_that_there_are(page):
    for words in commands_of(page):
        require_understood(words)


@pytest.mark.parametrize("words", [["serve", "--nowhere"], ["nothing"], ["approve"], ["log", "nothing"]])
def test_a_command_that_is_none_is_noticed(words):
    with pytest.raises(typer.BadParameter.__base__):
        require_understood(words)
