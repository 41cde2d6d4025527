//go:build from_1_13 && !from_1_14

package main

import "github.com/siderolabs/talos/pkg/machinery/config/generate"

func (o Options) kubeSpan() ([]generate.Option, error) {
	if o.KubeSpan == nil {
		return nil, nil
	}

	return []generate.Option{generate.WithKubeSpanEnabled(*o.KubeSpan)}, nil
}
