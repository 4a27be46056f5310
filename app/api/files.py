"""`/v1/files`: upload, show, list, download, delete, in OpenAI's shapes. Bytes pass through in chunks, whatever
a file's size.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from flask import Response, jsonify, request
from pydantic import BaseModel, ConfigDict, Field
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import FormDataParser

from app.api.auth import account_id, protected
from app.api.bodies import parse, parse_query
from app.api.describe import describe
from app.api.errors import BodyInvalid
from app.db import transaction
from app.files import shelf
from app.files.spool import Spool
from app.files.storage import storage
from app.files.tables import Purpose, StoredFile
from config.settings import settings

blueprint = protected("files")

DAY_SECONDS: Final = 86_400
BATCH_DAYS: Final = 30
MAX_FORM_PARTS: Final = 20
MAX_FORM_BYTES: Final = 131_072  # of everything but the file; the parser wants more than it reads at once
MAX_FILENAME_CHARS: Final = 255
# OpenAI's purposes that name what this server does not do.
FOREIGN_PURPOSES: Final = ("evals", "fine-tune", "vision")


class FileObject(BaseModel):
    """OpenAI's file object."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = Field(None, description="Absent where it never does.")
    filename: str
    purpose: Purpose
    status: Literal["processed"] = "processed"


class FileList(BaseModel):
    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(BaseModel):
    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class _Fields(BaseModel):
    """The form beside the file."""

    model_config = ConfigDict(extra="forbid")

    purpose: Literal["batch", "user_data", "assistants"]
    anchor: Literal["created_at"] | None = Field(None, alias="expires_after[anchor]")
    seconds: int | None = Field(None, ge=3600, le=30 * DAY_SECONDS, alias="expires_after[seconds]")


class FileUpload(_Fields):
    """The whole form."""

    file: str = Field(json_schema_extra={"format": "binary"}, description="Sent once, with its name.")


class FilesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    purpose: Purpose | None = None
    after: str | None = Field(None, description="The last id of the page before.")
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"


@blueprint.post("/v1/files")
@describe(
    "Upload a file",
    form=FileUpload,
    answers={200: (FileObject, "The file.")},
    errors=(400, 401, 403, 413),
)
def upload() -> Response:
    limit = settings().max_file_bytes
    with Spool(limit) as spool:
        filename, fields = _receive(spool, limit)
        digest = spool.finish()
        with transaction() as session:
            shelf.begin(session, digest, spool.bytes)
        storage().put(digest, spool.path)
        with transaction() as session:
            kept = shelf.keep(
                session,
                shelf.Draft(
                    account_id=account_id(),
                    digest=digest,
                    bytes=spool.bytes,
                    filename=filename,
                    purpose=Purpose(fields.purpose),
                    expires_after_seconds=_lifetime(fields),
                ),
            )
            return jsonify(view(kept))


def _receive(spool: Spool, limit: int) -> tuple[str, _Fields]:
    """The form, its one file written to `spool`. Raises `BodyInvalid`, `FileTooLarge`."""
    if request.mimetype != "multipart/form-data":
        raise BodyInvalid("Send the file as multipart/form-data.")
    if (request.content_length or 0) > limit + MAX_FORM_BYTES:
        raise RequestEntityTooLarge
    parts = _Parts(spool)
    parser = FormDataParser(
        stream_factory=parts,  # type: ignore[arg-type]  # it only writes and rewinds
        max_content_length=limit + MAX_FORM_BYTES,
        max_form_memory_size=MAX_FORM_BYTES,
        max_form_parts=MAX_FORM_PARTS,
        silent=False,
    )
    try:
        _, form, files = parser.parse_from_environ(request.environ)
    except ValueError as error:
        raise BodyInvalid(f"The form cannot be read: {error}.") from error
    if "file" not in files:
        raise BodyInvalid("Missing required parameter: 'file'.", "file")
    filename = (files["file"].filename or "file").replace("\x00", "")[:MAX_FILENAME_CHARS]
    return filename, _fields(form.to_dict())


def _fields(form: dict[str, Any]) -> _Fields:
    if form.get("purpose") in FOREIGN_PURPOSES:
        raise BodyInvalid(f"The purpose '{form['purpose']}' is not supported here.", "purpose")
    return parse(_Fields, form)


class _Parts:
    """Where the form parser writes files to: there may be one."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._is_taken = False

    def __call__(self, **_: Any) -> "_Parts":
        if self._is_taken:
            raise BodyInvalid("Send one file a request.", "file")
        self._is_taken = True
        return self

    def write(self, data: bytes) -> int:
        return self._spool.write(data)

    def seek(self, _position: int) -> None:
        """The parser rewinds what it has written, for readers that there are not."""


def _lifetime(fields: _Fields) -> float | None:
    if fields.seconds is not None:
        return fields.seconds
    return BATCH_DAYS * DAY_SECONDS if Purpose(fields.purpose) is Purpose.BATCH else None


@blueprint.get("/v1/files")
@describe("List files", query=FilesQuery, answers={200: (FileList, "A page.")}, errors=(400, 401, 404))
def index() -> Response:
    page = parse_query(FilesQuery)
    with transaction() as session:
        if page.after is not None:
            shelf.get_file(session, account_id(), page.after)
        found = shelf.list_files(
            session,
            account_id(),
            purpose=page.purpose,
            after=page.after,
            limit=page.limit + 1,
            newest_first=page.order == "desc",
        )
        shown = [view(file) for file in found[: page.limit]]
    return jsonify(
        object="list",
        data=shown,
        first_id=shown[0]["id"] if shown else None,
        last_id=shown[-1]["id"] if shown else None,
        has_more=len(found) > page.limit,
    )


@blueprint.get("/v1/files/<file_id>")
@describe("Show a file", answers={200: (FileObject, "The file.")}, errors=(401, 404))
def show(file_id: str) -> Response:
    with transaction() as session:
        return jsonify(view(shelf.get_file(session, account_id(), file_id)))


@blueprint.delete("/v1/files/<file_id>")
@describe("Delete a file", answers={200: (FileDeleted, "It is gone.")}, errors=(401, 404))
def delete(file_id: str) -> Response:
    with transaction() as session:
        shelf.drop(session, account_id(), file_id)
    return jsonify(id=file_id, object="file", deleted=True)


@blueprint.get("/v1/files/<file_id>/content")
@describe(
    "Download a file",
    headers=(("Range", "`bytes=FROM-TO`: a part of it."),),
    answers={200: (None, "Its bytes."), 206: (None, "The part that `Range` asks for.")},
    errors=(401, 404, 416),
    media_types=("application/octet-stream",),
)
def content(file_id: str) -> Response:
    with transaction() as session:
        file = shelf.get_file(session, account_id(), file_id)
        digest, size, filename = file.digest, file.bytes, file.filename
    response = Response(mimetype="application/octet-stream")
    name = filename.encode("ascii", "replace").decode()
    response.headers.set("Content-Disposition", "attachment", filename=name)
    response.set_etag(digest)
    response.make_conditional(request.environ, accept_ranges=True, complete_length=size)
    start, end = _part(response, size)
    if response.status_code in {200, 206}:
        response.headers["Content-Length"] = str(end - start)
        response.response = _bytes(digest, start, end)
    return response


def _part(response: Response, size: int) -> tuple[int, int]:
    found = response.content_range
    if response.status_code != 206 or found.start is None or found.stop is None:
        return 0, size
    return found.start, found.stop


def _bytes(digest: str, start: int, end: int) -> Iterator[bytes]:
    return storage().read(digest, start, end)


def view(file: StoredFile) -> dict[str, Any]:
    """As `FileObject`; one that never expires has no `expires_at`, which OpenAI's may not be null."""
    said = {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }
    return said if file.expires_at is None else {**said, "expires_at": int(file.expires_at.timestamp())}
