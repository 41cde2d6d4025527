//go:build !from_1_14

package main

import (
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

func (o Options) forThisVersion() ([]generate.Option, error) {
	var list []generate.Option

	if o.CNINone {
		list = append(list, generate.WithClusterCNIConfig(&v1alpha1.CNIConfig{CNIName: "none"}))
	}

	if o.CustomCNIURL != "" {
		list = append(list, generate.WithClusterCNIConfig(&v1alpha1.CNIConfig{
			CNIName: "custom",
			CNIUrls: []string{o.CustomCNIURL},
		}))
	}

	kubeSpan, err := o.kubeSpan()

	return append(list, kubeSpan...), err
}

// asNode are the options that come nearest to what a node checks: without WithLocal these releases look
// for disks in the machine they run on.
func asNode() []validation.Option { return []validation.Option{validation.WithLocal()} }

func bundleFromConfig(provider config.Provider) (*secrets.Bundle, error) {
	return secrets.NewBundleFromConfig(secrets.NewClock(), provider), nil
}
