"""A small TCP relay, to be stopped (SIGSTOP) in place of a network that is cut: relay.py PORT TARGET_PORT"""

import asyncio
import sys
from contextlib import suppress
from functools import partial


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def connect(target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A connection waits until the target listens: to accept and to close is no fault of a network."""
    there = None
    while there is None:
        try:
            there = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            await asyncio.sleep(0.1)
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))


async def relay(port: int, target: int) -> None:
    server = await asyncio.start_server(partial(connect, target), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(int(sys.argv[1]), int(sys.argv[2])))
