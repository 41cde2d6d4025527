"""Stands before the lab's Proxmox and keeps what clients send: `listen.py ACCESS CERTIFICATE KEY FOLDER`.

Everything is passed on as it is. What each connection brought is in FOLDER/NUMBER.bin; prints the port.
"""

import asyncio
import itertools
import json
import pathlib
import ssl
import sys
import urllib.parse


async def pass_on(reader, writer, keep):
    try:
        while piece := await reader.read(1 << 16):
            keep(piece)
            writer.write(piece)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def visit(reader, writer, lab, trust, path):
    inner_reader, inner = await asyncio.open_connection(lab.hostname, lab.port, ssl=trust)
    with path.open("wb", buffering=0) as kept:
        await asyncio.gather(pass_on(reader, inner, kept.write), pass_on(inner_reader, writer, lambda piece: None))


async def main():
    access, certificate, key, folder = map(pathlib.Path, sys.argv[1:])
    lab = urllib.parse.urlsplit(json.loads(access.read_text())["pve"]["url"])
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    # The lab's certificate is its own, and the lab is on this computer.
    trust = ssl._create_unverified_context()
    numbers = itertools.count()
    server = await asyncio.start_server(
        lambda *ends: visit(*ends, lab, trust, folder / f"{next(numbers)}.bin"), "127.0.0.1", 0, ssl=own)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
