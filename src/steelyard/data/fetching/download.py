"""Download one file, with a progress bar on stderr if that is a terminal."""

from pathlib import Path
from typing import BinaryIO

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

TIMEOUT_SECONDS = 20  # to connect, and between two chunks; not for the whole file
CHUNK_BYTES = 1 << 16
MAX_BYTES = 1 << 30


class _Bar:
    """The interface that pooch expects of a progress bar, drawn by rich."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.task, self.total = progress, progress.add_task(title, total=None), 0

    def update(self, amount: int) -> None:
        self.progress.update(self.task, total=self.total or None, advance=amount)

    def reset(self) -> None:
        self.progress.reset(self.task)

    def close(self) -> None:
        self.progress.stop_task(self.task)


class LimitedWriter:
    """A file that ends with an OSError when a server sends too much."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self.file, self.left = file, limit

    def write(self, content: bytes) -> None:
        self.left -= len(content)
        if self.left < 0:
            raise OSError("the server sends more than a data set can have")
        self.file.write(content)

    def flush(self) -> None:
        self.file.flush()


def download(url: str, path: Path) -> None:
    """Save the file at `url` as `path`; a failure is an OSError with a short reason."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = _Bar(progress, path.name)
        fetch = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK_BYTES, timeout=TIMEOUT_SECONDS)
        try:
            with path.open("wb") as file:
                fetch(url, LimitedWriter(file, MAX_BYTES), None)
        except requests.HTTPError as error:
            status = error.response.status_code if error.response is not None else "unknown"
            raise OSError(f"HTTP status {status} for {url}") from error
        except requests.RequestException as error:
            # The error's own text is a paragraph of nested causes; its class names the kind of failure.
            raise OSError(f"no connection ({type(error).__name__})") from error
