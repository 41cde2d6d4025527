package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	taloscrypto "github.com/siderolabs/crypto/tls"
	"github.com/siderolabs/crypto/x509"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// Caller is what the server learnt about an accepted client.
type Caller struct {
	Roles        []string `json:"roles"`
	UnknownRoles []string `json:"unknownRoles,omitempty"`
	ALPN         string   `json:"alpn"`
	TLS          string   `json:"tls"`
}

// keyMatches says whether the private key belongs to the certificate, read as Talos' client reads it.
func keyMatches(leaf *stdx509.Certificate, encodedKey string) (bool, error) {
	text, err := base64.StdEncoding.DecodeString(encodedKey)
	if err != nil {
		return false, err
	}

	key, err := (&x509.PEMEncodedKey{Key: text}).GetKey()
	if err != nil {
		return false, err
	}

	ed, isEd := key.(*x509.Ed25519Key)
	if !isEd {
		return false, fmt.Errorf("the key is a %T; Talos' own are Ed25519", key)
	}

	public, isEd := leaf.PublicKey.(ed25519.PublicKey)

	return isEd && public.Equal(ed25519.PrivateKey(ed.PrivateKey).Public()), nil
}

// apid stands in for a node's API server. Its certificate, its client authentication and its check of the
// key usage follow apid's (internal/app/apid, which cannot be imported); the libraries are Talos' own.
type apid struct {
	machine.UnimplementedMachineServiceServer

	mutex    sync.Mutex
	callers  []Caller
	refusals []string
	report   func(Caller)
}

// verify is apid's check, with a note of the refusal: the client only sees a broken connection.
func (a *apid) verify(certs [][]byte, chains [][]*stdx509.Certificate) error {
	err := onlyClientAuth(certs, chains)
	if err != nil {
		a.mutex.Lock()
		defer a.mutex.Unlock()

		a.refusals = append(a.refusals, err.Error())
	}

	return err
}

func (a *apid) Version(ctx context.Context, _ *emptypb.Empty) (*machine.VersionResponse, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}

	a.mutex.Lock()
	defer a.mutex.Unlock()

	a.callers = append(a.callers, caller)

	if a.report != nil {
		a.report(caller)
	}

	return &machine.VersionResponse{Messages: []*machine.Version{{Version: &machine.VersionInfo{Tag: gendata.VersionTag}}}}, nil
}

func callerOf(ctx context.Context) (Caller, error) {
	from, _ := peer.FromContext(ctx)

	info, isTLS := from.AuthInfo.(credentials.TLSInfo)
	if !isTLS || len(info.State.PeerCertificates) == 0 {
		return Caller{}, errors.New("no client certificate")
	}

	roles, unknown := role.Parse(info.State.PeerCertificates[0].Subject.Organization)

	return Caller{
		Roles: roles.Strings(), UnknownRoles: unknown,
		ALPN: info.State.NegotiatedProtocol, TLS: tls.VersionName(info.State.Version),
	}, nil
}

// onlyClientAuth refuses client certificates whose extended key usage is not exactly clientAuth, as apid does.
func onlyClientAuth(_ [][]byte, chains [][]*stdx509.Certificate) error {
	if len(chains) == 0 {
		return errors.New("no verified chains")
	}

	for _, cert := range chains[0] {
		if !cert.IsCA && !slices.Equal(cert.ExtKeyUsage, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}) {
			return fmt.Errorf("certificate %q does not have exactly the client auth usage", cert.Subject)
		}
	}

	return nil
}

// serverTLS issues a server certificate from the bundle's OS CA, as the node's secrets controller does.
func serverTLS(bundlePath string) (*tls.Config, error) {
	bundle, err := secrets.LoadBundle(bundlePath)
	if err != nil {
		return nil, err
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	if err != nil {
		return nil, err
	}

	pair, err := x509.NewKeyPair(ca,
		x509.IPAddresses([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}),
		x509.DNSNames([]string{"localhost"}),
		x509.CommonName("localhost"),
		x509.NotAfter(time.Now().Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return nil, err
	}

	config, err := taloscrypto.New(
		taloscrypto.WithClientAuthType(taloscrypto.Mutual),
		taloscrypto.WithCACertPEM(bundle.Certs.OS.Crt),
		taloscrypto.WithKeypair(*pair.Certificate),
	)
	if err != nil {
		return nil, err
	}

	return config, nil
}

func startServer(bundlePath, address string, service *apid) (*grpc.Server, string, error) {
	config, err := serverTLS(bundlePath)
	if err != nil {
		return nil, "", err
	}

	config.VerifyPeerCertificate = service.verify

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}

	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	machine.RegisterMachineServiceServer(server, service)

	go server.Serve(listener)

	return server, listener.Addr().String(), nil
}

// cmdHandshake lets the real client call the server with a talosconfig, and reports whether and as whom.
func cmdHandshake(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	service := &apid{}

	server, address, err := startServer(args[0], "127.0.0.1:0", service)
	if err != nil {
		return err
	}

	defer server.Stop()

	name := ""
	if len(args) > 2 {
		name = args[2]
	}

	callErr := callVersion(args[1], name, address)

	service.mutex.Lock()
	defer service.mutex.Unlock()

	report := map[string]any{"accepted": callErr == nil, "error": message(callErr)}
	if len(service.callers) > 0 {
		report["caller"] = service.callers[0]
	}

	if len(service.refusals) > 0 {
		report["refusal"] = service.refusals[0]
	}

	return verdict(callErr == nil && len(service.callers) > 0, report)
}

func callVersion(talosconfig, contextName, address string) error {
	text, err := os.ReadFile(talosconfig)
	if err != nil {
		return err
	}

	config, err := clientconfig.FromBytes(text)
	if err != nil {
		return err
	}

	options := []client.OptionFunc{client.WithConfig(config), client.WithEndpoints(address)}
	if contextName != "" {
		options = append(options, client.WithContextName(contextName))
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	talos, err := client.New(ctx, options...)
	if err != nil {
		return err
	}

	defer talos.Close()

	_, err = talos.Version(ctx)

	return err
}

// cmdServe keeps the server up for other clients; it prints its address, then one line per accepted call.
func cmdServe(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	address := "127.0.0.1:0"
	if len(args) > 1 {
		address = args[1]
	}

	lines := json.NewEncoder(os.Stdout)
	service := &apid{report: func(caller Caller) { lines.Encode(caller) }}

	server, bound, err := startServer(args[0], address, service)
	if err != nil {
		return err
	}

	defer server.Stop()

	if err := lines.Encode(map[string]string{"listening": bound}); err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	<-ctx.Done()

	return nil
}
