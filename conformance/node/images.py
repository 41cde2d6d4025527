"""A registry of images that are made here, each of one layer: `images.py ADDRESS PORT IMAGES`.

IMAGES is a JSON file: for each `name:tag` the files of the image by their paths, and links with `-> target`. Nothing can
be pushed, and what is not in the list is not there. Each request becomes a line on standard error.
"""

import hashlib
import http.server
import io
import json
import os
import sys
import tarfile
import tempfile

INDEX = "application/vnd.oci.image.manifest.v1+json"


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Layer:
    """A layer in a file, because programs are large."""

    def __init__(self, files):
        self.file = tempfile.TemporaryFile()
        with tarfile.open(fileobj=self.file, mode="w") as archive:
            made = set()
            for path, source in sorted(files.items()):
                parts = path.split("/")[:-1]
                for depth in range(1, len(parts) + 1):
                    self.folder(archive, "/".join(parts[:depth]), made)
                if source == "/":
                    self.folder(archive, path.rstrip("/"), made)
                elif source.startswith("-> "):
                    entry = tarfile.TarInfo(path)
                    entry.type, entry.linkname = tarfile.SYMTYPE, source[3:]
                    archive.addfile(entry)
                elif source.startswith("= "):
                    entry, text = tarfile.TarInfo(path), source[2:].encode()
                    entry.size, entry.mode = len(text), 0o644
                    archive.addfile(entry, io.BytesIO(text))
                else:
                    entry = tarfile.TarInfo(path)
                    entry.size, entry.mode = os.path.getsize(source), 0o755
                    with open(source, "rb") as content:
                        archive.addfile(entry, content)
        self.size = self.file.tell()
        self.file.seek(0)
        self.digest = "sha256:" + hashlib.file_digest(self.file, "sha256").hexdigest()

    @staticmethod
    def folder(archive, path, made):
        if path and path not in made:
            made.add(path)
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)

    def send(self, out):
        offset = 0
        while offset < self.size:
            piece = os.pread(self.file.fileno(), 1 << 20, offset)
            offset += len(piece)
            out.write(piece)


def image(files, layers, blobs):
    layer = Layer(files)
    layers[layer.digest] = layer
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": ["/pause"] if "pause" in files else None},
    }).encode()
    blobs[digest(config)] = config
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": INDEX,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer.digest, "size": layer.size}],
    }).encode()
    blobs[digest(manifest)] = manifest
    return manifest


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, kind, content, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Docker-Content-Digest", content.digest if isinstance(content, Layer) else digest(content))
        self.send_header("Content-Length", str(content.size if isinstance(content, Layer) else len(content)))
        self.end_headers()
        if body and isinstance(content, Layer):
            content.send(self.wfile)
        elif body:
            self.wfile.write(content)

    def look(self, body):
        path = self.path.partition("?")[0]
        name, _, wanted = path.removeprefix("/v2/").rpartition("/")
        if path == "/v2/":
            return self.answer(200, "application/json", b"{}", body)
        if name.endswith("/manifests"):
            found = self.server.manifests.get(f"{name.removesuffix('/manifests')}:{wanted}") or self.server.blobs.get(wanted)
            if found:
                return self.answer(200, INDEX, found, body)
        if name.endswith("/blobs"):
            found = self.server.blobs.get(wanted) or self.server.layers.get(wanted)
            if found:
                return self.answer(200, "application/octet-stream", found, body)
        return self.answer(404, "application/json", b'{"errors":[{"code":"NAME_UNKNOWN"}]}', body)

    def do_GET(self):
        self.look(True)

    def do_HEAD(self):
        self.look(False)


def main():
    address, port, described = sys.argv[1:]
    server = http.server.ThreadingHTTPServer((address, int(port)), Registry)
    server.daemon_threads = True
    server.layers, server.blobs = {}, {}
    with open(described, encoding="utf-8") as file:
        images = json.load(file)
    server.manifests = {name: image(files, server.layers, server.blobs) for name, files in images.items()}
    print("serving", flush=True)
    server.serve_forever()


main()
