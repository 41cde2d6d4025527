//go:build !from_1_13

package main

import (
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// kubeSpan was an option of the network before it became one of the generator.
func (o Options) kubeSpan() ([]generate.Option, error) {
	if o.KubeSpan == nil || !*o.KubeSpan {
		return nil, nil
	}

	return []generate.Option{generate.WithNetworkOptions(v1alpha1.WithKubeSpan())}, nil
}
