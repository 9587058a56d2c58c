"""Saved files taken apart, edited, and put together again."""

import hashlib
import io
import json
import zipfile

import numpy as np


def entries_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def manifest_of(path):
    return json.loads(entries_of(path)["manifest.json"])


def npy(array, allow_pickle=False):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


def tamper(path, edit_manifest=None, edit_entries=None, *, forge=True, compression=zipfile.ZIP_STORED):
    """Rewrite a file; `forge` makes all checksums right again, so that nothing but the edit is wrong."""
    entries = entries_of(path)
    if edit_entries is not None:
        edit_entries(entries)
    manifest = json.loads(entries["manifest.json"])
    if forge:
        for name, declared in manifest["arrays"].items():
            declared["sha256"] = hashlib.sha256(entries.get(f"{name}.npy", b"")).hexdigest()
    if edit_manifest is not None:
        edit_manifest(manifest)
    if forge:
        del manifest["sha256"]
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    entries["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
