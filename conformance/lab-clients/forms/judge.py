"""Judges the forms and queries that a client sent to Proxmox: `judge.py FOLDER`, as listen.py left it.

Each is taken apart by urllib, strictly, and must be what requests (and so proxmoxer) sends for the same parameters, except
that a space may be `+` or `%20`. Proxmox also splits at `;` and at a second `=`: what is encoded like this does neither.
Prints how many there were, and how many characters of them had to be encoded.
"""

import itertools
import pathlib
import re
import sys
import urllib.parse

import requests

LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
KIND = re.compile(rb"(?i)\r\ncontent-type: *([^\r;]+)")


def requests_in(sent):
    """Methods, targets, kinds and bodies of the requests of a connection."""
    while sent:
        head, found, rest = sent.partition(b"\r\n\r\n")
        if not found:
            sys.exit(f"a request is cut off: {head[:80]!r}")
        method, target, _ = head.split(b"\r\n")[0].split(b" ")
        length = int(match.group(1)) if (match := LENGTH.search(head)) else 0
        if b"\r\nupgrade: websocket" in head.lower():
            return
        kind = match.group(1).strip() if (match := KIND.search(head)) else b""
        yield method.decode(), target.decode("ascii"), kind.decode(), rest[:length]
        sent = rest[length:]


def judge(what, text):
    """How many parameters a form has, and how many of its characters are encoded."""
    try:
        pairs = urllib.parse.parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError as error:
        sys.exit(f"{what}: {error}")
    theirs = requests.Request("POST", "http://pve.example", data=pairs).prepare().body
    for mine, its in itertools.zip_longest(text.split("&"), theirs.split("&")):
        if mine is None or its is None or mine.replace("+", "%20") != its.replace("+", "%20"):
            sys.exit(f"{what}: {mine} is sent by requests as {its}")
    return len(pairs), text.count("%")


def main():
    forms = parameters = encoded = 0
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.bin")):
        for method, target, kind, body in requests_in(path.read_bytes()):
            place, _, query = target.partition("?")
            texts = [query] if query else []
            if body and kind == "application/x-www-form-urlencoded":
                texts.append(body.decode("ascii"))
            for text in texts:
                count, signs = judge(f"{method} {place}", text)
                forms, parameters, encoded = forms + 1, parameters + count, encoded + signs
    if not encoded:
        sys.exit("nothing was sent that had to be encoded")
    print(f"{forms} forms and queries with {parameters} parameters, {encoded} characters encoded")


main()
