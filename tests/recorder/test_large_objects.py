"""What holds the memory of a worker, without touching what it holds."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import weakref
from collections import OrderedDict, defaultdict, deque
from functools import lru_cache
from time import thread_time
from types import ModuleType, SimpleNamespace
from typing import ClassVar, NamedTuple

import pytest

from workerdiag.model.user_code import local_variables
from workerdiag.recorder import large_objects
from workerdiag.recorder.large_objects import estimated_bytes, largest_objects

MB = 10**6


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """However busy the machine is, the tests have time to look at all."""
    monkeypatch.setattr(large_objects, "BUDGET_S", 30.0)


class Pair(NamedTuple):
    """Two at once."""

    left: bytearray
    right: bytearray


class Model:
    """An object that holds much in an attribute."""

    def __init__(self, count=50):
        self.name = "model"
        self.history = [bytearray(100_000) for _ in range(count)]


class Slotted:
    """The same in a slot; another slot is empty."""

    __slots__ = ("data", "unset")

    def __init__(self):
        self.data = bytearray(5 * MB)


def cached(most):
    """A function that keeps its results."""

    @lru_cache(maxsize=most)
    def load(number):
        return bytearray(100_000)

    for number in range(60):
        load(number)
    return load


MAKERS = {
    "bytes": lambda: bytes(5 * MB),
    "list": lambda: [bytearray(100_000) for _ in range(50)],
    "tuple": lambda: tuple(bytearray(100_000) for _ in range(50)),
    "named tuple": lambda: Pair(bytearray(5 * MB), bytearray(5 * MB)),
    "deque": lambda: deque(bytearray(100_000) for _ in range(50)),
    "many texts": lambda: [f"station-{n}-{7 * n}" for n in range(100_000)],
    "floats": lambda: [n * 1.5 for n in range(300_000)],
    "a set": lambda: {n * 1.5 for n in range(100_000)},
    "dictionary": lambda: {n: bytearray(100_000) for n in range(50)},
    "default dictionary": lambda: defaultdict(list, {n: [bytearray(100_000)] for n in range(50)}),
    "ordered dictionary": lambda: OrderedDict((n, bytearray(100_000)) for n in range(50)),
    "dictionary of dictionaries": lambda: {n: {"a": n, "b": [n]} for n in range(20_000)},
    "growing elements": lambda: {n: bytearray(n * 100) for n in range(1000)},
    "rows": lambda: [(n, float(n), str(n)) for n in range(50_000)],
    "one large among small ones": lambda: [[1, "a", [2, (3, 4, bytearray(5 * MB), 5)], {}]],
    "one object many times": lambda: [bytearray(5 * MB)] * 1000,
    "object": Model,
    "slots": Slotted,
    "objects": lambda: [Model(10) for _ in range(10)],
    "cached results": lambda: cached(None),
    "limited cache": lambda: cached(128),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_size_is_right_by_a_quarter(make):
    """Whatever holds the memory, the estimate is near what Python took for it."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        held = make()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert estimated_bytes(held) == pytest.approx(taken, rel=0.25)


def test_arrays_and_tables_have_the_size_of_their_data():
    """A view counts as what it keeps, a mapped file not at all, text in a column with its characters."""
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    array = numpy.ones(MB)
    assert estimated_bytes(array) == estimated_bytes(array[:10]) == array.nbytes
    assert estimated_bytes([array[n:] for n in range(100)]) == pytest.approx(array.nbytes, rel=0.01)
    assert estimated_bytes(numpy.broadcast_to(array[:1].copy(), (10**9,))) < 1000
    texts = numpy.array([f"station-{n}" for n in range(50_000)], dtype=object)
    table = pandas.DataFrame({"text": texts, "number": 1.0, "kind": pandas.Categorical(["a"] * 50_000)})
    real = table.memory_usage(deep=True).sum()
    assert estimated_bytes(table) == pytest.approx(real, rel=0.25)
    assert estimated_bytes(table["number"]) == pytest.approx(400_000, rel=0.01)
    wide = pandas.DataFrame(numpy.ones((100, 5000)))
    assert estimated_bytes(wide) == pytest.approx(4 * MB, rel=0.01)
    assert estimated_bytes(pandas.DataFrame()) < 1000


class Unfriendly:
    """Does something in every way in which it can be looked at, and never what is expected."""

    reached = 0

    def __getattribute__(self, name):
        type(self).reached += 1
        raise RuntimeError(name)

    def __len__(self):
        raise ValueError

    def __sizeof__(self):
        Unfriendly.reached += 1
        raise ValueError

    def __eq__(self, other):
        raise ValueError

    __hash__ = None


class UnfriendlyDict(dict):
    """Its own methods do harm."""

    def items(self):
        raise RuntimeError

    def __iter__(self):
        raise RuntimeError

    def __len__(self):
        raise RuntimeError


def test_nothing_of_the_users_is_called():
    """Objects that raise, and containers with methods of their own, are passed by or sized all the same."""
    assert estimated_bytes(UnfriendlyDict({1: bytearray(MB)})) == pytest.approx(MB, rel=0.01)
    unfriendly, held = Unfriendly(), [bytearray(5 * MB)]
    found, is_complete = census(lambda: (unfriendly, held, call_back()))
    assert is_complete
    assert "held" in [each["name"] for each in found]
    assert Unfriendly.reached == 0


def test_a_half_built_object_hides_nothing_else():
    """Another variable of the same function is found all the same."""
    pandas = pytest.importorskip("pandas")
    half_built = object.__new__(pandas.DataFrame)
    held = [bytearray(5 * MB)]
    found, _ = census(lambda: (half_built, held, call_back()))
    assert "held" in [each["name"] for each in found]


def test_huge_and_deep_objects_take_no_time():
    """Ten million elements, or two hundred containers in one another, are looked at in passing."""
    deep = [bytearray(MB)]
    for _ in range(200):
        deep = [deep]
    itself = []
    itself.append(itself)
    for held in (dict.fromkeys(range(10**6)), deep, itself, list(range(10**7))):
        began = thread_time()
        estimated_bytes(held)
        assert thread_time() - began < 0.1


# ----------------------------------------------------------------------------------- who holds it
NOW = threading.local()


def call_back():
    """In the midst of a task: have it looked at from another thread."""
    NOW.found = []
    thread = threading.get_ident()
    task = NOW.task

    def look():
        found.append(largest_objects({thread: task}, 10 * MB))

    found = NOW.found
    other = threading.Thread(target=look)
    other.start()
    other.join()


def census(task, key="task-1"):
    """What is found while *task*, which calls `call_back`, runs as Dask runs tasks."""
    NOW.task = key
    runner = compile("def run(task):\n    task()\n", "/x/site-packages/distributed/worker.py", "exec")
    names = {}
    exec(runner, names)
    names["run"](task)
    return NOW.found[0]


def join_all():
    """Hold much in a list."""
    cols = [bytearray(500_000) for _ in range(20)]
    call_back()
    return cols


def test_the_variable_is_named_with_its_line():
    """Name, type, number, size, function and task: all that a person needs, and no value."""
    found, is_complete = census(join_all)
    (cols,) = [each for each in found if each["name"] == "cols"]
    assert is_complete
    assert (cols["type"], cols["count"]) == ("list", 20)
    assert cols["size_bytes"] == pytest.approx(10 * MB, rel=0.01)
    assert cols["line"] == {
        "file": __file__,
        "line": join_all.__code__.co_firstlineno + 3,
        "function": "join_all",
        "task": "task-1",
    }


def test_an_attribute_that_has_nearly_all_is_named():
    """``self`` says little; it is told once, whatever other names the object has."""

    def fit():
        model = Model()
        same = model.history
        call_back()
        return same

    found, _ = census(fit)
    assert [each["name"] for each in found if each["count"] == 50] in (["model.history"], ["same"])


CACHE = {}


class Registry:
    """Keeps in an attribute of the class."""

    kept: ClassVar[list[bytearray]] = []


def test_what_modules_of_the_user_hold_is_named_with_the_module(monkeypatch):
    """A cache in a global, or at a class, is found whether or not a task runs."""
    monkeypatch.setattr("workerdiag.recorder.large_objects._MAX_MODULES", 10_000)  # pytest has hundreds
    monkeypatch.setitem(CACHE, 1, bytearray(5 * MB))
    monkeypatch.setattr(Registry, "kept", [bytearray(5 * MB)])
    found, _ = largest_objects({}, 10 * MB)
    told = {(each["module"], each["name"], each["type"]) for each in found}
    assert {(__name__, "CACHE", "dict"), (__name__, "Registry.kept", "list")} <= told


def test_libraries_are_not_looked_through(monkeypatch):
    """What an installed package holds is its own affair, and a module that loads on first use is not loaded."""

    class Lazy(ModuleType):
        def __getattribute__(self, name):
            raise RuntimeError

    for name, file in (("a_library", "/x/site-packages/a_library.py"), ("a_module", "/home/me/a_module.py")):
        module = ModuleType(name)
        vars(module).update(__file__=file, HELD=bytearray(5 * MB))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "no_module", SimpleNamespace(HELD=bytearray(5 * MB)))
    found, _ = largest_objects({}, 10 * MB)
    assert [each["module"] for each in found if each["name"] == "HELD"] == ["a_module"]


def test_a_thread_that_is_at_no_task_is_passed_by():
    """A task may have ended between two looks."""
    held = [bytearray(5 * MB)]
    found, _ = largest_objects({threading.get_ident(): "task", 12345: "gone"}, 10 * MB)
    assert held
    assert "held" not in [each["name"] for each in found]


def test_looking_keeps_nothing_alive():
    """What the function lets go of is free at once, although it was looked at."""
    freed = []

    class Held:
        def __init__(self):
            self.data = bytearray(5 * MB)

        def __del__(self):
            freed.append(True)

    def work():
        held = Held()
        call_back()
        NOW.found[0][0].clear()
        del held
        assert freed == [True]

    census(work)


def test_variables_that_a_function_has_asked_for_are_left_alone():
    """``locals()`` is the function's own dictionary: it neither changes while it is used nor gets lost."""

    def work():
        held = [bytearray(5 * MB)]
        mine = locals()
        for name in mine:
            call_back()
            assert mine[name] is held
            later = name
        return later

    census(work)


def test_the_variables_of_a_module_are_its_own():
    """Code that runs in a module has no copy of them that could be emptied."""
    names = {"local_variables": local_variables, "sys": sys}
    exec("held = 1\nfound = local_variables(sys._getframe())\n", names)
    assert ("held", 1) in names["found"]
    assert names["held"] == 1


def test_when_time_is_short_what_was_found_counts(monkeypatch):
    """It is said that not all was looked at."""
    monkeypatch.setattr(large_objects, "BUDGET_S", -1.0)
    assert census(join_all) == ([], False)


def test_what_a_task_held_is_freed_when_it_ends():
    """Frames that refer to each other would keep the variables of all threads until the garbage is collected."""
    held = []

    def fit():
        model = Model()
        held.append(weakref.ref(model))
        call_back()
        return len(model.history)

    gc.disable()
    try:
        found, _ = census(fit)
        assert "model.history" in [each["name"] for each in found]
        assert held[0]() is None
    finally:
        gc.enable()
