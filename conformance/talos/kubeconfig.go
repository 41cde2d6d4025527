package main

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
)

// kubeconfig holds the fields that an admin kubeconfig must have.
type kubeconfig struct {
	APIVersion     string `yaml:"apiVersion"`
	Kind           string `yaml:"kind"`
	CurrentContext string `yaml:"current-context"`
	Clusters       []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server    string `yaml:"server"`
			Authority string `yaml:"certificate-authority-data"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster   string `yaml:"cluster"`
			Namespace string `yaml:"namespace"`
			User      string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Users []struct {
		Name string `yaml:"name"`
		User struct {
			Certificate string `yaml:"client-certificate-data"`
			Key         string `yaml:"client-key-data"`
		} `yaml:"user"`
	} `yaml:"users"`
}

// cmdKubeconfig checks an admin kubeconfig against the bundle's Kubernetes CA and Talos' own shape.
func cmdKubeconfig(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	bundle, err := secrets.LoadBundle(args[0])
	if err != nil {
		return err
	}

	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}

	var file kubeconfig

	if err := unmarshalYAML(text, &file); err != nil {
		return verdict(false, map[string]any{"valid": false, "error": err.Error()})
	}

	leaf, err := file.check(bundle.Certs.K8s.Crt)
	if err != nil {
		return verdict(false, map[string]any{"valid": false, "error": err.Error()})
	}

	return printJSON(map[string]any{
		"valid": true, "context": file.CurrentContext, "server": file.Clusters[0].Cluster.Server,
		"user": leaf.Subject.CommonName, "groups": leaf.Subject.Organization,
		"notBefore": leaf.NotBefore, "notAfter": leaf.NotAfter,
	})
}

func (k kubeconfig) check(authority []byte) (*stdx509.Certificate, error) {
	if k.APIVersion != "v1" || k.Kind != "Config" {
		return nil, fmt.Errorf("apiVersion %q, kind %q: not a kubeconfig", k.APIVersion, k.Kind)
	}

	if len(k.Clusters) != 1 || len(k.Contexts) != 1 || len(k.Users) != 1 {
		return nil, errors.New("does not have exactly one cluster, context and user")
	}

	context := k.Contexts[0]
	if k.CurrentContext != context.Name || context.Context.Cluster != k.Clusters[0].Name || context.Context.User != k.Users[0].Name {
		return nil, errors.New("the names of context, cluster and user do not refer to one another")
	}

	known, err := base64.StdEncoding.DecodeString(k.Clusters[0].Cluster.Authority)
	if err != nil {
		return nil, fmt.Errorf("certificate-authority-data: %w", err)
	}

	roots := stdx509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("the bundle's Kubernetes CA is not a certificate")
	}

	if !slices.Equal(known, authority) {
		return nil, errors.New("certificate-authority-data is not the bundle's Kubernetes CA")
	}

	return k.clientCertificate(roots)
}

// clientCertificate reads the client's pair as a TLS client does and verifies it as the API server does.
func (k kubeconfig) clientCertificate(roots *stdx509.CertPool) (*stdx509.Certificate, error) {
	certificate, err := base64.StdEncoding.DecodeString(k.Users[0].User.Certificate)
	if err != nil {
		return nil, fmt.Errorf("client-certificate-data: %w", err)
	}

	key, err := base64.StdEncoding.DecodeString(k.Users[0].User.Key)
	if err != nil {
		return nil, fmt.Errorf("client-key-data: %w", err)
	}

	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}

	leaf, err := stdx509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}

	_, err = leaf.Verify(stdx509.VerifyOptions{
		Roots: roots, CurrentTime: time.Now(), KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}

	if leaf.Subject.CommonName != "admin" || !slices.Equal(leaf.Subject.Organization, []string{"system:masters"}) {
		return nil, fmt.Errorf("the subject is %q, Talos' own is CN=admin,O=system:masters", leaf.Subject)
	}

	return leaf, nil
}
