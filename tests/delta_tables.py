"""Delta tables as deltalake does not write them: with deletion vectors, or mapped columns."""

import json
import struct
from pathlib import Path

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
VECTORS = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed"],
    }
}


def delete_by_vector(table: Path, file: str, before: list[int], after: list[int]) -> int:
    """Commit a DELETE that marks rows of a file, as Spark does; returns its version.

    Parameters
    ----------
    file
        Path of the data file within the table.
    before, after
        Rows of it that are deleted before and after the commit.
    """
    log = table / "_delta_log"
    actions = [json.loads(line) for each in sorted(log.glob("*.json")) for line in _lines(each)]
    version = len(list(log.glob("*.json")))
    added = next(each["add"] for each in actions if each.get("add", {}).get("path") == file)
    removed = {
        "path": file,
        "dataChange": True,
        "deletionTimestamp": version,
        "partitionValues": added["partitionValues"],
        **({"deletionVector": _vector(before)} if before else {}),
    }
    commit = [
        {"commitInfo": {"operation": "DELETE"}},
        *([] if any("readerFeatures" in each.get("protocol", {}) for each in actions) else [VECTORS]),
        {"remove": removed},
        {"add": {**added, "deletionVector": _vector(after)}},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in commit)
    (log / f"{version:020}.json").write_text(lines)
    return version


def require_column_mapping(table: Path) -> None:
    """Commit that columns of the files have other names."""
    log = table / "_delta_log"
    lines = [json.loads(line) for line in _lines(log / f"{0:020}.json")]
    metadata = next(each["metaData"] for each in lines if "metaData" in each)
    metadata["configuration"]["delta.columnMapping.mode"] = "name"
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"column-{number}",
        }
    metadata["schemaString"] = json.dumps(schema)
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    commit = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{1:020}.json").write_text("".join(json.dumps(each) + "\n" for each in commit))


def _lines(commit: Path) -> list[str]:
    return commit.read_text().splitlines()


def _vector(rows: list[int]) -> dict:
    """Rows below 65,536 as an inline vector: a roaring bitmap of 64 bits with one container, in base 85."""
    bitmap = struct.pack("<IQI", 1681511377, 1, 0) + struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    bitmap += struct.pack(f"<{len(rows)}H", *sorted(rows))
    padded = bitmap + bytes(-len(bitmap) % 4)
    words = [int.from_bytes(padded[i : i + 4], "big") for i in range(0, len(padded), 4)]
    text = "".join(DIGITS[word // 85**k % 85] for word in words for k in (4, 3, 2, 1, 0))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(bitmap),
        "cardinality": len(rows),
    }
