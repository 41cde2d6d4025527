"""Two people who share a bucket and a lab, and nothing else, make one cluster.

    two.py ICHOR SERVER INVENTORY WORK
"""

import pathlib
import sys

from fight import Person, serve, wrong


def judge(ichor, inventory, work, port):
    ann, bob = (Person(name, ichor, inventory, work, port) for name in ("ann", "bob"))
    lab = ("--lab", "--lab-state", str(work / "lab.json"))
    made = ann.run(*lab, "up", "--yes")
    if made.returncode != 0:
        wrong("ann makes no cluster: " + made.stderr[-300:])
    again = bob.run(*lab, "up", "--yes")
    if again.returncode != 0 or "nothing to do" not in again.stderr:
        wrong("bob does not find the cluster as ann left it: " + again.stderr[-300:])
    nodes = bob.run(*lab, "health")
    if nodes.returncode != 0:
        wrong("bob cannot look into the cluster: " + nodes.stderr[-300:])
    # Somebody brings an old state of the bucket back.
    changed = bob.run(*lab, "secrets", "encrypt")
    newest = max((work / "data" / "team").glob("prod/lab/*/generations/*.json"))
    newest.unlink()
    replayed = bob.run(*lab, "status")
    if replayed.returncode != 4 or "ICH-2142" not in replayed.stderr:
        wrong("an older generation is taken for the newest: " + replayed.stderr[-300:] + changed.stderr[-100:])
    print("one cluster, made by ann and known to bob; an older generation is refused")


def main(ichor, server, inventory, work):
    work = pathlib.Path(work)
    process, port = serve(server, work)
    try:
        judge(ichor, inventory, work, port)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
