package main

import (
	"fmt"
	"os"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

// mode is Talos' runtime mode; the real type lives in a package that cannot be imported.
type mode string

func (m mode) String() string        { return string(m) }
func (m mode) RequiresInstall() bool { return m == "metal" }
func (m mode) InContainer() bool     { return m == "container" }

// Validation is the verdict on one file.
type Validation struct {
	File     string   `json:"file"`
	Valid    bool     `json:"valid"`
	Error    string   `json:"error,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

func cmdValidate(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	if args[0] != "metal" && args[0] != "cloud" && args[0] != "container" {
		return fmt.Errorf("unknown mode %q", args[0])
	}

	good := true
	list := make([]Validation, 0, len(args)-1)

	for _, file := range args[1:] {
		v := Validation{File: file}

		var err error

		v.Warnings, err = validateFile(mode(args[0]), file)
		v.Error = message(err)
		v.Valid = err == nil
		good = good && v.Valid
		list = append(list, v)
	}

	return verdict(good, list)
}

// validateFile does what `talosctl validate` does.
func validateFile(m mode, file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	return validateText(m, data, validation.WithLocal())
}

func validateText(m mode, text []byte, options ...validation.Option) ([]string, error) {
	provider, err := configloader.NewFromBytes(text)
	if err != nil {
		return nil, err
	}

	return provider.Validate(m, options...)
}
