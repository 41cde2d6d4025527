"""Lets two processes of ichor fight for the lock of a store in a real S3 server, and kills some while they hold it.

    fight.py ROUNDS ICHOR SERVER INVENTORY WORK

Each round edits the cluster's secrets: the editor is this program, which adds one to a number in a comment. The number
at the end must be that of the rounds that ended well: no more, no less. Every 25th round kills its ichor with SIGKILL
while it holds the lock. Prints what it saw, and ends with 1 at the first thing that is wrong.
"""

import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

KEY, SECRET, BUCKET = "conformance", "conformance-secret", "team"
KILL_EVERY = 25


def edit(path):
    """Is the editor."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    found = re.match(r"# count (\d+)\n", text)
    count = int(found.group(1)) if found else 0
    rest = text[found.end():] if found else text
    pathlib.Path(path).write_text(f"# count {count + 1}\n{rest}", encoding="utf-8")
    if os.environ.get("FIGHT_KILL"):
        os.kill(os.getppid(), signal.SIGKILL)


def wrong(message):
    print(message)
    sys.exit(1)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class OneWriteAtATime(http.server.BaseHTTPRequestHandler):
    """Passes everything on to the server as it is, writes one after the other.

    S3 promises that of two conditional writes at once one is refused. This server looks first and writes then, and lets
    both through if they come at the same moment.
    """

    protocol_version = "HTTP/1.1"
    writing = threading.Lock()
    server_port = None

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        inner = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=60)
        inner.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            inner.putheader(name, value)
        inner.endheaders(body)
        answer = inner.getresponse()
        content = answer.read()
        inner.close()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", answer.getheader("content-length", "0") if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def write(self):
        with self.writing:
            self.pass_on()

    do_GET = do_HEAD = do_POST = pass_on
    do_PUT = do_DELETE = write

    def log_message(self, *_):
        pass


def front(port):
    """Starts it before a server, and returns its port."""
    handler = type("Front", (OneWriteAtATime,), {"server_port": port})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def serve(server, work):
    """Starts the server, and returns it with the port of the front before it once it answers."""
    data = work / "data"
    (data / BUCKET).mkdir(parents=True)
    port = free_port()
    environment = dict(os.environ, ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET)
    log = open(work / "server.log", "wb")
    process = subprocess.Popen([server, "--port", f"127.0.0.1:{port}", "posix", str(data)], env=environment, stdout=log, stderr=log)
    for _ in range(300):
        if process.poll() is not None:
            wrong("the S3 server ended at once: " + (work / "server.log").read_text(errors="replace")[-200:])
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, front(port)
        except OSError:
            time.sleep(0.1)
    process.kill()
    wrong("the S3 server does not listen")


class Person:
    """A checkout of the inventory, as on a machine of its own."""

    def __init__(self, name, ichor, inventory, work, port):
        self.ichor, self.directory, self.name = ichor, work / name, name
        self.directory.mkdir()
        text = pathlib.Path(inventory).read_text(encoding="utf-8")
        store = f'store: "s3://{BUCKET}/prod?endpoint=http://127.0.0.1:{port}&region=us-east-1"\n'
        (self.directory / "ichor.yaml").write_text(text + store, encoding="utf-8")
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(work), "XDG_CONFIG_HOME": str(work / "config"), "USER": name,
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
            "SOPS_EDITOR": f"{sys.executable} {os.path.abspath(__file__)} --edit",
        }

    def run(self, *words, **more):
        return subprocess.run([self.ichor, *words], cwd=self.directory, env={**self.environment, **more},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)


def fight(person, rounds, tally, beats):
    for number in range(1, rounds + 1):
        kill = {"FIGHT_KILL": "1"} if number % KILL_EVERY == 0 else {}
        ended = person.run("--lock-timeout", "10m", "secrets", "edit", **kill)
        if kill and ended.returncode == -signal.SIGKILL:
            tally["killed"] += 1
        elif ended.returncode == 0 and not kill:
            tally["done"] += 1
        else:
            beats.append(f"{person.name}, round {number}: exit {ended.returncode}: {ended.stderr.strip()[:300]}")
            return


def main(rounds, ichor, server, inventory, work):
    work = pathlib.Path(work)
    process, port = serve(server, work)
    try:
        judge(int(rounds), ichor, inventory, work, port)
    finally:
        process.terminate()
        process.wait()


def judge(rounds, ichor, inventory, work, port):
    ann, bob = (Person(name, ichor, inventory, work, port) for name in ("ann", "bob"))
    refused = ann.run("secrets", "new", AWS_SECRET_ACCESS_KEY="another")
    if refused.returncode == 0 or "ICH-2140" not in refused.stderr:
        wrong("a wrong secret key was let in, so the server proves no signatures: " + refused.stderr[:200])
    made = ann.run("secrets", "new")
    if made.returncode != 0:
        wrong("no secrets: " + made.stderr[:300])
    tallies = [{"done": 0, "killed": 0}, {"done": 0, "killed": 0}]
    failures = []
    threads = [threading.Thread(target=fight, args=(person, rounds // 2, tally, failures))
               for person, tally in zip((ann, bob), tallies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        wrong(failures[0])
    done, killed = (sum(tally[key] for tally in tallies) for key in ("done", "killed"))
    seen = bob.run("secrets", "edit", SOPS_EDITOR="head -n 1").stdout
    count = int(re.search(r"# count (\d+)", seen).group(1))
    if count != done:
        wrong(f"{done} rounds ended well, and {count} are left of them")
    trail = bob.run("log", "verify", "-o", "json")
    if trail.returncode != 0:
        wrong("the audit trail is broken: " + trail.stderr[:300])
    log = json.loads(bob.run("log", "show", "--last", "100000", "-o", "json").stdout)["entries"]
    cut = sum(entry["outcome"] == "cut short" for entry in log)
    if cut != killed or killed != 2 * (rounds // 2 // KILL_EVERY):
        wrong(f"{killed} runs were killed, and the trail knows of {cut}")
    generations = list((work / "data" / BUCKET).glob("prod/*/generations/*.json"))
    if len(generations) != 10:
        wrong(f"{len(generations)} generations are kept")
    print(f"{done} rounds counted, {killed} killed with the lock in hand, {len(log)} entries in the trail")


if __name__ == "__main__":
    if sys.argv[1] == "--edit":
        edit(sys.argv[2])
    else:
        main(*sys.argv[1:])
