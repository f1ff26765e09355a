"""What can go wrong when a service is stood up, each error saying what to do next.

ServiceError                  every error raised by `compose`
├─ MissingProgramError        the program is not installed
├─ ServiceDiedError           it ended by itself; carries the tail of its log
├─ PortTakenError             somebody else listens where it should
├─ ServiceNotReadyError       it runs but does not answer in time; carries the tail of its log
├─ DataDirectoryBusyError     another process of ours holds the data directory
└─ DownloadError              real Kafka could not be fetched
"""

from pathlib import Path


class ServiceError(Exception):
    """A service cannot be stood up."""


class MissingProgramError(ServiceError):
    """A program that we start is not installed."""


class ServiceDiedError(ServiceError):
    """A service ended by itself."""

    def __init__(self, name: str, exit_code: int | None, log_file: Path, tail: str) -> None:
        how = "ended" if exit_code is None else f"ended with exit code {exit_code}"
        says = f"ends with:\n{tail}" if tail else "says nothing of it"
        super().__init__(f"{name} {how}. Its log, {log_file}, {says}")
        self.exit_code = exit_code
        self.tail = tail


class PortTakenError(ServiceError):
    """Somebody else listens where a service should."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(
            f"{name} cannot listen on 127.0.0.1:{port}: the port is in use. End what listens there "
            "or choose another port"
        )
        self.port = port


class ServiceNotReadyError(ServiceError):
    """A service runs but does not answer in time."""

    def __init__(self, name: str, seconds: float, log_file: Path, tail: str) -> None:
        super().__init__(
            f"{name} did not answer within {seconds:g} s. Its log, {log_file}, ends with:\n{tail}"
        )
        self.tail = tail


class DataDirectoryBusyError(ServiceError):
    """A data directory is in use by another process of ours."""

    def __init__(self, data_dir: Path, holder_pid: int | None) -> None:
        holder = "another process" if holder_pid is None else f"process {holder_pid}"
        advice = "that process" if holder_pid is None else f"it (kill {holder_pid})"
        super().__init__(
            f"{data_dir} is in use by {holder}: end {advice}, or choose another data directory"
        )
        self.holder_pid = holder_pid


class DownloadError(ServiceError):
    """Real Kafka could not be fetched."""
