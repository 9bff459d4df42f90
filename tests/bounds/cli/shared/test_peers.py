"""A process notices at once that another has stopped, and JAX's end of it does not."""

import contextlib
import socket
import threading
import time

import pytest

from bounds.cli.shared import peers

HELLO = peers.PREFACE + b"\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def ended(monkeypatch):
    """What a process would have said at its end; its thread ends in its place."""
    said, threads, over = [], [], threading.Event()

    def end(message):
        said.append(message)
        over.wait()  # what is open stays so until the test is over
        raise SystemExit

    def start(function, *arguments):
        def run():
            with contextlib.suppress(SystemExit):
                function(*arguments)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        if function is not peers._relay:
            threads.append(thread)

    monkeypatch.setattr(peers, "_end", end)
    monkeypatch.setattr(peers, "_start", start)
    monkeypatch.setattr(peers, "_done", threading.Event())
    monkeypatch.setattr(peers, "GRACE", 0.1)
    yield said
    over.set()
    for thread in threads:  # none outlives the test, and ends the tests
        thread.join(5)
        assert not thread.is_alive()


def wait_for(told, seconds=5.0):
    end = time.monotonic() + seconds
    while not told() and time.monotonic() < end:
        time.sleep(0.01)
    return told()


def where(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


@contextlib.contextmanager
def leading():
    """Process 0: its port, its service's connections, and who came."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address, came = peers.listen_to_others(port)
    with socket.create_server(where(address)) as service:
        yield port, service, came


@contextlib.contextmanager
def other_of(leads):
    """The end of JAX's of one process, and the connection of one that stops."""
    with contextlib.ExitStack() as stack:
        if leads:
            port, service, _ = stack.enter_context(leading())
            stopping = socket.create_connection(("127.0.0.1", port))
            stopping.sendall(HELLO)
            kept = service.accept()[0]
        else:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = peers.reach_leader(*listener.getsockname())
            kept = socket.create_connection(where(address))
            kept.sendall(HELLO)
            stopping = listener.accept()[0]
        with kept, stopping:
            yield kept, stopping


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "other"])
def test_what_is_said_passes_both_ways(ended, leads):
    with other_of(leads) as (kept, other):
        (other if not leads else kept).recv(len(HELLO))
        kept.sendall(b"answer")
        assert other.recv(100) == b"answer"
        other.sendall(b"thanks")
        assert kept.recv(100) == b"thanks"
        assert not ended


def test_who_came_is_counted(ended):
    with leading() as (port, service, came):
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(HELLO)
            with service.accept()[0]:
                assert came.acquire(timeout=5)
                assert not came.acquire(timeout=0)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "other"])
@pytest.mark.parametrize("done", [False, True], ids=["at work", "at the end"])
def test_a_process_ends_in_a_line_where_another_stops(ended, leads, done, monkeypatch):
    """And JAX's own end of the connection is open until then: it would abort."""
    monkeypatch.setattr(peers, "GRACE_AT_THE_END", 0.4 if done else 60)
    with other_of(leads) as (kept, stopping):
        if done:
            peers.finish()
        began = time.monotonic()
        stopping.close()
        # One of them says it for all connections that break.
        assert set(wait_for(lambda: ended)) == {peers.LOST}
        assert not done or time.monotonic() - began >= peers.GRACE_AT_THE_END
        kept.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            while kept.recv(100):
                pass
            pytest.fail("JAX was told")


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n"])
def test_whoever_only_looks_whether_process_0_listens_is_not_missed(ended, said):
    with leading() as (port, service, came):
        with socket.create_connection(("127.0.0.1", port)) as probe:
            probe.sendall(said)
        service.settimeout(0.3)
        with pytest.raises(TimeoutError):
            service.accept()
        assert not came.acquire(timeout=0)
        assert not ended


def test_process_0_ends_in_a_line_where_the_others_do_not_come(ended):
    came = threading.Semaphore(0)
    came.release()
    peers.expect_others(came, 2, 0.05)
    assert wait_for(lambda: ended)
    assert "process 0 of 3 is found by 1 of the others within 0.05 s" in ended[0]


def test_process_0_works_on_where_all_come(ended):
    came = threading.Semaphore(2)
    peers.expect_others(came, 2, 0.05)
    time.sleep(0.1)
    assert not ended


def test_a_process_without_a_leader_any_more_ends_in_a_line(ended, monkeypatch):
    monkeypatch.setattr(peers, "PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        target = gone.getsockname()
    with socket.create_connection(where(peers.reach_leader(*target))) as client:
        client.sendall(HELLO)
        # One of them says it for all connections that break.
        assert set(wait_for(lambda: ended)) == {peers.LOST}
