"""A door into another network: every connection to a port of this computer gets an sshd of its own, inside.

gate.py PID LOG COMMAND...: listens on loopback, prints the port, and runs the command with each connection as its
standard input and output, in the network namespace of the process PID. SIGUSR1 kills every connection that is open.
"""

import os
import signal
import socket
import subprocess
import sys
import threading

pid, log, command = sys.argv[1], sys.argv[2], sys.argv[3:]
visits = []


def tear(_signal, _frame):
    for visit in visits:
        if visit.poll() is None:
            os.killpg(visit.pid, signal.SIGKILL)


def attend(connection):
    with open(log, "ab") as errors:
        visit = subprocess.Popen(
            ["nsenter", "--target", pid, "--net", *command],
            stdin=connection, stdout=connection, stderr=errors, start_new_session=True,
        )
    connection.close()
    visits.append(visit)
    visit.wait()


signal.signal(signal.SIGUSR1, tear)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    print("visit", flush=True)
    threading.Thread(target=attend, args=(connection,), daemon=True).start()
