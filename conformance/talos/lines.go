package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// printLines prints values as JSON lines on standard output.
func printLines[T any](values []T) error {
	out := bufio.NewWriter(os.Stdout)
	if err := encodeLines(out, values); err != nil {
		return err
	}

	return out.Flush()
}

// writeLines writes values as JSON lines.
func writeLines[T any](path string, values []T) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}

	return errors.Join(encodeLines(file, values), file.Close())
}

func encodeLines[T any](to io.Writer, values []T) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)

	for _, value := range values {
		if err := enc.Encode(value); err != nil {
			return err
		}
	}

	return nil
}

// readLines reads JSON lines.
func readLines[T any](path string) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}

	defer file.Close()

	var values []T

	for lines := json.NewDecoder(bufio.NewReader(file)); ; {
		var value T

		if err := lines.Decode(&value); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}

		values = append(values, value)
	}
}

// Comparison counts how far ichor's answers and the real ones agree. Kept are differences that README.md
// lists and justifies, by their reason.
type Comparison struct {
	Cases       int            `json:"cases"`
	Agree       int            `json:"agree"`
	Kept        map[string]int `json:"kept,omitempty"`
	Skipped     []string       `json:"skipped,omitempty"`
	Differences []string       `json:"differences,omitempty"`
}

// The differences that are kept.
const (
	keptForm     = "the same config in another form"
	keptUnusable = "refused where Talos writes what it cannot read"
	keptEmpty    = "an empty patch changes nothing"
)

func (c *Comparison) keep(why string) {
	if c.Kept == nil {
		c.Kept = map[string]int{}
	}

	c.Kept[why]++
}

func (c *Comparison) differ(name, why string) {
	c.Differences = append(c.Differences, name+": "+why)
}

func (c *Comparison) skip(name, why string) {
	c.Skipped = append(c.Skipped, name+": "+why)
}

func (c *Comparison) verdict() error {
	return verdict(c.Agree > 0 && len(c.Differences) == 0, c)
}
