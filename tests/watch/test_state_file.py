"""A state file that cannot be used: a clear error that names it, and nothing in it changed."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys

import pytest

from support.watch_values import watched_case
from workerdiag.errors import StateFileError
from workerdiag.watch import state_file
from workerdiag.watch.store import Store


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path):
    """A path that was mistyped costs nobody a file."""
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 100)
    with pytest.raises(StateFileError, match=r"notes\.txt.*not a database.*name another file"):
        Store(path)
    assert path.read_text() == "dear diary, " * 100


def test_the_database_of_another_program_is_left_as_it_is(tmp_path):
    """No table of ours is put among those of others."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE bookmark (id)")
    before = path.read_bytes()
    with pytest.raises(StateFileError, match="another program"):
        Store(path)
    assert path.read_bytes() == before


def test_a_file_of_another_version_is_left_as_it_is(tmp_path):
    """The error names both versions, and what to do."""
    path = tmp_path / "state.db"
    Store(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(StateFileError, match=r"version 99; this workerdiag reads version 1"):
        Store(path)
    assert path.read_bytes() == before


def test_a_file_that_must_exist_is_not_made(tmp_path):
    """Who only looks at a state leaves no empty one behind."""
    with pytest.raises(StateFileError, match="No such file"):
        Store(tmp_path / "state.db", must_exist=True)
    with pytest.raises(StateFileError, match="No such file"):
        Store(tmp_path / "no-folder" / "state.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_state_file(tmp_path):
    """The error says so."""
    with pytest.raises(StateFileError, match="Is a directory"):
        Store(tmp_path)


def test_only_its_owner_may_read_it(tmp_path):
    """Diagnoses name hosts and tasks, so the file and what SQLite puts beside it are private."""
    store = Store(tmp_path / "state.db")
    store.put_case(watched_case())
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}
    store.close()


def test_it_survives_a_loss_of_power(tmp_path):
    """A commit waits until the disk has it, and readers do not stop writers."""
    store = Store(tmp_path / "state.db")
    with store.file.transaction() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_full_disk_undoes_the_transaction_only(tmp_path):
    """What was there stays, the error says what to do, and with room again it goes on."""
    store = Store(tmp_path / "state.db")
    store.put_case(watched_case("small"))
    with store.file.transaction() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages}")
    large = watched_case("large", diagnosis_json="x" * 1_000_000)
    with pytest.raises(StateFileError, match=r"state\.db.*full.*make room"):
        store.put_case(large)
    assert [each.id for each in store.cases()] == ["small"]
    with store.file.transaction() as connection:
        connection.execute("PRAGMA max_page_count=1000000")
    store.put_case(large)
    assert [each.id for each in store.cases()] == ["small", "large"]
    store.close()


def test_a_file_that_became_read_only_says_so(tmp_path):
    """The error says what to do, and nothing is lost."""
    store = Store(tmp_path / "state.db")
    with store.file.transaction() as connection:
        connection.execute("PRAGMA query_only=ON")
    with pytest.raises(StateFileError, match=r"state\.db.*readonly.*writable"):
        store.put_case(watched_case())
    store.file._connection.execute("PRAGMA query_only=OFF")
    store.put_case(watched_case())
    assert store.cases() == (watched_case(),)
    store.close()


def test_a_locked_file_says_so(tmp_path, monkeypatch):
    """A process that holds the file in a transaction of its own is waited for, and then named as the reason."""
    monkeypatch.setattr(state_file, "BUSY_S", 0.01)
    store = Store(tmp_path / "state.db")
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateFileError, match=r"state\.db.*locked.*end the process"):
        store.put_case(watched_case())
    other.execute("ROLLBACK")
    store.put_case(watched_case())
    assert store.cases() == (watched_case(),)
    other.close()
    store.close()


def test_a_file_that_was_removed_is_not_written_to(tmp_path):
    """SQLite would go on in a file that has no name any more, and all of it would be lost."""
    store = Store(tmp_path / "state.db")
    (tmp_path / "state.db").unlink()
    with pytest.raises(StateFileError, match="removed or replaced"):
        store.put_case(watched_case())
    store.close()


def test_opening_it_again_in_one_process_takes_no_lock_away(tmp_path):
    """A lock of POSIX goes when any descriptor of the file is closed in its process; SQLite must have the only ones."""
    path = tmp_path / "state.db"
    watching = Store(path)
    watching.put_case(watched_case("a"))
    Store(path).close()
    Store(path, must_exist=True).close()
    look = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('SELECT * FROM watch_case'); c.close()"
    for cases in (["a"], ["a", "b"]):
        subprocess.run([sys.executable, "-c", look], check=True, stdout=subprocess.DEVNULL)
        assert (tmp_path / "state.db-wal").exists()  # the last one to close a database removes it
        watching.put_case(watched_case("b"))
        assert {each.id for each in watching.cases()} >= set(cases)
    watching.close()


def test_a_row_that_was_changed_by_hand_says_so(tmp_path):
    """The error names the file and the case."""
    store = Store(tmp_path / "state.db")
    store.put_case(watched_case())
    with store.file.transaction() as connection:
        connection.execute("UPDATE watch_case SET body = '{}'")
    with pytest.raises(StateFileError, match=r"state\.db.*case case-a"):
        store.cases()
    store.close()
