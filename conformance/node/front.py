"""The lab's Proxmox, whose VMs have the serial consoles of the nodes: `front.py ACCESS FOLDER CERTIFICATE KEY`.

Everything is passed on to the lab, except that whoever opens the console of a VM sees what its node prints from then on, as
the kernel's console shows it: FOLDER/VMID.log. Prints the port, then each console that is opened.
"""

import asyncio
import base64
import hashlib
import json
import pathlib
import re
import ssl
import sys
import urllib.parse

# What the key of a handshake is joined with (RFC 6455).
JOINED = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONSOLE = re.compile(rb"GET /api2/json/nodes/[^/]+/qemu/(\d+)/vncwebsocket")
# A container prints the time where the kernel would print its own.
TIME = re.compile(rb"^\[talos\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d ")


def frame(message):
    """A binary message."""
    length = len(message)
    head = bytes([0x82, length]) if length < 126 else b"\x82\x7e" + length.to_bytes(2, "big")
    return head + message


async def message(reader):
    """What a client says; its frames are masked."""
    head = await reader.readexactly(2)
    length = head[1] & 0x7F
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2), "big")
    elif length == 127:
        raise ConnectionError("a console is not told so much")
    mask = await reader.readexactly(4)
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(await reader.readexactly(length)))


async def console(head, vmid, folder, reader, writer):
    key = re.search(rb"(?i)\r\nsec-websocket-key: *(\S+)", head).group(1)
    accept = base64.b64encode(hashlib.sha1(key + JOINED).digest())
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
                 b"Sec-WebSocket-Protocol: binary\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    await message(reader)
    writer.write(frame(b"OK"))
    writer.write(frame(b"starting serial terminal on interface serial0 (press Ctrl+O to exit)\r\n"))
    print("console", vmid, flush=True)
    path = folder / f"{vmid}.log"
    # A serial port keeps nothing: what was printed before is gone.
    seen = path.stat().st_size if path.exists() else 0
    gone = asyncio.ensure_future(reader.read())
    while not gone.done():
        printed = path.read_bytes()[seen:] if path.exists() else b""
        whole = printed[: printed.rfind(b"\n") + 1]
        seen += len(whole)
        for line in whole.splitlines():
            line = TIME.sub(b"[talos] ", line)[:60000]
            writer.write(frame(b"[    1.000000] " + line + b"\r\n"))
        await writer.drain()
        await asyncio.sleep(0.1)


async def pass_on(reader, writer):
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


async def visit(reader, writer, lab, trust, folder):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if wanted := CONSOLE.match(head):
            return await console(head, wanted.group(1).decode(), folder, reader, writer)
        inner_reader, inner = await asyncio.open_connection(lab.hostname, lab.port, ssl=trust)
        inner.write(head)
        await asyncio.gather(pass_on(reader, inner), pass_on(inner_reader, writer))
    except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def main():
    access, folder, certificate, key = map(pathlib.Path, sys.argv[1:])
    lab = urllib.parse.urlsplit(json.loads(access.read_text())["pve"]["url"])
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    # The lab's certificate is its own; it is on the loopback of this namespace.
    trust = ssl._create_unverified_context()
    server = await asyncio.start_server(lambda *ends: visit(*ends, lab, trust, folder), "127.0.0.1", 0, ssl=own)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
