"""Random documents for sops and ichor, sealed by one and opened by the other.

judge.py COUNT SEED SOPS AGE_KEYGEN SEALER FOLDER: says what was compared; ends with 1 at the first difference.
"""

import json
import os
import random
import string
import subprocess
import sys

WHEN = "2026-11-16T00:00:00Z"
# Without the line breaks of YAML 1.1 alone, such as U+2028: sops folds lines at them, and YAML 1.2 does not.
HOSTILE = [
    "", " ", "~", "null", "yes", "no", "on", "true", "False", "010", "0x1F", "1_000", "1e3", ".5", "-", "- a", "a: b",
    "a #b", "#a", "*a", "&a", "!a", "%a", "@a", "`a", "'a'", '"a"', "{a}", "[a]", "2024-01-01", "12:30", "<<", "=",
    "a\nb", "a\nb\n", "\na", "a\n\n", " a", "a ", "\ta", "a\tb", "é", "日本", "😀", "\u0001", "\u007f",
    "\ufeff", "\\", "a\\nb", "ENC[x]", "sops", "\r\n", "line  \nline", "-----BEGIN X-----\nAAAA\n-----END X-----\n",
]


def word(rng):
    if rng.random() < 0.5:
        return rng.choice(HOSTILE)
    return "".join(rng.choice(string.printable[:95]) for _ in range(rng.randrange(1, 40)))


def scalar(rng):
    return rng.choice([
        lambda: word(rng), lambda: word(rng), lambda: word(rng),
        lambda: rng.randrange(-2**63, 2**63), lambda: rng.randrange(-100, 100),
        lambda: rng.uniform(-1e6, 1e6), lambda: rng.random() < 0.5, lambda: None,
    ])()


def value(rng, depth):
    dice = rng.random()
    if depth > 3 or dice < 0.6:
        return scalar(rng)
    if dice < 0.8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return mapping(rng, depth + 1, 4)


def key(rng):
    text = rng.choice([word(rng), "name", "token", "data"]) + rng.choice(["", "", "_unencrypted", "_secret"])
    return text if text not in ("sops", "<<") else "other"


def mapping(rng, depth, most):
    return {key(rng): value(rng, depth) for _ in range(rng.randrange(most + 1))}


class Writer:
    """YAML by hand: every value in quotes or bare where that is safe, and comments around them."""

    def __init__(self, rng):
        self.rng, self.lines, self.comments = rng, [], []

    def comment(self, indent):
        if self.rng.random() < 0.3:
            text = f"comment {len(self.comments)} of this file"
            self.comments.append(text)
            self.lines.append(" " * indent + "# " + text)

    def bare(self, item):
        return json.dumps(item, ensure_ascii=True) if not isinstance(item, float) else repr(item)

    def text(self, item):
        # JSON's escapes are YAML's, but for pairs of surrogates.
        return json.dumps(item, ensure_ascii=False).replace("\u007f", "\\x7f").replace("\ufeff", "\\uFEFF")

    def one(self, item):
        return self.text(item) if isinstance(item, str) else self.bare(item)

    def mapping(self, items, indent):
        for name, item in items.items():
            self.comment(indent)
            self.entry(" " * indent + self.text(name) + ":", item, indent)

    def entry(self, head, item, indent):
        if isinstance(item, dict) and item:
            self.lines.append(head)
            self.mapping(item, indent + 2)
        elif isinstance(item, list) and item:
            self.lines.append(head)
            for inner in item:
                # Of two comments around the dash of a list or map in a list, sops loses one.
                if not isinstance(inner, (dict, list)):
                    self.comment(indent + 2)
                self.entry(" " * (indent + 2) + "-", inner, indent + 4)
        else:
            tail = ""
            if self.rng.random() < 0.2 and not isinstance(item, (dict, list)):
                text = f"comment {len(self.comments)} behind"
                self.comments.append(text)
                tail = " # " + text
            self.lines.append(f"{head} {self.one(item)}{tail}")

    def write(self, document):
        self.comment(0)
        self.mapping(document, 0)
        return "\n".join(self.lines) + "\n"


class Case:
    def __init__(self, rng, number):
        self.name = f"{number:03}"
        self.document = mapping(rng, 0, 6)
        self.document.setdefault("name", "lab")
        self.form = "json" if number % 4 == 3 else "yaml"
        writer = Writer(rng)
        yaml = writer.write(self.document)
        self.text = json.dumps(self.document, ensure_ascii=number % 8 == 3) if self.form == "json" else yaml
        self.comments = writer.comments if self.form == "yaml" else []
        self.rule, self.rule_text = rng.choice([
            ("", ""), ("", ""), ("unencrypted_suffix", "_unencrypted"), ("encrypted_suffix", "_secret"),
            ("encrypted_regex", "^(data|token)"), ("unencrypted_regex", "^(data|token)"),
        ])
        self.mac_only_encrypted = rng.random() < 0.3
        self.with_ssh = rng.random() < 0.3

    def creation_rules(self, recipients):
        rule = {"age": ",".join(recipients), "mac_only_encrypted": self.mac_only_encrypted}
        if self.rule:
            rule[self.rule] = self.rule_text
        return json.dumps({"creation_rules": [rule]})


class Judge:
    def __init__(self, sops, keygen, sealer, folder):
        self.sops, self.sealer, self.folder = sops, sealer, folder
        self.keys = os.path.join(folder, "keys.txt")
        subprocess.run([keygen, "-o", self.keys], check=True, stderr=subprocess.DEVNULL)
        self.recipient = subprocess.run([keygen, "-y", self.keys], check=True, capture_output=True, text=True).stdout.strip()
        self.other = os.path.join(folder, "other.txt")
        subprocess.run([keygen, "-o", self.other], check=True, stderr=subprocess.DEVNULL)
        self.second = subprocess.run([keygen, "-y", self.other], check=True, capture_output=True, text=True).stdout.strip()
        self.ssh = os.path.join(folder, "id_ed25519")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "judge", "-f", self.ssh], check=True)
        with open(self.ssh + ".pub", encoding="utf-8") as file:
            self.ssh_recipient = " ".join(file.read().split()[:2])

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": self.folder, **more}

    def run_sops(self, *words, **env):
        done = subprocess.run([self.sops, *words], env=self.environment(**env), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Different(f"sops {words[0]}: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def ask(self, **case):
        done = subprocess.run([self.sealer], input=json.dumps(case) + "\n", capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def must(self, **case):
        answer = self.ask(**case)
        if "error" in answer:
            raise Different(f"ichor {case['do']}: {answer['error']}")
        return answer

    def put(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def by(self, case):
        """Who opens a case: its key of SSH, or that of age."""
        if case.with_ssh:
            return {"SOPS_AGE_SSH_PRIVATE_KEY_FILE": self.ssh}, {"ssh": open(self.ssh, encoding="utf-8").read()}
        return {"SOPS_AGE_KEY_FILE": self.keys}, {"identities": open(self.keys, encoding="utf-8").read()}

    def one(self, case):
        file = f"{case.name}.{case.form}"
        env, own = self.by(case)
        wanted = [self.ssh_recipient, self.second] if case.with_ssh else [self.second, self.recipient]
        base = {"name": case.name, "file": file, "when": WHEN}

        plain = self.put(file, case.text)
        rules = self.put("rules.yaml", case.creation_rules(wanted))
        theirs = self.run_sops("--config", rules, "encrypt", plain)
        path = self.put("theirs-" + file, theirs)
        try:
            again = self.run_sops("decrypt", path, **env)
        except Different:
            # Some texts of several lines in lists become YAML that sops itself cannot read.
            return False
        # It also loses some comments in lists of lists.
        kept = [comment for comment in case.comments if comment in again]
        opened = self.must(do="open", text=theirs, **own, **base)
        self.same(case, json.loads(opened["json"]), "theirs, opened by ichor")
        self.commented(kept, opened["text"], "theirs, opened by ichor")

        ours = self.must(
            do="seal", text=case.text, recipients=wanted, rule=case.rule, rule_text=case.rule_text,
            mac_only_encrypted=case.mac_only_encrypted, **base)["text"]
        path = self.put("ours-" + file, ours)
        self.same(case, json.loads(self.run_sops("decrypt", "--output-type", "json", path, **env)), "ours, opened by sops")
        if case.form == "yaml":
            self.commented(kept, self.run_sops("decrypt", path, **env), "ours, opened by sops")
        opened = self.must(do="open", text=ours, **own, **base)
        self.same(case, json.loads(opened["json"]), "ours, opened by ichor")
        self.commented(case.comments, opened["text"], "ours, opened by ichor")

        # A new key by either of them, and the other one opens it.
        path = self.put("turned-" + file, theirs)
        self.run_sops("rotate", "-i", "--add-age", self.recipient, path, **env)
        turned = open(path, encoding="utf-8").read()
        opened = self.must(do="open", text=turned, identities=open(self.keys, encoding="utf-8").read(), **base)
        self.same(case, json.loads(opened["json"]), "rotated by sops")
        turned = self.must(do="rotate", text=ours, recipients=[self.second], **own, **base)["text"]
        path = self.put("turned-" + file, turned)
        opened = self.run_sops("decrypt", "--output-type", "json", path, SOPS_AGE_KEY_FILE=self.other)
        self.same(case, json.loads(opened), "rotated by ichor")
        refused = self.ask(do="open", text=turned, **own, **base)
        if refused.get("kind") != "NoKey":
            raise Different(f"a key that was taken out still opens: {refused.get('kind')}")
        return True

    def damaged(self, case, rng):
        """Both refuse a file in which one character of a value was changed."""
        file = f"{case.name}.{case.form}"
        ours = self.must(
            do="seal", text=case.text, recipients=[self.recipient], name=case.name, file=file, when=WHEN)["text"]
        places = [i for i in range(len(ours)) if ours.startswith("data:", i)]
        place = rng.choice(places) + 5
        other = "A" if ours[place] != "A" else "B"
        broken = ours[:place] + other + ours[place + 1:]
        answer = self.ask(do="open", text=broken, identities=open(self.keys, encoding="utf-8").read(), name="x", file=file)
        path = self.put("broken-" + file, broken)
        done = subprocess.run(
            [self.sops, "decrypt", path], env=self.environment(SOPS_AGE_KEY_FILE=self.keys), capture_output=True, check=False)
        return "error" in answer, done.returncode != 0

    def same(self, case, data, what):
        if normal(data) != normal(case.document):
            raise Different(f"{what}: {json.dumps(normal(case.document))[:300]} became {json.dumps(normal(data))[:300]}")

    def commented(self, comments, text, what):
        missing = [comment for comment in comments if comment not in text]
        if missing:
            raise Different(f"{what}: {missing[0]!r} is gone")


class Different(Exception):
    pass


def normal(data):
    """Numbers that are the same are the same: 1.0 is written as 1 by sops."""
    if isinstance(data, dict):
        return {name: normal(item) for name, item in data.items()}
    if isinstance(data, list):
        return [normal(item) for item in data]
    if isinstance(data, float) and data == int(data) and abs(data) < 2**53:
        return int(data)
    return data


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    judge = Judge(*sys.argv[3:7])
    rng = random.Random(seed)
    number = compared = refused = 0
    while compared < count:
        case = Case(rng, number)
        number += 1
        try:
            compared += judge.one(case)
            if number % 5 == 0:
                ours, theirs = judge.damaged(case, rng)
                # A damaged comment is no reason for sops to refuse, and none for ichor.
                if ours != theirs:
                    raise Different(f"damaged: ichor refuses: {ours}, sops refuses: {theirs}")
                refused += ours
        except Different as error:
            print(f"document {number - 1}: {error}")
            return 1
    print(f"{count} documents both ways, rotated by both; {refused} damaged ones refused by both; "
          f"{number - count} that sops cannot read back left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
