"""A site whose machines are real: `site.py ACCESS ROOTFS FOLDER NETWORK`.

ACCESS is what `ichor lab serve -o json` printed. Its Proxmox is the lab's, but whenever a VM runs there, a Talos node runs
here, in namespaces of its own, with the address that the VM's cloud-init says, on a bridge of the network namespace that
this program is in. NETWORK is the first three numbers of the addresses. When a VM stops, its node is killed; when it is
deleted, so is what the node kept. On SIGTERM everything ends. Nodes print to FOLDER/NAME.log.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def cgroup_trees():
    """The roots of all hierarchies of this computer."""
    return [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else sorted(path for path in CGROUPS.iterdir() if path.is_dir())


class Node:
    def __init__(self, site, vmid, name, address):
        self.site, self.name, self.folder = site, name, site.folder / name
        self.group = f"ichor-judged-{os.getpid()}-{vmid}"
        self.log = open(site.folder / f"{name}.log", "ab")
        # Proxmox knows its VMs by their numbers.
        number = site.folder / f"{vmid}.log"
        number.unlink(missing_ok=True)
        number.symlink_to(f"{name}.log")
        self.folder.mkdir(exist_ok=True)
        command = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--fork", "--kill-child",
                   str(HERE / "machine"), str(site.rootfs), str(self.folder), name, f"{address}/24", f"{site.network}.1"]
        own = os.readlink("/proc/self/ns/net")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                        preexec_fn=self.enter, start_new_session=True)
        for _ in range(500):
            if os.readlink(f"/proc/{self.process.pid}/ns/net") != own:
                break
            time.sleep(0.01)
        port = f"port{vmid}"
        subprocess.run(["ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.process.pid)], check=True)
        subprocess.run(["ip", "link", "set", port, "master", "site", "up"], check=True)

    def enter(self):
        """Before it unshares anything, a node goes into groups of its own, so that it sees only these."""
        for tree in cgroup_trees():
            group = tree / self.group
            group.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (group / setting).exists() and tree.name == "cpuset":
                    (group / setting).write_text((tree / setting).read_text())
            if (group / "cgroup.clone_children").exists() and tree.name == "cpuset":
                (group / "cgroup.clone_children").write_text("1")
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def end(self):
        # The first process of the namespace takes all others with it.
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in map(int, children):
            os.kill(pid, signal.SIGKILL)
        if not children:
            self.process.kill()
        self.process.wait()
        self.log.close()
        for tree in cgroup_trees():
            for folder, _, _ in os.walk(tree / self.group, topdown=False):
                # The kernel may need a moment to let go.
                for _ in range(100):
                    try:
                        os.rmdir(folder)
                        break
                    except FileNotFoundError:
                        break
                    except OSError:
                        time.sleep(0.05)


class Site:
    def __init__(self, access, rootfs, folder, network):
        self.pve = json.loads(pathlib.Path(access).read_text())["pve"]
        self.rootfs, self.folder, self.network = pathlib.Path(rootfs), pathlib.Path(folder), network
        self.nodes = {}
        # Of VMs that are off.
        self.off = {}
        # The lab's certificate is its own; it is on the loopback of this namespace.
        self.trust = ssl._create_unverified_context()

    def ask(self, path):
        request = urllib.request.Request(f"{self.pve['url']}/api2/json{path}", headers={"Authorization": f"PVEAPIToken={self.pve['token']}"})
        with urllib.request.urlopen(request, context=self.trust, timeout=10) as answer:
            return json.load(answer)["data"]

    def look(self):
        machines = {vm["vmid"]: vm for vm in self.ask("/cluster/resources?type=vm") if not vm.get("template")}
        for vmid in [vmid for vmid in self.nodes if machines.get(vmid, {}).get("status") != "running"]:
            node = self.nodes.pop(vmid)
            node.end()
            self.off[vmid] = node
            print("ended", node.name, flush=True)
        for vmid in [vmid for vmid in self.off if vmid not in machines]:
            node = self.off.pop(vmid)
            shutil.rmtree(node.folder)
            # What it said is not what another machine of its name says.
            (self.folder / f"{node.name}.log").rename(self.folder / f"{node.name}.before.log")
            print("deleted", node.name, flush=True)
        for vmid, vm in machines.items():
            if vm["status"] == "running" and vmid not in self.nodes:
                self.off.pop(vmid, None)
                config = self.ask(f"/nodes/{vm['node']}/qemu/{vmid}/config")
                address = re.search(r"ip=([0-9.]+)/", config["ipconfig0"]).group(1)
                self.nodes[vmid] = Node(self, vmid, vm["name"], address)
                print("began", vm["name"], address, flush=True)

    def end(self):
        for node in self.nodes.values():
            node.end()


def leave(number, _):
    """Once: whoever insists must not stop what is being cleared away."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit()


def main():
    site = Site(*sys.argv[1:])
    signal.signal(signal.SIGTERM, leave)
    for command in ("link set lo up", "link add site type bridge", f"addr add {site.network}.1/24 dev site", "link set site up"):
        subprocess.run(["ip", *command.split()], check=True)
    print("open", flush=True)
    try:
        while True:
            site.look()
            time.sleep(0.2)
    finally:
        site.end()


main()
