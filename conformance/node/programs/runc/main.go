// Stands before runc, for machines that are less than Talos expects. Where CAP_SYS_RESOURCE is missing, containers that
// want to be spared when memory runs out, or to have that capability, could not start. Where control groups are of the
// first version, each controller is a mount of its own, which the kubelet would not see. It changes the bundle, and
// becomes runc.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The real one, beside this program.
const real = "/usr/bin/runc.real"

func main() {
	if slices.Contains(os.Args, "create") || slices.Contains(os.Args, "run") {
		if err := temper(filepath.Join(bundle(os.Args), "config.json")); err != nil {
			fmt.Fprintln(os.Stderr, "runc:", err)
			os.Exit(1)
		}
	}
	// For `exec`, the process is described in a file of its own.
	if file := option(os.Args, "process"); file != "" {
		if err := temper(file); err != nil {
			fmt.Fprintln(os.Stderr, "runc:", err)
			os.Exit(1)
		}
	}
	err := syscall.Exec(real, append([]string{"runc"}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, "runc:", err)
	os.Exit(1)
}

func bundle(arguments []string) string {
	for _, name := range []string{"bundle", "b"} {
		if folder := option(arguments, name); folder != "" {
			return folder
		}
	}
	return "."
}

func option(arguments []string, name string) string {
	for index, argument := range arguments {
		flag, value, joined := strings.Cut(argument, "=")
		if flag != "--"+name && flag != "-"+name {
			continue
		}
		if joined {
			return value
		}
		if index+1 < len(arguments) {
			return arguments[index+1]
		}
	}
	return ""
}

func temper(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	// Limits of memory are larger than what a float can hold.
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&spec); err != nil {
		return err
	}
	process, nested := spec["process"].(map[string]any)
	if !nested {
		process = spec
	}
	if _, set := process["oomScoreAdj"]; set {
		process["oomScoreAdj"] = 0
	}
	// Nor can hard limits be raised.
	delete(process, "rlimits")
	if sets, ok := process["capabilities"].(map[string]any); ok {
		for name, set := range sets {
			if names, ok := set.([]any); ok {
				sets[name] = slices.DeleteFunc(names, func(it any) bool { return it == "CAP_SYS_RESOURCE" })
			}
		}
	}
	if mounts, ok := spec["mounts"].([]any); ok {
		for _, it := range mounts {
			if mount, ok := it.(map[string]any); ok && mount["destination"] == "/sys/fs/cgroup" && mount["type"] == "bind" {
				mount["options"] = []string{"rbind", "rw"}
			}
		}
	}
	text, err = json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
