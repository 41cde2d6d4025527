package main

import (
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// ContextReport is what the real client code reads in one context, without key material.
type ContextReport struct {
	Endpoints   []string  `json:"endpoints"`
	Nodes       []string  `json:"nodes,omitempty"`
	Roles       []string  `json:"roles,omitempty"`
	NotBefore   time.Time `json:"notBefore,omitzero"`
	NotAfter    time.Time `json:"notAfter,omitzero"`
	KeyMatches  bool      `json:"keyMatches"`
	IssuedByCA  bool      `json:"issuedByCA"`
	ExtKeyUsage []string  `json:"extKeyUsage,omitempty"`
	Error       string    `json:"error,omitempty"`
}

func cmdTalosconfig(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}

	file, err := clientconfig.FromBytes(text)
	if err != nil {
		return verdict(false, map[string]string{"error": err.Error()})
	}

	written, err := file.Bytes()
	if err != nil {
		return err
	}

	good := true
	contexts := map[string]ContextReport{}

	for name, context := range file.Contexts {
		report := reportContext(context)
		good = good && report.Error == "" && report.KeyMatches && report.IssuedByCA
		contexts[name] = report
	}

	_, exists := contexts[file.Context]

	return verdict(good && exists, map[string]any{
		"context":    file.Context,
		"contexts":   contexts,
		"roundTrips": string(written) == string(text),
	})
}

func reportContext(context *clientconfig.Context) ContextReport {
	report := ContextReport{Endpoints: context.Endpoints, Nodes: context.Nodes}

	ca, err := certificateIn(context.CA)
	if err != nil {
		report.Error = "ca: " + err.Error()

		return report
	}

	leaf, err := certificateIn(context.Crt)
	if err != nil {
		report.Error = "crt: " + err.Error()

		return report
	}

	roles, _ := role.Parse(leaf.Subject.Organization)
	report.Roles = roles.Strings()
	report.NotBefore, report.NotAfter = leaf.NotBefore, leaf.NotAfter
	report.IssuedByCA = leaf.CheckSignatureFrom(ca) == nil

	for _, usage := range leaf.ExtKeyUsage {
		report.ExtKeyUsage = append(report.ExtKeyUsage, usageName(usage))
	}

	report.KeyMatches, err = keyMatches(leaf, context.Key)
	report.Error = message(err)

	return report
}

func usageName(usage stdx509.ExtKeyUsage) string {
	switch usage {
	case stdx509.ExtKeyUsageClientAuth:
		return "clientAuth"
	case stdx509.ExtKeyUsageServerAuth:
		return "serverAuth"
	default:
		return "other"
	}
}

func certificateIn(encoded string) (*stdx509.Certificate, error) {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}

	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block")
	}

	return stdx509.ParseCertificate(block.Bytes)
}

func cmdGenTalosconfig(args []string) error {
	if err := needArgs(args, 3); err != nil {
		return err
	}

	bundle, err := secrets.LoadBundle(args[0])
	if err != nil {
		return err
	}

	roles, _ := role.Parse(strings.Split(args[2], ","))

	client, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, constants.TalosAPIDefaultCertificateValidityDuration)
	if err != nil {
		return err
	}

	return printYAML(clientconfig.NewConfig(args[1], args[3:], bundle.Certs.OS.Crt, client))
}

// defects are the ways in which a client certificate can be wrong; the handshake judge must refuse each.
var defects = map[string][]x509.Option{
	"server-usage": {usages(stdx509.ExtKeyUsageServerAuth)},
	"both-usages":  {usages(stdx509.ExtKeyUsageClientAuth, stdx509.ExtKeyUsageServerAuth)},
	"no-usage":     {usages()},
	"expired":      {usages(stdx509.ExtKeyUsageClientAuth), x509.NotBefore(time.Unix(0, 0)), x509.NotAfter(time.Unix(3600, 0))},
}

func usages(list ...stdx509.ExtKeyUsage) x509.Option { return x509.ExtKeyUsage(list) }

// cmdBrokenTalosconfig makes a talosconfig whose client certificate has one defect.
func cmdBrokenTalosconfig(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	options, known := defects[args[1]]
	if !known {
		return fmt.Errorf("unknown defect %q", args[1])
	}

	bundle, err := secrets.LoadBundle(args[0])
	if err != nil {
		return err
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	if err != nil {
		return err
	}

	pair, err := x509.NewKeyPair(ca, append([]x509.Option{
		x509.Organization(string(role.Admin)), x509.NotAfter(time.Now().Add(time.Hour)), x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
	}, options...)...)
	if err != nil {
		return err
	}

	client := x509.NewCertificateAndKeyFromKeyPair(pair)

	return printYAML(clientconfig.NewConfig("broken", []string{"127.0.0.1"}, bundle.Certs.OS.Crt, client))
}
