"""The command `unbayes show`: what is in a saved file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from unbayes.cli.files import MODEL, STATISTICS, Opened, open_file
from unbayes.cli.refusal import printable, refusals
from unbayes.data.choosing import noted_columns


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A saved model, or saved statistics.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is in a saved file, and what was erased from it.

    It is read and checked, and nothing in it is run.
    Exit code 2: it cannot be read.
    """
    with refusals():
        opened = open_file(file, MODEL, STATISTICS)
        found = summary(opened)
        typer.echo(json.dumps(found, indent=1) if as_json else as_text(found))


def summary(opened: Opened) -> dict[str, Any]:
    """What the file holds, for JSON; read from its description, so that no function is needed."""
    manifest = opened.manifest
    header = {
        "file": str(opened.path),
        "kind": opened.kind,
        "library": manifest.get("library"),
        "format": manifest.get("version"),
    }
    return header | (_statistics(opened) if opened.kind == STATISTICS else _model(opened))


def as_text(found: dict[str, Any]) -> str:
    """The summary in lines."""
    kind = "a posterior" if found["kind"] == MODEL and found["model"] is None else found["kind"]
    lines = [f"{found['file']}: {kind}, saved by unbayes {found['library']} in format {found['format']}"]
    rows = _statistics_rows(found) if found["kind"] == STATISTICS else _model_rows(found)
    return "\n".join(map(printable, [*lines, *(f"  {name:<22} {value}" for name, value in rows)]))


def _statistics(opened: Opened) -> dict[str, Any]:
    fields = _fields(opened.manifest.get("statistics"))
    match fields.get("ids"):
        case {"tuple": [*ids]}:
            named = len(ids)
        case _:
            named = 0
    return {"records": fields.get("records"), "origin": fields.get("origin"), "ids": named}


def _statistics_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("records", f"{found['records']} erased records, summed up"),
        ("origin", f"{found['origin']} (posterior, model, memory, method and key)"),
        ("ids", str(found["ids"] or "none")),
        ("warning", "sums still tell of the records: protect the file, delete it once it was solved for"),
    ]


def _model(opened: Opened) -> dict[str, Any]:
    manifest, notes = opened.manifest, opened.notes
    inputs, target = noted_columns(notes)
    parameters, dtype = _size(opened)
    return {
        "model": _describe_model(opened),
        "parameters": parameters,
        "dtype": dtype,
        "posterior": _class(manifest.get("posterior")),
        "memory": _memory(opened),
        "columns": inputs and [each.form for each in inputs],
        "target": target and target.form,
        "erasures": opened.erasures,
    }


def _model_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("model", "none: the file holds a posterior alone")]
    if model := found["model"]:
        rows = [(name, model[name]) for name in ("class", "features", "likelihood") if model[name]]
        rows[0] = ("model", model["class"])
        rows += [("needs a function", name) for name in model["functions"]]
    if found["parameters"]:
        rows.append(("parameters", f"{found['parameters']} of {found['dtype']}"))
    rows.append(("posterior", found["posterior"]))
    rows += _memory_rows(found["memory"])
    if found["columns"]:
        rows.append(("inputs", ", ".join(map(_column, found["columns"]))))
    if found["target"]:
        rows.append(("target", _column(found["target"])))
    for number, erasure in enumerate(found["erasures"], 1):
        said = "{records} records by {method} on {when}: {verdict}".format_map(_Lenient(erasure))
        rows.append((f"erasure {number}", said))
        rows += [("because", doubt) for doubt in erasure.get("doubts", [])]
    return rows


def _column(form: Any) -> str:
    match form:
        case {"name": name, "categories": categories}:
            return f"{name} ({len(categories)} categories)"
        case {"name": name}:
            return f"{name} (standardised)"
    return form


def _memory_rows(memory: dict[str, Any] | None) -> list[tuple[str, str]]:
    if memory is None:
        return [("memory", "none")]
    parts = [f"{memory['records']} training records"]
    parts += [_spell_sums(memory["sums"])] if memory["sums"] else []
    parts += [f"a coreset of {memory['coreset']}"] if memory["coreset"] else []
    parts += ["dense curvature"] if memory["curvature"] else []
    rows = [("memory", ", ".join(parts))]
    if memory["coreset"]:
        kind = "erased" if memory["is_stand_in"] else "training"
        warning = f"this file holds {memory['coreset']} {kind} records: protect it as you protect the data"
        rows.append(("warning", warning))
    if memory["known_by"]:
        told = "whoever has the file and a record can tell whether it was trained on"
        rows.append(("roster", f"knows all records by {memory['known_by']}: {told}"))
    return rows


def _memory(opened: Opened) -> dict[str, Any] | None:
    fields = _fields(opened.manifest.get("memory"))
    if not fields:
        return None
    match fields.get("weights"):
        case {"array": str(name)} if name in opened.arrays:
            size = len(opened.arrays[name])
        case _:
            size = 0
    return {
        "records": fields.get("records"),
        "sums": _sums(fields.get("sums"), opened),
        "coreset": size,
        "curvature": fields.get("curvature") is not None,
        "is_stand_in": bool(fields.get("is_stand_in", False)),
        "known_by": _known_by(fields),
    }


def _sums(node: Any, opened: Opened) -> dict[str, Any] | None:
    """Order of the sums, along how many directions of how many, and their size; None where there are none."""
    fields = _fields(node)
    match fields.get("directions"):
        case {"array": str(name)} if name in opened.arrays:
            dim, directions = opened.arrays[name].shape
            return {
                "order": 3 if _fields(fields.get("derivatives")).get("fourth") is None else 4,
                "directions": directions,
                "of": dim,
                "share": fields.get("share"),
                "bytes": sum(opened.arrays[each].nbytes for each in _array_names(node)),
            }
    return None


def _spell_sums(sums: dict[str, Any]) -> str:
    along = "all" if sums["directions"] == sums["of"] else f"{sums['directions']} of"
    size = f"{sums['bytes'] / 1e6:.1f} MB" if sums["bytes"] >= 1e5 else f"{sums['bytes'] / 1e3:.1f} kB"
    return f"sums of order {sums['order']} along {along} {sums['of']} directions ({size})"


def _array_names(node: Any) -> Iterator[str]:
    """Names of all arrays in a description."""
    match node:
        case {"array": str(name)}:
            yield name
        case {"class": str(), "fields": {**parts}}:
            for part in parts.values():
                yield from _array_names(part)


def _known_by(memory: dict[str, Any]) -> str | None:
    """What the roster knows records by; None where there is no roster."""
    if memory.get("roster") is None:
        return None
    return "ids" if _fields(memory.get("marker")).get("spacing") is None else "their digits"


def _describe_model(opened: Opened) -> dict[str, Any] | None:
    node = opened.manifest.get("model")
    if node is None:
        return None
    parts = {name: _fields(node).get(name) for name in ("features", "likelihood")}
    spelled = {name: part and _spell(part, opened) for name, part in parts.items()}
    return {"class": _class(node), **spelled, "functions": opened.functions}


def _size(opened: Opened) -> tuple[int | None, str | None]:
    """Number and type of the parameters; unknown for a posterior of a class from elsewhere."""
    from unbayes.posteriors import AbstractPosterior
    from unbayes.storage.tree import rebuild

    try:
        posterior = rebuild(opened.manifest.get("posterior"), "posterior", dict(opened.arrays), {})
    except ValueError:  # Unreadable, or in want of a function.
        return None, None
    return (posterior.dim, posterior.dtype.name) if isinstance(posterior, AbstractPosterior) else (None, None)


def _class(node: Any) -> str:
    match node:
        case {"class": str(name)}:
            return name
    return "unknown"


def _fields(node: Any) -> dict[str, Any]:
    match node:
        case {"class": str(), "fields": {**fields}}:
            return fields
    return {}


def _spell(node: Any, opened: Opened) -> str:
    """A part of a description as a line: settings by their values, arrays by their shapes."""
    match node:
        case {"class": str(name), "fields": {**fields}}:
            settings = ", ".join(f"{key}={_spell(part, opened)}" for key, part in fields.items())
            return f"{name}({settings})"
        case {"array": str(name)} if name in opened.arrays:
            array = opened.arrays[name]
            return f"{array:g}" if array.ndim == 0 else "×".join(map(str, array.shape)) + " numbers"
        case {"function": str()}:
            return "a function"
        case {"tuple": [*parts]}:
            return "(" + ", ".join(_spell(part, opened) for part in parts) + ")"
        case {"dict": {**parts}}:
            return "{" + ", ".join(f"{key}: {_spell(part, opened)}" for key, part in parts.items()) + "}"
    return str(node)


class _Lenient(dict):
    """Entries of the notes; those that are missing are unknown."""

    def __missing__(self, key: str) -> str:
        return "unknown"
