"""The engine of threads: an ordered map that ends cleanly; and how an engine is chosen."""

import threading
import time

import pytest

from streamnb.engines import get_engine, raise_if_stopped
from streamnb.engines.threads import READ_AHEAD, Threads, available_cores


def engine_threads() -> list[threading.Thread]:
    """The threads of engines that are alive."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("streamnb")]


@pytest.fixture(params=[1, 2, 5])
def engine(request):
    """An engine of one, two or five workers."""
    return Threads(request.param)


def test_results_come_in_the_order_of_the_shards(engine):
    """Whatever finishes first, results come back in the order of the shards."""

    def task(number: int) -> int:
        time.sleep(0.002 * (5 - number % 5))
        return number * number

    assert list(engine.map(task, range(20))) == [number * number for number in range(20)]
    assert not engine_threads()


def test_no_shards(engine):
    """A source without shards gives no results."""
    assert list(engine.map(abs, [])) == []


def test_first_failing_shard_in_order_propagates(engine):
    """The error is that of the first failing shard in order, even when a later one fails sooner."""

    def task(number: int) -> int:
        if number == 3:
            time.sleep(0.02)
            raise KeyError("three")
        if number == 4:
            raise ValueError("four")
        return number

    results = engine.map(task, range(50))
    got = []
    with pytest.raises(KeyError, match="three"):
        got.extend(results)
    assert not engine_threads()


def test_results_before_the_failing_shard_are_handed_out(engine):
    """All shards before the failing one have given their results."""

    def task(number: int) -> int:
        return 1 // (3 - number)

    results = engine.map(task, range(9))
    got = [next(results) for _ in range(3)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert got == [0, 0, 1]


def test_shards_are_drawn_lazily_and_in_the_calling_thread():
    """At most workers + 2 shards are in hand, and a generator of shards never leaves the calling thread."""
    drawn = []

    def shards():
        for number in range(100):
            drawn.append((number, threading.current_thread()))
            yield number

    results = Threads(2).map(abs, shards())
    assert next(results) == 0
    assert len(drawn) <= 2 + READ_AHEAD
    for _ in range(10):
        next(results)
    assert len(drawn) <= 10 + 2 + READ_AHEAD
    results.close()
    assert {thread for _, thread in drawn} == {threading.main_thread()}


def test_closing_stops_running_tasks_promptly():
    """Closing the iterator ends tasks that run at their next question, drops those that wait, leaves no thread."""
    started, finished = [], []

    def task(number: int) -> int:
        started.append(number)
        if number == 0:
            return 0
        for _ in range(1000):
            time.sleep(0.005)
            raise_if_stopped()
        finished.append(number)
        return number

    results = Threads(2).map(task, range(100))
    assert next(results) == 0
    begin = time.monotonic()
    results.close()
    assert time.monotonic() - begin < 2
    assert not finished
    assert len(started) <= 2 + READ_AHEAD
    assert not engine_threads()


def test_an_interrupt_while_waiting_stops_the_work():
    """A KeyboardInterrupt in the calling thread leaves no thread behind."""

    def task(number: int) -> int:
        for _ in range(1000):
            time.sleep(0.005)
            raise_if_stopped()
        return number

    def shards():
        yield from range(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Threads(2).map(task, shards()))
    assert not engine_threads()


def test_dropping_the_iterator_leaves_no_thread():
    """An iterator that is forgotten half-way is closed."""
    results = Threads(2).map(abs, range(100))
    next(results)
    del results
    assert not engine_threads()


def test_one_worker_works_in_the_calling_thread():
    """With one worker no thread is started."""
    assert set(Threads(1).map(lambda _: threading.current_thread(), range(3))) == {threading.current_thread()}


def test_the_default_is_one_worker_per_available_core():
    """Without a number of workers there is one per core that the process may use."""
    assert Threads().workers == available_cores() >= 1
    assert get_engine("threads").workers == available_cores()


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_workers_than_one_are_refused(workers):
    """A number of workers below 1 is an error that shows it."""
    with pytest.raises(ValueError, match=f"Expected at least 1 worker, got {workers}"):
        get_engine("threads", workers)


def test_engines_by_name_or_as_they_are():
    """A name is looked up, an engine is taken as it is, anything else is refused."""
    own = Threads(3)
    assert get_engine(own, 7) is own
    with pytest.raises(ValueError, match="Expected an engine among 'threads', 'spark', 'dask', 'ray', got 'thread'"):
        get_engine("thread")
    with pytest.raises(ValueError, match="Expected an engine, which has a method map, got int"):
        get_engine(3)
    for engine, option in (("threads", "client"), ("dask", "session"), ("spark", "workers"), (own, "session")):
        with pytest.raises(ValueError, match=f"Expected {option}= with the engine that takes it"):
            get_engine(engine, **{option: 2})


def test_outside_of_an_engine_nothing_stops():
    """A plain loop over the shards may call raise_if_stopped too."""
    raise_if_stopped()
