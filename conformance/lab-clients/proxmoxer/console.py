"""Reads the serial console of a VM in a lab with proxmoxer and websocket-client as they are on PyPI, and compares
the key that Talos prints there with the one that openssl sees on the machine.

Usage: console.py ACCESS_JSON ADDRESS, with the file that `ichor lab serve -o json` prints and an address of this
computer for the machine. Claims go to standard output as in vm_life.py, what the console said to standard error.
"""

import base64
import hashlib
import json
import re
import ssl
import subprocess
import sys
import time
from urllib.parse import quote, urlsplit

import websocket
from proxmoxer import ProxmoxAPI

from vm_life import HOST, done, download, expect, refused

PRINTED = re.compile(rb'server certificate issued \{.*"fingerprint": "([A-Za-z0-9+/=]{44})"')
SECONDS = 20


def create(pve, address, **options):
    vmid = int(pve.cluster.nextid.get())
    gateway = address.rsplit(".", 1)[0] + ".1"
    disk = "local-lvm:0,import-from=local:import/talos.qcow2"
    done(
        pve,
        pve.nodes(HOST).qemu.post(
            vmid=vmid, memory=2048, cores=2, cpu="x86-64-v2-AES", scsihw="virtio-scsi-single", scsi0=disk,
            ide2="local-lvm:cloudinit", net0="virtio,bridge=vmbr0", boot="order=scsi0",
            ipconfig0=f"ip={address}/24,gw={gateway}", **options,
        ),
    )
    return vmid


def dial(access, vmid, port, ticket):
    """Opens the websocket as a browser does."""
    address = urlsplit(access["pve"]["url"]).netloc
    return websocket.create_connection(
        f"wss://{address}/api2/json/nodes/{HOST}/qemu/{vmid}/vncwebsocket?port={port}&vncticket={quote(ticket, safe='')}",
        header={"Authorization": "PVEAPIToken=" + access["pve"]["token"]},
        subprotocols=["binary"],
        sslopt={"cert_reqs": ssl.CERT_NONE, "check_hostname": False},
        timeout=SECONDS,
    )


def attach(pve, access, vmid):
    """Opens a console and introduces itself; what the terminal says first is still to be read."""
    proxy = pve.nodes(HOST).qemu(vmid).termproxy.post()
    line = dial(access, vmid, proxy["port"], proxy["ticket"])
    expect("the subprotocol is agreed", line.getsubprotocol() == "binary", line.getsubprotocol())
    line.send_binary(f"{proxy['user']}:{proxy['ticket']}\n".encode())
    return line


def read(line, until, seconds=SECONDS):
    """Reads until a pattern was seen, the console ended, or the time is over; returns all that was read."""
    seen, deadline = b"", time.monotonic() + seconds
    while not re.search(until, seen) and time.monotonic() < deadline:
        line.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            piece = line.recv()
        except (websocket.WebSocketConnectionClosedException, websocket.WebSocketTimeoutException):
            break
        if not piece:
            break
        seen += piece
    print(seen.decode(errors="replace"), file=sys.stderr)
    return seen


def key_of(address):
    """The fingerprint of the key that a machine shows, as Talos writes it, found with openssl."""
    for _ in range(200):
        try:
            certificate = ssl.get_server_certificate((address, 50000), timeout=SECONDS)
            break
        except OSError:
            time.sleep(0.05)
    else:
        sys.exit(f"nobody listens at {address}")
    key = subprocess.run(["openssl", "x509", "-pubkey", "-noout"], input=certificate.encode(), capture_output=True, check=True)
    body = b"".join(line for line in key.stdout.splitlines() if not line.startswith(b"-----"))
    return base64.b64encode(hashlib.sha256(base64.b64decode(body)).digest())


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        access = json.load(file)
    address = sys.argv[2]
    name, secret = access["pve"]["token"].split("=")
    user, token = name.split("!")
    netloc = urlsplit(access["pve"]["url"]).netloc
    pve = ProxmoxAPI(netloc, user=user, token_name=token, token_value=secret, verify_ssl=False, timeout=30)
    download(pve, access["factory"]["url"])
    vmid = create(pve, address, serial0="socket", freeze=1)
    vm = pve.nodes(HOST).qemu(vmid)

    said = read(attach(pve, access, vmid), b"not running")
    expect("a VM that is off has no console", said == b"OKVM %d not running\r\n" % vmid, said)
    done(pve, vm.status.start.post())
    expect("a frozen VM has not begun", vm.status.current.get()["qmpstatus"] == "prelaunch")
    line = attach(pve, access, vmid)
    said = read(line, b"\n")
    expect("the terminal begins", said == b"OKstarting serial terminal on interface serial0\r\n", said)
    line.send_binary(b"1:80:24:")
    line.send_binary(b"2")
    line.ping()
    done(pve, vm.status.resume.post())
    printed = PRINTED.search(read(line, PRINTED))
    expect("the machine prints its key", printed is not None)
    expect("the machine has that key", printed.group(1) == key_of(address), printed.group(1))
    line.send_binary(b"0:1:\r")
    line.close()

    late = attach(pve, access, vmid)
    said = read(late, PRINTED, seconds=0.5)
    expect("a console keeps nothing", PRINTED.search(said) is None, said)
    done(pve, vm.status.reset.post())
    newer = PRINTED.search(read(late, PRINTED))
    expect("a machine that boots again has another key", newer.group(1) not in (None, printed.group(1)))
    late.close()

    proxy = vm.termproxy.post()
    try:
        dial(access, vmid, proxy["port"], proxy["ticket"][:-1] + "x")
    except websocket.WebSocketBadStatusException as refusal:
        expect("a wrong ticket is refused", refusal.status_code == 401, refusal)
    else:
        sys.exit("a wrong ticket was accepted")
    stranger = dial(access, vmid, proxy["port"], proxy["ticket"])
    stranger.send_binary(b"root@pam:" + proxy["ticket"].encode() + b"\n")
    expect("somebody else is cut off", read(stranger, b"OK") == b"")
    refused("a console of no VM is refused", lambda: pve.nodes(HOST).qemu(999).termproxy.post(), 500, "does not exist")
    bare = create(pve, address)
    said = read(attach(pve, access, bare), b"interface")
    expect("a VM without a serial port says so", said == b"OKunable to find a serial interface\r\n", said)


if __name__ == "__main__":
    main()
