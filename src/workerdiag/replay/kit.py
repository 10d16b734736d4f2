"""`Kit`: the recipe of what ran when a worker died, to be kept in a file and replayed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from workerdiag._version import __version__
from workerdiag.errors import KitError, describe_error, error_text
from workerdiag.guard import guarded
from workerdiag.model.replay import KitContent
from workerdiag.units import bytes_of, format_bytes, parse_duration
from workerdiag.wire.plain import BrokenValueError, from_plain, to_plain

if TYPE_CHECKING:
    from zipfile import ZipFile

    from distributed import Client

    from workerdiag.replay.outcome import Replay

_KIND, _SCHEMA = "workerdiag kit", 1
_CONTENT, _RECIPE, _DATA = "kit.json", "recipe.pickle", "inputs.pickle"
#: Larger parts of a kit are not read from a file.
_MAX_CONTENT_BYTES, _MAX_PART_BYTES = 4 * 2**20, 4 * 2**30
_TRUST: Final = (
    "a kit is a pickle, and reading a pickle runs code: replay it only if you trust whoever made it",
    "say so: kit.replay(trusted=True), or workerdiag replay --trust",
)


class Kit:
    """What ran when a worker died, to be replayed in processes of their own.

    `workerdiag.explain` makes one where the flight recorder runs on the scheduler. It holds pickles, with whatever
    data is inside the tasks: it is no part of what is rendered, saved or sent of a diagnosis, nor pickled along.
    """

    __slots__ = ("_data", "_is_own", "_recipe", "content")

    def __init__(self, content: KitContent, recipe: bytes, data: bytes = b"", *, is_own: bool = True) -> None:
        #: What it is of, as ``kit.json`` has it.
        self.content = content
        self._recipe = recipe
        self._data = data
        self._is_own = is_own

    def __repr__(self) -> str:
        size = len(self._recipe) + len(self._data)
        return f"<Kit of {self.content.killed!r}: {len(self.content.tasks)} tasks, {format_bytes(size)}>"

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()

    def __deepcopy__(self, _: object) -> Kit:
        return self

    def with_inputs(self, client: Client, *, most: str | int = "100 MiB") -> Kit:
        """Return the kit with the data of inputs that cannot be computed again, as of `Client.scatter`.

        They are gathered from the cluster as long as they live there: those that are lost, or too large, stay gaps.

        Args:
            client: The client of the cluster.
            most: The most that all of them may take.

        Raises:
            KitError: The cluster did not give them, or the client is asynchronous.
        """
        most_bytes = bytes_of(most)
        if client.asynchronous:
            raise KitError("the inputs", "the client is asynchronous", "give a synchronous one")
        from distributed import Future

        wanted = {each.key for each in self.content.gaps}
        with guarded("gathering inputs") as gathering:
            sizes: dict[Any, int] = client.nbytes(summary=False)  # type: ignore[no-untyped-call]
            data: dict[Any, object] = {}
            for key in sorted((each for each in sizes if str(each) in wanted), key=sizes.__getitem__):
                most_bytes -= sizes[key]
                if most_bytes >= 0:
                    data[key] = client.gather(Future(key, client))  # type: ignore[no-untyped-call]
            import cloudpickle

            packed = cloudpickle.dumps(data) if data else b""
        if gathering.problem is not None:
            raise KitError("the inputs", describe_error(gathering.problem), "ask while the cluster is up")
        names = tuple(map(str, data))
        gaps = tuple(each for each in self.content.gaps if each.key not in names)
        return Kit(evolve(self.content, gaps=gaps, data=names), self._recipe, packed, is_own=self._is_own)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the kit to a zip file: ``kit.json``, which one can read, and the pickles.

        Raises:
            KitError: It cannot be written there.
        """
        import zipfile  # slow to import

        about = {"kind": _KIND, "schema": _SCHEMA, "workerdiag": __version__, **to_plain(self.content)}
        parts = {_CONTENT: json.dumps(about, indent=1).encode(), _RECIPE: self._recipe, _DATA: self._data}
        place = Path(path)
        try:
            with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, part in parts.items():
                    if part:
                        archive.writestr(name, part)
        except OSError as problem:
            raise KitError(str(place), error_text(problem), "save it elsewhere") from problem
        return place

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Kit:
        """Read a kit that `save` wrote; nothing of it is unpickled.

        Raises:
            KitError: It is no kit, or cannot be read.
        """
        import zipfile  # slow to import

        place = str(path)
        try:
            with zipfile.ZipFile(path) as archive:
                about = json.loads(_part(archive, _CONTENT, _MAX_CONTENT_BYTES))
                recipe, data = (_part(archive, name, _MAX_PART_BYTES) for name in (_RECIPE, _DATA))
            if not isinstance(about, dict) or about.pop("kind", None) != _KIND or about.pop("schema", 0) != _SCHEMA:
                raise BrokenValueError
            about.pop("workerdiag", None)
            content = from_plain(KitContent, about, [])
        except (zipfile.BadZipFile, ValueError, EOFError) as problem:
            raise KitError(place, "it is not a kit that this release can read", "Kit.save writes one") from problem
        except OSError as problem:
            raise KitError(place, error_text(problem), "check the path") from problem
        return cls(content, recipe, data, is_own=False)

    def replay(
        self,
        limit: str | int | None = None,
        memray: str | os.PathLike[str] | None = None,
        *,
        trusted: bool = False,
        timeout: str | float = "10 minutes",
    ) -> Replay:
        """Run the tasks again, each alone in a process that is watched as a nanny watches a worker.

        First their inputs are computed. Then the task that Dask gave up on runs under the limit, and those that ran
        beside it; whichever is ended for its memory runs once more without the limit, for its peak. They find
        modules where this process does, and do again whatever they do: write files, ask servers.

        Args:
            limit: Memory limit, such as ``"500 MB"``; None: that of the workers that died.
            memray: A file for memray, which records the allocations of the task that kills in one more run.
            trusted: Whether to replay a kit that was read from a file.
            timeout: For all of it.

        Raises:
            KitError: The kit is of a file and *trusted* is not given, or memray is not installed or cannot write.
        """
        if not (self._is_own or trusted):
            raise KitError("this kit", *_TRUST)
        from workerdiag.replay.run import replay_kit

        seconds = parse_duration(timeout) if isinstance(timeout, str) else float(timeout)
        content = self.content if limit is None else evolve(self.content, limit_bytes=bytes_of(limit))
        return replay_kit(content, self._recipe, self._data, memray=memray, timeout_s=seconds)


def _part(archive: ZipFile, name: str, most_bytes: int) -> bytes:
    if name not in archive.namelist():
        return b""
    if archive.getinfo(name).file_size > most_bytes:
        raise ValueError(f"{name} is too large")
    return archive.read(name)
