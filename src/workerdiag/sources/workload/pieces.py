"""What a collection is cut into: for each layer the size of a piece, and what a task takes and gives.

Everything is worked out from shapes and types, and of frames from their rows; no data is read but a sample of the
keys of a frame in this process. What cannot be worked out is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from math import prod
from typing import Any, NamedTuple, cast

from workerdiag.guard import guarded
from workerdiag.model.memory import Step
from workerdiag.sources.internals import embedded_frame, expression_part
from workerdiag.sources.workload.rows import PieceRows, largest_block_bytes, row_bytes, source_rows

#: At most this many layers or expressions of a collection, and tasks of a layer, are looked at.
_MAX_LAYERS, _MAX_TASKS = 3000, 16
#: Steps that reduce parts which are reduced already: each is as large as the result, whatever its layer says.
_REDUCES = ("-partial", "-aggregate")
#: Reductions that make pieces as large as those that they take, on the way to their result.
_SQUARES = ("var", "nanvar", "moment")
#: Layers whose pieces are views: they hold no more than what they are made of.
_VIEWS = ("sliding_window_view", "broadcast_to")
#: Packages whose functions on pieces make about one more copy; what others do is unknown. NumPy's ``nanmedian`` and
#: transforms are as others: they took up to five and eight times their input (tracemalloc, NumPy 2).
_KNOWN_PACKAGES = ("numpy", "dask", "pandas", "xarray", "operator", "builtins", "functools", "_operator", "toolz")
#: Expressions behind which rows with the same key are on one worker, and the operand that has the key.
_BY_KEY: Mapping[str, tuple[str, ...]] = {
    "GroupByApply": ("by",),
    "GroupByTransform": ("by",),
    "GroupByShift": ("by",),
    "Merge": ("left_on", "right_on"),
    "RearrangeByColumn": ("original_partitioning_index", "partitioning_index"),
    "Shuffle": ("original_partitioning_index", "partitioning_index"),
    "SetIndex": ("_other",),
    "SortValues": ("by",),
}
#: Expressions that compute the borders of their pieces on the workers, as soon as anybody asks how many there are;
#: and so does a repartition by size.
_SORTS = "BaseSetIndexSortValues"
#: The argument that sets the size of the pieces where a frame is made, by the expression that reads it.
_FRAME_ARGUMENTS: Mapping[str, str] = {
    "ReadParquet": "split_row_groups",
    "FromPandas": "npartitions",
    "FromMap": "blocksize",
    "FromArray": "chunksize",
    "Timeseries": "partition_freq",
}


def array_layers(array: Any) -> Iterator[Step]:
    """The steps of a Dask array."""
    layers: Mapping[str, Any] = array.dask.layers
    dependencies: Mapping[str, Any] = array.dask.dependencies
    sizes: dict[str, int] = {}
    notes: dict[str, Mapping[str, Any]] = {}
    for token, layer in islice(layers.items(), _MAX_LAYERS):
        known = getattr(layer, "collection_annotations", None)
        if isinstance(known, dict):
            with guarded("reading the chunks of a layer"):  # nan for unknown ones, and no dtype
                notes[token] = known
                sizes[token] = _bytes_of(known["chunksize"], known["dtype"])
    rechunked = {name for token in layers if token.startswith("rechunk") for name in dependencies.get(token, ())}
    sizes |= _partly_reduced(dependencies, sizes)
    sizes |= {
        token: max((sizes[each] for each in dependencies.get(token, ()) if each in sizes), default=sizes[token])
        for token in sizes
        if plain_name(token) in _VIEWS
    }
    for token, size in sizes.items():
        with guarded("reading a layer"):
            layer, known = layers[token], notes[token]
            inputs, inputs_count = _inputs(token, layer, sizes)
            yield Step(
                name=plain_name(token),
                token=token,
                piece_bytes=size,
                pieces=prod(len(each) for each in known["chunks"]),
                inputs_bytes=inputs,
                inputs=inputs_count,
                shape=tuple(map(int, known["shape"])),
                chunk=tuple(map(int, known["chunksize"])),
                dtype=str(known["dtype"])[:60],
                is_source=not dependencies.get(token),
                is_opaque=_is_opaque(layer),
                argument="chunks",
                is_between=token.startswith("rechunk") and token in rechunked,
            )
    yield from _layers_of_unknown_size(layers, sizes)


def _layers_of_unknown_size(layers: Mapping[str, Any], sizes: Mapping[str, int]) -> Iterator[Step]:
    """The steps whose results have no shape, as both parts of a decomposition: about as large as what they take."""
    for token, layer in islice(layers.items(), _MAX_LAYERS):
        if token not in sizes:
            with guarded("reading a layer"):
                if getattr(layer, "indices", None) is not None:
                    taken, count = _inputs(token, layer, sizes)
                else:
                    tasks = islice(_tasks(layer).values(), _MAX_TASKS)
                    taken, count = max((_taken_by(each, sizes) for each in tasks), default=(0, 0))
                if taken:
                    yield Step(
                        name=plain_name(token),
                        token=token,
                        piece_bytes=taken,
                        pieces=len(layer),
                        inputs_bytes=taken,
                        inputs=count,
                        is_opaque=True,
                    )


def _taken_by(task: Any, sizes: Mapping[str, int]) -> tuple[int, int]:
    taken = [sizes[key[0]] for key in _keys_taken(task) if isinstance(key, tuple) and key[0] in sizes]
    return sum(taken), len(taken)


def _keys_taken(task: Any, depth: int = 4) -> Collection[Any]:
    """The keys that a task takes; also of one that is a plain tuple, as Dask had them before 2024.12."""
    if (found := getattr(task, "dependencies", None)) is not None:
        return cast("Collection[Any]", found)
    if isinstance(task, tuple) and len(task) > 1 and isinstance(task[0], str):
        return [task]
    if depth == 0 or not isinstance(task, tuple | list):
        return ()
    return [key for each in islice(task, 1000) for key in _keys_taken(each, depth - 1)]


def _partly_reduced(dependencies: Mapping[str, Iterable[str]], sizes: Mapping[str, int]) -> Mapping[str, int]:
    """The sizes of pieces that a reduction has reduced within themselves; the layer states those before.

    What takes them, a layer for a part or for all of them (``_tree_reduce`` in dask/array/reductions.py), has
    pieces of the size of one of them, or of a half: a mean needs sums and counts.
    """
    takers = [token for token in sizes if plain_name(token).endswith(_REDUCES)]
    taken = [(each, taker) for taker in takers for each in dependencies.get(taker, ()) if each in sizes]
    return {
        each: min(sizes[each], 2 * sizes[taker])
        for each, taker in taken
        if not plain_name(each).startswith(_SQUARES)
    }


def kept_bytes(array: Any) -> int:
    """Bytes of pieces of a Dask array that must be kept in all: each is taken again once all of them are there.

    Either two inputs of a step are each taken with every part of the other (a product of matrices; then the smaller
    one), or an input is taken again beside a reduction of itself (``x - x.mean()``).
    """
    layers: Mapping[str, Any] = array.dask.layers
    totals: dict[str, int] = {}
    for token, layer in islice(layers.items(), _MAX_LAYERS):
        if isinstance(known := getattr(layer, "collection_annotations", None), dict):
            with guarded("reading the size of a layer"):
                totals[token] = _bytes_of(known["shape"], known["dtype"])
    most = 0
    for token in totals:
        layer = layers[token]
        taken = [
            (name, {index: count for index, count in zip(at, layer.numblocks[name], strict=False) if count > 1})
            for name, at in getattr(layer, "indices", ())
            if at is not None and name in totals
        ]
        wide = {index for _, at in taken for index in at if index in layer.output_indices}
        again = [(name, at) for name, at in taken if not wide <= set(at)]
        if len(again) > 1:
            most = max(most, min(totals[name] for name, _ in again))
        elif again:
            reduced, at = again[0]
            behind = _behind(reduced, array.dask.dependencies)
            most = max([most, *(totals[name] // prod(at.values()) for name, _ in taken if name in behind)])
    return most


def persisted_bytes(array: Any) -> int:
    """Bytes of the pieces of a Dask array that were persisted before: the graph has futures in their place."""
    layers = islice(array.dask.layers.values(), _MAX_LAYERS)
    persisted = (each for each in layers if type(next(iter(_tasks(each).values()), None)).__name__ == "Future")
    notes = [getattr(each, "collection_annotations", None) for each in persisted]
    with guarded("reading the sizes of layers"):
        return sum(_bytes_of(each["shape"], each["dtype"]) for each in notes if isinstance(each, dict))
    return 0


def kinds_of_tasks(graph: Any) -> Mapping[str, tuple[int, Any]]:
    """For each kind of task, by the scheduler's name for it, the one that takes most inputs, and how many."""
    from dask.utils import key_split  # of the process that has made the graph

    found: dict[str, tuple[int, Any]] = {}
    for layer in islice(getattr(graph, "layers", {}).values(), _MAX_LAYERS):
        for key, task in islice(_tasks(layer).items(), _MAX_LAYERS):
            kind, inputs = str(key_split(key))[:100], len(_keys_taken(task))
            if inputs >= found.get(kind, (0, None))[0]:
                found[kind] = inputs, task
    return found


def text_blocks(bag: Any) -> Iterator[Step]:
    """The largest block of text that a bag reads (``read_text(..., blocksize=...)``); it makes anything of it."""
    layers = {token: layer for token, layer in bag.dask.layers.items() if token.startswith("read-block-")}
    if size := largest_block_bytes(next(iter(layer.values())) for layer in layers.values()):
        yield Step(
            name="read-block",
            token=next(iter(layers)),
            piece_bytes=size,
            inputs_bytes=size,
            pieces=len(layers),
            is_source=True,
            is_opaque=True,
            argument="blocksize",
        )


def _behind(token: str, dependencies: Mapping[str, Iterable[str]]) -> set[str]:
    found, todo = set[str](), [token]
    while todo:
        new = set(dependencies.get(todo.pop(), ())) - found
        found |= new
        todo += new
    return found


def _bytes_of(shape: Iterable[float], dtype: Any) -> int:
    """Bytes of an array or a chunk; raises ValueError or OverflowError for a size that is not known."""
    return int(prod(map(float, shape))) * int(dtype.itemsize)


def _inputs(token: str, layer: Any, sizes: Mapping[str, int]) -> tuple[int, int]:
    if (indices := getattr(layer, "indices", None)) is not None:
        taken = [
            (sizes[name], _blocks_taken(inds, layer.output_indices, layer.numblocks.get(name, ())))
            for name, inds in indices
            if inds is not None and isinstance(name, str) and name in sizes
        ]
        return sum(size * count for size, count in taken), sum(count for _, count in taken)
    most = (0, 0)
    for task in islice(_tasks(layer).values(), _MAX_TASKS):
        counts = Counter(key[0] for key in _keys_taken(task) if isinstance(key, tuple) and key)
        total = sum(sizes[name] * count for name, count in counts.items() if name in sizes and name != token)
        if plain_name(token).endswith(_REDUCES):
            total = sizes[token] * sum(counts.values())
        elif token in counts or not counts.keys() <= sizes.keys():  # parts of pieces, in all as large as the result
            total = max(total, sizes[token])
        most = max(most, (total, sum(counts.values())))
    return most


def _tasks(layer: Any) -> Mapping[Any, Any]:
    """The tasks of a layer that has them already; none of one that would have to make them."""
    mapping = getattr(layer, "mapping", None)
    return mapping if isinstance(mapping, dict) else {}


def _blocks_taken(inds: Any, output: Any, numblocks: tuple[int, ...]) -> int:
    pairs = zip(inds, numblocks, strict=False)
    return prod(count for index, count in pairs if index not in output)


def _is_opaque(layer: Any) -> bool:
    func = getattr(getattr(layer, "task", None), "func", None)
    module = str(getattr(func, "__module__", None) or getattr(type(func), "__module__", ""))
    is_hungry = module.startswith("numpy.fft") or getattr(func, "__name__", "") == "nanmedian"
    return func is not None and (is_hungry or not module.startswith(_KNOWN_PACKAGES))


def frame_layers(frame: Any) -> Iterator[Step]:
    """The steps of a Dask dataframe that read, and those that bring rows together."""
    nodes = expressions(frame)
    sources: list[Step] = []
    frames: list[Any] = []
    for node in nodes:
        with guarded("reading an expression"):
            if _is_source(node):
                sources.append(_source_layer(node))
                frames += [embedded_frame(node)] if "FromPandas" in class_names(node) else []
    largest = max(sources, key=_rows_in_all, default=None)
    rows = _rows_in_all(largest) if largest and all(each.rows for each in sources) else 0
    most = max((each.pieces for each in sources), default=0)
    widest = max((each.row_bytes or 0 for each in sources), default=0)
    has_unknown_borders = any(map(_computes_borders, nodes))
    yield from sources
    for node in nodes:
        with guarded("reading an expression"):
            names = class_names(node)
            pieces = (
                most if has_unknown_borders and any(map(_computes_borders, node.walk())) else int(node.npartitions)
            )
            by = next((operands for name, operands in _BY_KEY.items() if name in names), None)
            joined = 0 if has_unknown_borders else _joined_pieces(node, names, most)
            row = row_bytes(expression_part(node, "_meta"))
            is_wide = "Blockwise" in names and row > widest
            if _is_source(node) or not (by or joined or is_wide or _has_own_function(node)):
                continue
            each = rows // max(pieces, 1) if "Reduction" not in names else 0
            key = _key_of(node, by or ())
            yield Step(
                name=plain_name(str(expression_part(node, "_name"))),
                token=str(expression_part(node, "_name")),
                piece_bytes=each * row if each and not by else None,
                pieces=pieces,
                inputs_bytes=each * (widest if is_wide else row),
                inputs=joined or 1,
                rows=each or None,
                row_bytes=row,
                least_share=largest.least_share if largest else None,
                is_opaque=_has_own_function(node),
                by_key=by is not None,
                key=key,
                key_share=_key_share(frames, key) if by else None,
            )


def _rows_in_all(source: Step) -> int:
    return (source.rows or 0) * source.pieces


def _computes_borders(node: Any) -> bool:
    names = class_names(node)
    is_sized = "Repartition" in names and node.operand("partition_size") is not None
    return is_sized or _SORTS in names


def _joined_pieces(node: Any, names: set[str], most: int) -> int:
    """How many of *most* pieces a repartition puts into one; 0 if it puts none together."""
    pieces = int(node.npartitions)
    is_fewer = "Repartition" in names and any(int(each.npartitions) > pieces for each in node.dependencies())
    return most // pieces if is_fewer else 0


class ResultBytes(NamedTuple):
    """Bytes of the whole result of a collection."""

    least: int
    most: int


def result_bytes(kind: str, value: Any) -> ResultBytes | None:
    """What the whole result of a collection takes, as far as its steps tell; None or an error if they do not."""
    if kind == "array":
        size = _bytes_of(value.shape, value.dtype)
        return ResultBytes(size, size)
    if kind != "dataframe":
        return None
    nodes = expressions(value)
    if not all(_is_source(each) or "Blockwise" in class_names(each) for each in nodes):
        return None
    if any(_has_own_function(each) for each in nodes):  # which may return anything
        return None
    largest = max((_source_layer(each) for each in nodes if _is_source(each)), key=_rows_in_all, default=None)
    if largest is None or not largest.rows:
        return None
    most = _rows_in_all(largest) * row_bytes(expression_part(value.expr, "_meta"))
    is_filtered = any("Filter" in class_names(each) for each in nodes)
    return ResultBytes(0 if is_filtered else int(most * (largest.least_share or 1)), most)


def expressions(frame: Any) -> list[Any]:
    """The steps of a dataframe, without the columns that nobody asks for; as written where that fails."""
    expression = frame.expr
    with guarded("simplifying an expression"):
        expression = expression.simplify()
    return list(islice(expression.walk(), _MAX_LAYERS))


def class_names(node: Any) -> set[str]:
    """The names of the classes of an expression."""
    return {each.__name__ for each in type(node).__mro__}


def _is_source(node: Any) -> bool:
    return bool(class_names(node) & {"BlockwiseIO", "FromDelayed"})


def _has_own_function(node: Any) -> bool:
    names = class_names(node)
    if not names & {"MapPartitions", "GroupByApply", "MapOverlap", "Apply", "FromMap"}:
        return False
    module = getattr(node.operand("func"), "__module__", None)
    return not str(module).startswith(_KNOWN_PACKAGES)


def _source_layer(node: Any) -> Step:
    names, count = class_names(node), int(node.npartitions)
    known = PieceRows(row_bytes=row_bytes(expression_part(node, "_meta")))
    with guarded("counting the rows of a piece"):
        known = source_rows(node, names, count)
    return Step(
        name=plain_name(str(expression_part(node, "_name"))),
        token=str(expression_part(node, "_name")),
        piece_bytes=known.rows * known.row_bytes if known.rows else None,
        pieces=count,
        inputs_bytes=known.text_bytes,
        inputs=1 if known.text_bytes else 0,
        rows=known.rows,
        row_bytes=known.row_bytes,
        least_share=known.least_share,
        is_source=True,
        argument=next((argument for name, argument in _FRAME_ARGUMENTS.items() if name in names), ""),
        is_embedded="FromPandas" in names,
    )


def _key_of(node: Any, operands: Iterable[str]) -> str:
    """The column that rows come together by; empty if it is none or several."""
    if "GroupByBase" in class_names(node):
        by = list(getattr(node, "by", ()))
        return str(by[0])[:100] if len(by) == 1 and isinstance(by[0], str) else ""
    for name in operands:
        value = node.operand(name) if name in expression_part(node, "_parameters") else None
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if isinstance(value, str):
            return value[:100]
    return ""


def _key_share(frames: Iterable[Any], key: str) -> float | None:
    """The largest share of rows with one and the same key, in a sample of a frame of this process."""
    for each in frames:
        if key and key in getattr(each, "columns", ()):
            step = max(1, len(each) // 20_000)
            counts = each[key].iloc[::step].value_counts(normalize=True)
            return round(float(counts.iloc[0]), 3) if len(counts) else None
    return None


def plain_name(token: str) -> str:
    """The name of a layer or an expression without its hash: ``random_sample``."""
    name, _, tail = token.rpartition("-")
    return (name if name and len(tail) >= 16 else token)[:100]
