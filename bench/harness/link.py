"""A server behind a slow link: every answer comes late, and no faster than the link.

    python3 -m harness.link FOLDER      MinIO with its data in a folder, behind a link that all connections share

prints a location for a repository, and serves until its standard input ends.
"""

import asyncio
import multiprocessing
import pathlib
import socket
import sys
import time

from harness import s3

LATENCY, RATE = 0.03, 90e6
BUCKET = "afar"


class Link:
    """When a byte may leave."""

    def __init__(self):
        self.free = 0.0


async def deliver(reader, writer, link):
    """Copies what arrives, late and no faster than the link."""
    loop = asyncio.get_running_loop()
    parts = asyncio.Queue(256)

    async def receive():
        while part := await reader.read(1 << 16):
            await parts.put((loop.time(), part))
        await parts.put((0, b""))

    receiving = asyncio.create_task(receive())
    try:
        while True:
            sent, part = await parts.get()
            if not part:
                break
            # The link is taken when the part arrives there: what is under way holds up nobody else.
            arrives = sent + LATENCY
            if (rest := arrives - loop.time()) > 0:
                await asyncio.sleep(rest)
            link.free = max(link.free, arrives) + len(part) / RATE
            if (rest := link.free - loop.time()) > 0:
                await asyncio.sleep(rest)
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        receiving.cancel()
        writer.close()


async def copy(reader, writer):
    try:
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


def serve(server_port, port, is_shared):
    """Runs a link to a server of this machine."""
    shared = Link()

    async def connect(reader, writer):
        from_server, to_server = await asyncio.open_connection("127.0.0.1", server_port)
        link = shared if is_shared else Link()
        await asyncio.gather(copy(reader, to_server), deliver(from_server, writer, link), return_exceptions=True)

    async def main():
        async with await asyncio.start_server(connect, "127.0.0.1", port) as server:
            await server.serve_forever()

    asyncio.run(main())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def main():
    server = s3.Server(pathlib.Path(sys.argv[1]) / "minio")
    server.store(BUCKET)
    port = free_port()
    server_port = int(server.endpoint.rsplit(":", 1)[1])
    link = multiprocessing.Process(target=serve, args=(server_port, port, True), daemon=True)
    link.start()
    try:
        wait_for(port)
        print(f"s3:http://127.0.0.1:{port}/{BUCKET}/repository", flush=True)
        sys.stdin.read()
    finally:
        link.terminate()
        server.close()


if __name__ == "__main__":
    main()
