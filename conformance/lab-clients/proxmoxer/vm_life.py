"""Takes VMs through their whole life in a lab, with proxmoxer as it is on PyPI.

Usage: vm_life.py ACCESS_JSON, as `ichor lab serve -o json` prints it. Every call is written to standard error,
every claim that held to standard output; the first that does not ends the program with status 1.
"""

import json
import sys
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from proxmoxer import AuthenticationError, ProxmoxAPI, ResourceException
from proxmoxer.tools import Tasks

HOST = "pve1"
RECIPE = b"customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n"


def expect(claim, holds, seen=""):
    if not holds:
        sys.exit(f"not so: {claim}; seen: {seen!r}")
    print(claim, flush=True)


def refused(claim, call, status, words=""):
    try:
        answer = call()
    except ResourceException as refusal:
        told = f"{refusal.status_message} {refusal.content} {refusal.errors}"
        expect(claim, refusal.status_code == status and words in told, (refusal.status_code, told))
    else:
        sys.exit(f"not refused: {claim}; answered: {answer!r}")


def logged(access):
    """Writes what proxmoxer asks for, and how it was answered, to standard error."""
    session = access._store["session"]
    ask = session.request

    def request(method, url, *arguments, **options):
        answer = ask(method, url, *arguments, **options)
        given = options.get("data") or options.get("params") or ""
        print(method, urlsplit(url).path, given, "->", answer.status_code, answer.text[:400], file=sys.stderr)
        return answer

    session.request = request
    return access


def done(pve, upid):
    """Waits for a task as proxmoxer does, and demands that it ended well."""
    status = Tasks.blocking_status(pve, upid, timeout=60, polling_interval=0.05)
    kind = Tasks.decode_upid(upid)["type"]
    if status is None or status.get("exitstatus") != "OK":
        sys.exit(f"the task {kind} ended with {status}: {pve.nodes(HOST).tasks(upid).log.get()}")


def look_around(pve):
    expect("the version is a release of Proxmox", pve.version.get()["version"].split(".")[0] in ("8", "9"))
    nodes = {node["node"]: node for node in pve.nodes.get()}
    expect("three hosts are online", [nodes[name]["status"] for name in sorted(nodes)] == ["online"] * 3, nodes)
    storages = {it["storage"]: it for it in pve.nodes(HOST).storage.get()}
    expect("a storage takes images to import", "import" in storages["local"]["content"], storages)
    expect("a storage takes disks", "images" in storages["local-lvm"]["content"], storages)
    kinds = {it["type"] for it in pve.cluster.resources.get()}
    expect("resources name hosts and storages", {"node", "storage"} <= kinds, kinds)
    expect("a host tells its status", pve.nodes(HOST).status.get()["memory"]["total"] > 0)


def download(pve, factory):
    with urlopen(Request(f"{factory}/schematics", data=RECIPE, method="POST")) as answer:
        schematic = json.load(answer)["id"]
    url = f"https://factory.talos.dev/image/{schematic}/v1.13.9/nocloud-amd64.qcow2"
    storage = pve.nodes(HOST).storage("local")
    done(pve, storage("download-url").post(url=url, content="import", filename="talos.qcow2"))
    volumes = {it["volid"]: it for it in storage.content.get(content="import")}
    expect("the image is on the storage", volumes["local:import/talos.qcow2"]["size"] > 0, volumes)


def create(pve):
    vmid = int(pve.cluster.nextid.get())
    done(
        pve,
        pve.nodes(HOST).qemu.post(
            vmid=vmid,
            name="life",
            memory=2048,
            cores=2,
            cpu="x86-64-v2-AES",
            ostype="l26",
            scsihw="virtio-scsi-single",
            scsi0="local-lvm:0,import-from=local:import/talos.qcow2,iothread=1",
            ide2="local-lvm:cloudinit",
            net0="virtio,bridge=vmbr0",
            boot="order=scsi0",
            serial0="socket",
            agent=1,
            ipconfig0="ip=10.0.0.11/24,gw=10.0.0.1",
            nameserver="10.0.0.1",
            tags="one;two",
        ),
    )
    expect("the next free number is another", int(pve.cluster.nextid.get()) != vmid)
    names = {it["vmid"]: it["name"] for it in pve.nodes(HOST).qemu.get()}
    expect("the VM is listed", names.get(vmid) == "life", names)
    return vmid


def configure(pve, vm):
    config = vm.config.get()
    expect("the config says what was set", (config["memory"], config["cores"], config["agent"]) in ((2048, 2, 1), ("2048", 2, "1")), config)
    expect("the disk was imported", config["scsi0"].startswith("local-lvm:vm-"), config["scsi0"])
    expect("there is a cloud-init drive", "cloudinit" in config["ide2"], config["ide2"])
    expect("the network got an address of its own", "=BC:24:11:" in config["net0"], config["net0"])
    done(pve, vm.config.post(description="a life\nin two lines", memory=4096, digest=config["digest"]))
    changed = vm.config.get()
    expect("the config was changed", changed["description"].strip() == "a life\nin two lines", changed)
    refused("an old digest is refused", lambda: vm.config.put(cores=1, digest=config["digest"]), 500, "checksum mismatch")
    refused("a wrong value is refused", lambda: vm.config.put(memory="much"), 400, "memory")
    vm.config.put(delete="nameserver")
    expect("an option was deleted", "nameserver" not in vm.config.get())
    done(pve, vm.resize.put(disk="scsi0", size="20G"))
    expect("the disk is larger", "size=20G" in vm.config.get()["scsi0"], vm.config.get()["scsi0"])
    expect("nothing is pending while it is off", all("pending" not in it for it in vm.pending.get()), vm.pending.get())
    dump = vm.cloudinit.dump.get(type="network")
    expect("cloud-init has the address", "10.0.0.11" in dump, dump)


def run(pve, vm):
    done(pve, vm.status.start.post())
    expect("it runs", vm.status.current.get()["status"] == "running")
    # The guest agent answers when Talos has come up.
    for _ in range(200):
        try:
            interfaces = vm.agent("network-get-interfaces").get()["result"]
            addresses = [it["ip-address"] for card in interfaces for it in card.get("ip-addresses", [])]
            if "10.0.0.11" in addresses:
                break
        except ResourceException as refusal:
            addresses = refusal.status_message
    expect("its agent knows its address", "10.0.0.11" in addresses, addresses)
    expect("its agent answers a ping", vm.agent.ping.post() == {"result": {}})
    done(pve, vm.snapshot.post(snapname="before", description="before it stops"))
    snapshots = {it["name"] for it in vm.snapshot.get()}
    expect("a snapshot was taken", snapshots == {"before", "current"}, snapshots)
    done(pve, vm.status.stop.post())
    expect("it stopped", vm.status.current.get()["status"] == "stopped")
    done(pve, vm.snapshot("before").rollback.post())
    done(pve, vm.snapshot("before").delete())
    expect("the snapshot is gone", {it["name"] for it in vm.snapshot.get()} == {"current"})
    refused("a VM that is off cannot be asked by its agent", lambda: vm.agent.ping.post(), 500, "not running")


def copy(pve, vm, host):
    full = int(pve.cluster.nextid.get())
    done(pve, vm.clone.post(newid=full, name="copy", full=1))
    expect("the copy has a disk of its own", f"vm-{full}-disk" in host.qemu(full).config.get()["scsi0"])
    done(pve, vm.template.post())
    expect("it is a template", vm.config.get()["template"] == 1)
    # The call is taken; it is the task that fails.
    status = Tasks.blocking_status(pve, vm.status.start.post(), timeout=60, polling_interval=0.05)
    expect("a template does not start", "template" in status["exitstatus"], status)
    linked = int(pve.cluster.nextid.get())
    done(pve, vm.clone.post(newid=linked, name="linked"))
    # Thin LVM does not say in a volume's name what it hangs on, but the template cannot go before it.
    expect("a linked copy was made", f"vm-{linked}-disk" in host.qemu(linked).config.get()["scsi0"])
    return full, linked


def administer(pve, vmid):
    pve.pools.post(poolid="life", comment="of proxmoxer")
    pve.pools.put(poolid="life", vms=vmid)
    pool = pve.pools.get(poolid="life")
    members = (pool[0] if isinstance(pool, list) else pool)["members"]
    expect("the VM is in the pool", [it["vmid"] for it in members if "vmid" in it] == [vmid], pool)
    pve.access.roles.post(roleid="Looker", privs="VM.Audit,Pool.Audit")
    pve.access.users.post(userid="looker@pve", password="at-least-eight")
    token = pve.access.users("looker@pve").token("reads").post(privsep=0)
    pve.access.acl.put(path="/pool/life", users="looker@pve", roles="Looker")
    rules = [it for it in pve.access.acl.get() if it["ugid"] == "looker@pve"]
    expect("the rule is listed", [it["roleid"] for it in rules] == ["Looker"], rules)
    return token["value"]


def limited(address, secret, vmid):
    common = {"verify_ssl": False, "timeout": 30}
    looker = ProxmoxAPI(address, user="looker@pve", token_name="reads", token_value=secret, **common)
    expect("a token of few rights reads its VM", looker.nodes(HOST).qemu(vmid).config.get()["name"] == "copy")
    refused("and changes nothing", lambda: looker.nodes(HOST).qemu(vmid).config.put(cores=1), 403, "VM.Config.CPU")
    by_ticket = ProxmoxAPI(address, user="looker@pve", password="at-least-eight", **common)
    expect("a ticket works as well", by_ticket.nodes(HOST).qemu(vmid).config.get()["name"] == "copy")
    refused("and has no more rights", lambda: by_ticket.nodes(HOST).qemu(vmid).delete(), 403, "VM.Allocate")
    try:
        ProxmoxAPI(address, user="looker@pve", password="not the password", **common).version.get()
    except AuthenticationError:
        expect("a wrong password is refused", True)
    else:
        sys.exit("a wrong password was accepted")


def clear_up(pve, host, vmids):
    pve.access.acl.put(path="/pool/life", users="looker@pve", roles="Looker", delete=1)
    pve.access.users("looker@pve").token("reads").delete()
    pve.access.users("looker@pve").delete()
    pve.access.roles("Looker").delete()
    done(pve, host.qemu(vmids[0]).status.start.post())
    refused("a running VM is not destroyed", lambda: host.qemu(vmids[0]).delete(), 500, "running")
    done(pve, host.qemu(vmids[0]).status.stop.post())
    for vmid in vmids:
        done(pve, host.qemu(vmid).delete(purge=1))
    expect("no VM is left", host.qemu.get() == [])
    expect("no disk is left", host.storage("local-lvm").content.get() == [], host.storage("local-lvm").content.get())
    pve.pools.delete(poolid="life")
    expect("no pool is left", pve.pools.get() == [])
    tasks = host.tasks.get(limit=100)
    kinds = {it["type"] for it in tasks}
    wanted = {"qmcreate", "qmstart", "qmstop", "qmclone", "qmtemplate", "qmdestroy", "qmsnapshot", "imgcopy" if "imgcopy" in kinds else "download"}
    expect("the tasks are listed", wanted <= kinds, kinds)
    expect("a task has a log", "TASK OK" in str(host.tasks(tasks[0]["upid"]).log.get()))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        access = json.load(file)
    address = urlsplit(access["pve"]["url"]).netloc
    name, secret = access["pve"]["token"].split("=")
    user, token = name.split("!")
    pve = logged(ProxmoxAPI(address, user=user, token_name=token, token_value=secret, verify_ssl=False, timeout=30))
    host = pve.nodes(HOST)
    look_around(pve)
    download(pve, access["factory"]["url"])
    vmid = create(pve)
    vm = host.qemu(vmid)
    configure(pve, vm)
    run(pve, vm)
    full, linked = copy(pve, vm, host)
    secret = administer(pve, full)
    limited(address, secret, full)
    clear_up(pve, host, [full, linked, vmid])


if __name__ == "__main__":
    main()
