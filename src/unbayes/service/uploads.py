"""Forms with a file, read in memory: rows of people are never written to a temporary file."""

import sys
from http import HTTPStatus

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from unbayes.service.problems import Problem

MOST_FIELDS, LONGEST_FIELD = 10, 16 * 1024
FILE = "rows"


class InMemoryParser(MultiPartParser):
    """The limit on bodies bounds what is held."""

    spool_max_size = sys.maxsize


async def parse_multipart(request: Request, *, most_fields: int, longest_field: int) -> FormData:
    """The form in a body, with one file at most.

    Characters are UTF-8: a body could name another set, and of those that Python knows some take forever.
    """
    _, options = parse_options_header(request.headers.get("content-type", ""))
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":
        raise _refusal("the form must be in UTF-8")
    parser = InMemoryParser(
        request.headers,
        request.stream(),  # pyright: ignore[reportArgumentType]
        max_files=1,
        max_fields=most_fields,
        max_part_size=longest_field,
    )
    try:
        return await parser.parse()
    except (MultiPartException, KeyError, LookupError, UnicodeDecodeError) as error:
        raise _refusal("the body is not a form as multipart/form-data has it") from error


async def read_upload(request: Request, longest: int) -> tuple[dict[str, str], bytes]:
    """The fields of a form, and the content of its one file, which is called `rows`."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise _refusal("the body must be multipart/form-data with a file that is called rows")
    form = await parse_multipart(request, most_fields=MOST_FIELDS, longest_field=LONGEST_FIELD)
    file = form.get(FILE)
    if not isinstance(file, UploadFile):
        await form.close()
        raise _refusal("the form must have a file that is called rows")
    data = await file.read(longest + 1)
    await form.close()
    items = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    if len({name for name, _ in items}) < len(items):
        raise _refusal("a field of the form must be there once")
    return dict(items), data


def _refusal(sentence: str) -> Problem:
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)
