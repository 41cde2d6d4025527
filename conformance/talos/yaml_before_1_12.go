//go:build !from_1_12

package main

import "gopkg.in/yaml.v3"

// The YAML library of this Talos release.
var (
	marshalYAML   = yaml.Marshal
	unmarshalYAML = yaml.Unmarshal
)
