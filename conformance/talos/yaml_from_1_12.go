//go:build from_1_12

package main

import "go.yaml.in/yaml/v4"

// The YAML library of this Talos release.
var (
	marshalYAML   = yaml.Marshal
	unmarshalYAML = yaml.Unmarshal
)
