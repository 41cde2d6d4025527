//go:build from_1_14

package main

import (
	"errors"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

func (o Options) forThisVersion() ([]generate.Option, error) {
	var list []generate.Option

	if o.CNINone {
		return nil, errors.New("this generator has no option for a cluster without CNI: patch KubeFlannelCNIConfig away")
	}

	if o.CustomCNIURL != "" {
		list = append(list, generate.WithCustomCNIUrl(o.CustomCNIURL))
	}

	if o.KubeSpan != nil {
		list = append(list, generate.WithKubeSpanEnabled(*o.KubeSpan))
	}

	return list, nil
}

// asNode are the options that come nearest to what a node checks: with WithLocal these releases leave out
// whether they run the Kubernetes that a config names.
func asNode() []validation.Option { return nil }

func bundleFromConfig(provider config.Provider) (*secrets.Bundle, error) {
	return secrets.NewBundleFromConfig(secrets.NewClock(), provider)
}
