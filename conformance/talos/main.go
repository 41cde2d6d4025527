// Command talos-judge lets the code of one Talos release judge files.
//
// It is built once per release from the same source: versions/v1.N.mod pins the release, and the build
// tags from_1_N say which interface differences apply (see compat_*.go). Every subcommand prints one JSON
// value, or JSON lines, on standard output. Exit status: 0 the verdict is good, 1 it is not (the JSON says
// why), 2 the judge could not do its work.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

// errVerdict says that the judge did its work and the answer is no.
var errVerdict = errors.New("the verdict is negative")

type command struct {
	name, usage string
	run         func(args []string) error
}

var commands = []command{
	{"version", "", cmdVersion},
	{"generate", "REQUEST.json|-", cmdGenerate},
	{"generate-cases", "SECRETS [MODULE_DIR]", cmdGenerateCases},
	{"generate-compare", "CASES.jsonl ANSWERS.jsonl", cmdGenerateCompare},
	{"golden", "MODULE_DIR", cmdGolden},
	{"validate", "metal|cloud|container FILE...", cmdValidate},
	{"validate-compare", "CASES.jsonl ANSWERS.jsonl", cmdValidateCompare},
	{"patch", "CONFIG PATCH...", cmdPatch},
	{"patch-fixtures", "MODULE_DIR [CASES.jsonl]", cmdPatchFixtures},
	{"patch-random", "SEED COUNT [SECRETS]", cmdPatchRandom},
	{"patch-compare", "CASES.jsonl ANSWERS.jsonl", cmdPatchCompare},
	{"secrets", "FILE", cmdSecrets},
	{"gen-secrets", "CONTRACT", cmdGenSecrets},
	{"import-secrets", "CONTROLPLANE.yaml", cmdImportSecrets},
	{"talosconfig", "FILE", cmdTalosconfig},
	{"gen-talosconfig", "SECRETS CLUSTER ROLE[,ROLE] [ENDPOINT...]", cmdGenTalosconfig},
	{"broken-talosconfig", "SECRETS server-usage|both-usages|no-usage|expired", cmdBrokenTalosconfig},
	{"handshake", "SECRETS TALOSCONFIG [CONTEXT]", cmdHandshake},
	{"serve", "SECRETS [ADDRESS]", cmdServe},
	{"kubeconfig", "SECRETS FILE", cmdKubeconfig},
	{"pem", "SECRETS OUT_DIR", cmdPEM},
	{"same", "EXPECTED ACTUAL", cmdSame},
}

func main() {
	err := dispatch(os.Args[1:])

	switch {
	case err == nil:
	case errors.Is(err, errVerdict):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "talos-judge:", err)
		os.Exit(2)
	}
}

func dispatch(args []string) error {
	if len(args) > 0 {
		for _, c := range commands {
			if c.name == args[0] {
				return c.run(args[1:])
			}
		}
	}

	fmt.Fprintf(os.Stderr, "talos-judge for Talos %s\n", gendata.VersionTag)

	for _, c := range commands {
		fmt.Fprintf(os.Stderr, "  %s %s\n", c.name, c.usage)
	}

	return errors.New("no such subcommand")
}

func cmdVersion([]string) error {
	return printJSON(map[string]any{"talos": gendata.VersionTag, "contracts": contracts()})
}

func printJSON(value any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)

	return enc.Encode(value)
}

// verdict prints the report and turns "not all good" into the exit status.
func verdict(good bool, report any) error {
	if err := printJSON(report); err != nil {
		return err
	}

	if !good {
		return errVerdict
	}

	return nil
}

func readInput(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(os.Stdin)
	}

	return os.ReadFile(path)
}

// needArgs refuses a call with too few arguments.
func needArgs(args []string, count int) error {
	if len(args) < count {
		return fmt.Errorf("needs %d arguments, got %d", count, len(args))
	}

	return nil
}

// message is the text of an error, empty for none; JSON carries text only.
func message(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}
