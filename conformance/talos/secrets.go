package main

import (
	"os"
	"path/filepath"

	"github.com/siderolabs/crypto/x509"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

func ownContract() string {
	contract, err := config.ParseContractFromVersion(gendata.VersionTag)
	if err != nil {
		panic(err)
	}

	return contract.String()
}

// cmdSecrets reads a bundle with the real code, writes it again and reports what the real code objects to.
func cmdSecrets(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	original, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}

	bundle, err := secrets.LoadBundle(args[0])
	if err != nil {
		return verdict(false, map[string]any{"valid": false, "error": err.Error()})
	}

	text, err := marshalYAML(bundle)
	if err != nil {
		return err
	}

	checked, invalid := validateBundle(bundle)

	return verdict(invalid == nil, map[string]any{
		"valid":      invalid == nil,
		"checked":    checked, // false: this release has no validation of bundles
		"error":      message(invalid),
		"roundTrips": string(original) == string(text),
		"text":       string(text),
	})
}

// validateBundle calls Validate in whichever shape this release has it, if any (none before 1.11).
func validateBundle(bundle *secrets.Bundle) (bool, error) {
	switch b := any(bundle).(type) {
	case interface{ Validate() error }:
		return true, b.Validate()
	case interface {
		Validate(*config.VersionContract) error
	}:
		contract, err := config.ParseContractFromVersion(ownContract())
		if err != nil {
			return true, err
		}

		return true, b.Validate(contract)
	default:
		return false, nil
	}
}

func cmdGenSecrets(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	contract, err := config.ParseContractFromVersion(args[0])
	if err != nil {
		return err
	}

	bundle, err := secrets.NewBundle(secrets.NewClock(), contract)
	if err != nil {
		return err
	}

	return printYAML(bundle)
}

// cmdImportSecrets rebuilds the bundle from a control plane's config.
func cmdImportSecrets(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}

	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		return err
	}

	bundle, err := bundleFromConfig(provider)
	if err != nil {
		return err
	}

	return printYAML(bundle)
}

// cmdPEM writes the bundle's certificates and keys as PEM files, for openssl to look at.
func cmdPEM(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	bundle, err := secrets.LoadBundle(args[0])
	if err != nil {
		return err
	}

	for name, pair := range map[string]*x509.PEMEncodedCertificateAndKey{
		"etcd": bundle.Certs.Etcd, "k8s": bundle.Certs.K8s, "k8saggregator": bundle.Certs.K8sAggregator, "os": bundle.Certs.OS,
	} {
		if err := writeFile(filepath.Join(args[1], name+".crt"), string(pair.Crt)); err != nil {
			return err
		}

		if err := writeFile(filepath.Join(args[1], name+".key"), string(pair.Key)); err != nil {
			return err
		}
	}

	return writeFile(filepath.Join(args[1], "k8sserviceaccount.key"), string(bundle.Certs.K8sServiceAccount.Key))
}

func printYAML(value any) error {
	text, err := marshalYAML(value)
	if err != nil {
		return err
	}

	_, err = os.Stdout.Write(text)

	return err
}
