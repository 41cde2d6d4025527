// Command factory-judge computes schematic ids with the code of the Image Factory.
//
// Exit status: 0 the verdict is good, 1 it is not (the JSON says why), 2 the judge could not do its work.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/siderolabs/image-factory/pkg/schematic"
)

// Case is a schematic as a user writes it, with the factory's answer to it: an id, or an error.
type Case struct {
	Name      string `json:"name"`
	Schematic string `json:"schematic"`
	Canonical string `json:"canonical,omitempty"`
	ID        string `json:"id,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (c *Case) decide() {
	parsed, err := schematic.Unmarshal([]byte(c.Schematic))
	if err != nil {
		c.Error = err.Error()

		return
	}

	canonical, err := parsed.Marshal()
	if err != nil {
		c.Error = err.Error()

		return
	}

	c.Canonical = string(canonical)

	if c.ID, err = parsed.ID(); err != nil {
		c.Error = err.Error()
	}
}

func main() {
	good, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "factory-judge:", err)
		os.Exit(2)
	}

	if !good {
		os.Exit(1)
	}
}

func run(args []string) (bool, error) {
	switch {
	case len(args) >= 2 && args[0] == "schematic":
		return printFiles(args[1:])
	case len(args) == 2 && args[0] == "vectors":
		return checkVectors(args[1])
	case len(args) == 3 && args[0] == "compare":
		return compare(args[1], args[2])
	case len(args) == 3 && args[0] == "random":
		return true, printRandom(args[1], args[2])
	default:
		return false, errors.New("usage: schematic FILE... | vectors VECTORS.jsonl | random SEED COUNT | compare CASES.jsonl ANSWERS.jsonl")
	}
}

// printFiles prints the factory's answer for each file.
func printFiles(paths []string) (bool, error) {
	good := true
	out := encoder(os.Stdout)

	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}

		c := Case{Name: path, Schematic: string(text)}
		c.decide()
		good = good && c.Error == ""

		if err := out.Encode(c); err != nil {
			return false, err
		}
	}

	return good, nil
}

// checkVectors compares known ids with the factory's, and prints the ones that differ.
func checkVectors(path string) (bool, error) {
	known, err := readCases(path)
	if err != nil {
		return false, err
	}

	same := 0
	out := encoder(os.Stdout)

	for _, vector := range known {
		real := Case{Name: vector.Name, Schematic: vector.Schematic}
		real.decide()

		if real.agrees(vector) {
			same++
		} else if err := out.Encode(map[string]any{"known": vector, "real": real}); err != nil {
			return false, err
		}
	}

	return len(known) > 0 && len(known) == same, out.Encode(map[string]int{"vectors": len(known), "same": same})
}

// agrees holds when both give the same id, or both refuse; the wording of an error is not compared.
func (c Case) agrees(other Case) bool {
	return c.ID == other.ID && (c.Error == "") == (other.Error == "")
}

// Comparison counts how far ichor's answers and the factory's agree.
type Comparison struct {
	Cases       int      `json:"cases"`
	Agree       int      `json:"agree"`
	Differences []string `json:"differences,omitempty"`
}

func compare(casesPath, answersPath string) (bool, error) {
	cases, err := readCases(casesPath)
	if err != nil {
		return false, err
	}

	answers, err := readCases(answersPath)
	if err != nil {
		return false, err
	}

	ours := map[string]Case{}
	for _, c := range answers {
		ours[c.Name] = c
	}

	comparison := Comparison{Cases: len(cases)}

	for _, want := range cases {
		if got, answered := ours[want.Name]; answered && want.agrees(got) {
			comparison.Agree++
		} else {
			comparison.Differences = append(comparison.Differences, fmt.Sprintf(
				"%s: %s: the factory says %q%q, ichor %q%q", want.Name, want.Schematic, want.ID, want.Error, got.ID, got.Error))
		}
	}

	return comparison.Cases > 0 && comparison.Agree == comparison.Cases, encoder(os.Stdout).Encode(comparison)
}

func readCases(path string) ([]Case, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}

	defer file.Close()

	var cases []Case

	for lines := json.NewDecoder(bufio.NewReader(file)); ; {
		var c Case

		if err := lines.Decode(&c); errors.Is(err, io.EOF) {
			return cases, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}

		cases = append(cases, c)
	}
}

// printRandom prints random schematics with their ids. Same seed, same schematics.
func printRandom(seedText, countText string) error {
	seed, err := strconv.ParseUint(seedText, 10, 64)
	if err != nil {
		return err
	}

	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}

	out := encoder(os.Stdout)
	random := rand.New(rand.NewPCG(seed, 0))

	for n := range count {
		// JSON is YAML: the factory reads it, and no encoder of ours has a say in the input.
		text, err := json.Marshal(randomSchematic(random))
		if err != nil {
			return err
		}

		c := Case{Name: fmt.Sprintf("%d/%d", seed, n), Schematic: string(text)}
		c.decide()

		if err := out.Encode(c); err != nil {
			return err
		}
	}

	return nil
}

// awkward strings test the quoting rules. Left out are those that releases of the factory quote in different
// ways (on, off, yes, no, y, n, 12:30, <<): ichor says of such a schematic that its id is not certain.
var awkward = []string{
	"noapic", "console=ttyS0,115200n8", "-init_on_alloc", "ip=10.0.0.11::10.0.0.1:255.255.255.0:cp-1:eth0:off",
	"true", "null", "~", "", "123", "1.5", "0x10", "2026-01-01", "a: b", "a #b", "#c", "- d", "?q", "it's", "\"x\"",
	"{\"addresses\":[{\"address\":\"10.0.0.11/16\"}]}", "[x]", "*y", "&z", "!t", "|", ">", "%p", "@a", "`b`", " lead", "trail ", "end:",
	"a: b\nc: d\n", "a: b\nc: d", "a\n\n", "tab\there", "üñí", "a=b&c=d", ".inf", "1e3", "0o7", "=",
}

var extensions = []string{
	"siderolabs/qemu-guest-agent", "siderolabs/iscsi-tools", "siderolabs/util-linux-tools", "siderolabs/tailscale", "siderolabs/intel-ucode",
}

func randomSchematic(random *rand.Rand) map[string]any {
	some := func(list []string) []string {
		var chosen []string

		for range random.IntN(4) {
			chosen = append(chosen, list[random.IntN(len(list))])
		}

		return chosen
	}

	customization := map[string]any{}

	if args := some(awkward); len(args) > 0 {
		customization["extraKernelArgs"] = args
	}

	if names := some(extensions); len(names) > 0 {
		customization["systemExtensions"] = map[string]any{"officialExtensions": names}
	}

	if values := some(awkward); len(values) > 0 {
		var meta []any

		for n, value := range values {
			meta = append(meta, map[string]any{"key": 10 + n, "value": value})
		}

		customization["meta"] = meta
	}

	if random.IntN(4) == 0 {
		customization["secureboot"] = map[string]any{"includeWellKnownCertificates": random.IntN(2) == 0}
	}

	return map[string]any{"customization": customization}
}

func encoder(to io.Writer) *json.Encoder {
	out := json.NewEncoder(to)
	out.SetEscapeHTML(false)

	return out
}
