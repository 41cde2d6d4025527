"""Cases and judge for cidata volumes, with pycdlib as the reader.

    judge.py cases SEED            prints JSON lines: the files of 50 volumes
    judge.py compare CASES ANSWERS reads every volume back, in both of its trees
    judge.py real CASES            writes volumes with pycdlib, and must accept them whole and refuse them damaged
"""

import base64
import io
import json
import random
import sys

import pycdlib

NAMES = ["user-data", "meta-data", "network-config"]
EDGES = [0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 2 << 20]
LABEL = "cidata"


def cases(seed, count=50):
    draw = random.Random(seed)
    for number in range(count):
        sizes = [draw.choice(EDGES[:-1] + [draw.randrange(100_000)]) for _ in NAMES]
        if number < len(EDGES):
            sizes[number % len(NAMES)] = EDGES[number]
        files = {name: text(draw, size) for name, size in zip(NAMES, sizes)}
        yield {"name": f"volume-{number}", "files": files}


def text(draw, size):
    """Characters of one byte, so that a size is a size; a line of noise is enough to notice what is moved."""
    noise = "".join(chr(draw.randrange(32, 127)) for _ in range(min(size, 997)))
    return (noise * (size // 997 + 1))[:size]


def flaws(image, files):
    """Says everything that is wrong with a volume."""
    if len(image) % 2048:
        return [f"{len(image)} bytes are no whole sectors"]
    disc = pycdlib.PyCdlib()
    try:
        disc.open_fp(io.BytesIO(image))
    except (pycdlib.pycdlibexception.PyCdlibException, ValueError, IndexError) as error:
        return [f"pycdlib does not open it: {error}"]
    found = []
    if not disc.has_joliet():
        return ["there are no Joliet names"]
    for what, label in [
        ("plain", disc.pvd.volume_identifier.decode("ascii").rstrip()),
        ("Joliet", disc.joliet_vd.volume_identifier.decode("utf-16_be").rstrip()),
    ]:
        if label != LABEL:
            found.append(f"the {what} label is {label!r}")
    if disc.pvd.space_size * 2048 != len(image):
        found.append(f"it says {disc.pvd.space_size} sectors and has {len(image) // 2048}")
    trees = [("joliet_path", lambda name: f"/{name}"), ("iso_path", lambda name: f"/{name.upper()}.;1")]
    for key, path in trees:
        there = sum(1 for child in disc.list_children(**{key: "/"}) if not child.is_dot() and not child.is_dotdot())
        if there != len(files):
            found.append(f"{there} files by {key}, not {len(files)}")
        for name, content in files.items():
            out = io.BytesIO()
            try:
                disc.get_file_from_iso_fp(out, **{key: path(name)})
            except (pycdlib.pycdlibexception.PyCdlibException, ValueError) as error:
                found.append(f"{name} by {key}: {error}")
                continue
            if out.getvalue() != content.encode():
                found.append(f"{name} by {key} differs")
    disc.close()
    return found


def written_by_pycdlib(files):
    disc = pycdlib.PyCdlib()
    # At the other levels pycdlib writes no name with a hyphen.
    disc.new(interchange_level=4, joliet=3, vol_ident=LABEL)
    for name, content in files.items():
        data = content.encode()
        disc.add_fp(io.BytesIO(data), len(data), f"/{name.upper()}.;1", joliet_path=f"/{name}")
    out = io.BytesIO()
    disc.write_fp(out)
    disc.close()
    return out.getvalue()


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def compare(wanted, answered):
    answers = {answer["name"]: answer for answer in lines(answered)}
    wrong = []
    all_cases = lines(wanted)
    for case in all_cases:
        answer = answers.get(case["name"], {})
        if "image" not in answer:
            wrong.append(f"{case['name']}: {answer.get('error', 'no answer')}")
            continue
        image = base64.b64decode(answer["image"])
        wrong += [f"{case['name']}: {flaw}" for flaw in flaws(image, case["files"])]
    print("\n".join(wrong) or f"{len(all_cases)} volumes read back")
    return not wrong and bool(all_cases)


def real(wanted):
    files = next(case["files"] for case in lines(wanted) if all(case["files"].values()))
    image = written_by_pycdlib(files)
    sound = flaws(image, files)
    if sound:
        print(f"a sound volume was refused: {sound[0]}")
        return False
    damages = {
        "content": image.index(files["user-data"][:16].encode()),
        "plain label": image.index(LABEL.encode()),
        "Joliet label": image.index(LABEL.encode("utf-16_be")),
        "plain name": image.index(b"USER-DATA."),
        "Joliet name": image.index("user-data".encode("utf-16_be")),
    }
    for what, at in damages.items():
        damaged = image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :]
        if not flaws(damaged, files):
            print(f"a damaged {what} was not noticed")
            return False
    if not flaws(image[:-2048], files):
        print("a missing sector was not noticed")
        return False
    print(f"{len(damages) + 1} damages noticed")
    return True


def main(arguments):
    match arguments:
        case ["cases", seed]:
            for one in cases(int(seed)):
                print(json.dumps(one))
            return 0
        case ["compare", wanted, answered]:
            return 0 if compare(wanted, answered) else 1
        case ["real", wanted]:
            return 0 if real(wanted) else 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
