package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

// GenerateCase is one request to the generator with its answer: the two configs, or an error.
// An answer of ichor's may say Skip instead, with the reason why it does not offer this.
type GenerateCase struct {
	Name    string            `json:"name"`
	Talos   string            `json:"talos,omitempty"`
	Request *Request          `json:"request,omitempty"`
	Files   map[string]string `json:"files,omitempty"`
	Error   string            `json:"error,omitempty"`
	Skip    string            `json:"skip,omitempty"`
}

// cmdGenerateCases prints requests with the real answers: upstream's goldens, if the module is given, and
// the option sets below for every contract of this release.
func cmdGenerateCases(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	var cases []GenerateCase

	if len(args) > 1 {
		goldens, err := goldenCases(args[1])
		if err != nil {
			return err
		}

		cases = goldens
	}

	authority, err := registryAuthority(args[0])
	if err != nil {
		return err
	}

	for _, contract := range contracts() {
		for _, set := range optionSets(minor(contract), authority) {
			request := set.request
			request.Cluster, request.Endpoint, request.Kubernetes = "demo", "https://10.0.0.20:6443", "1.31.4"
			request.Contract, request.Secrets = contract, args[0]

			c := GenerateCase{Name: contract + "/" + set.name, Talos: gendata.VersionTag, Request: &request}

			c.Files, err = generateConfigs(request)
			c.Error = message(err)
			cases = append(cases, c)
		}
	}

	return printLines(cases)
}

// goldenCases are upstream's golden configs as cases; contracts before 1.8 are not ours.
func goldenCases(module string) ([]GenerateCase, error) {
	folder := stabilityFolder(module)

	var cases []GenerateCase

	for _, contract := range contracts() {
		for _, flavor := range []string{"base", "overrides"} {
			request, err := stabilityRequest(folder, contract, flavor)
			if err != nil {
				return nil, err
			}

			c := GenerateCase{
				Name: "golden/" + contract + "/" + flavor, Talos: gendata.VersionTag, Request: &request, Files: map[string]string{},
			}

			for _, role := range []string{"controlplane", "worker"} {
				text, err := os.ReadFile(filepath.Join(folder, contract, flavor+"-"+role+".yaml"))
				if err != nil {
					return nil, err
				}

				c.Files[role] = string(text)
			}

			cases = append(cases, c)
		}
	}

	return cases, nil
}

// registryAuthority is some certificate that Talos accepts as a registry's.
func registryAuthority(bundlePath string) (string, error) {
	bundle, err := secrets.LoadBundle(bundlePath)
	if err != nil {
		return "", err
	}

	return string(bundle.Certs.K8s.Crt), nil
}

type optionSet struct {
	name    string
	request Request
}

func options(name string, o Options) optionSet { return optionSet{name, Request{Options: o}} }

func controlPlanePatch(name, patch string) optionSet {
	return optionSet{name, Request{ControlPlanePatches: []string{patch}}}
}

// optionSets are the generator's options, one at a time, and what ichor offers beyond them as patches.
func optionSets(minor int, authority string) []optionSet {
	off, on := false, true
	noPort, port := 0, 7446

	sets := []optionSet{
		options("plain", Options{}),
		options("install", Options{InstallDisk: "/dev/sda", InstallImage: "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.9"}),
		options("custom-cni", Options{CustomCNIURL: "https://example.com/cni.yaml"}),
		options("registries", Options{
			RegistryMirrors:  map[string][]string{"docker.io": {"https://mirror.example.com", "https://mirror2.example.com"}, "ghcr.io": {"http://10.0.0.5:5000"}},
			RegistryInsecure: []string{"mirror.example.com"},
			RegistryCACerts:  map[string]string{"ghcr.io": authority},
		}),
		options("mirrors", Options{RegistryMirrors: map[string][]string{"docker.io": {"https://mirror.example.com", "http://10.0.0.5:5000"}, "ghcr.io": {"https://m"}}}),
		options("dual-stack", Options{PodSubnets: []string{"10.244.0.0/16", "fd00:10:244::/56"}, ServiceSubnets: []string{"10.96.0.0/12", "fd00:10:96::/112"}}),
		options("extra-sans", Options{AdditionalSANs: []string{"10.0.0.20", "api.example.com", "10.0.0.11"}}),
		options("schedule-on-control-planes", Options{AllowSchedulingOnControlPlanes: true}),
		options("discovery-off", Options{Discovery: &off}),
		options("kubeprism-off", Options{KubePrismPort: &noPort}),
		options("kubeprism-port", Options{KubePrismPort: &port}),
		options("host-dns-not-forwarding", Options{HostDNSForward: &off}),
		options("kubespan", Options{KubeSpan: &on}),
		options("sysctls", Options{Sysctls: map[string]string{"net.core.somaxconn": "65535", "vm.nr_hugepages": "1024"}}),
		options("dns-domain", Options{DNSDomain: "example.internal"}),
		options("api-port", Options{LocalAPIServerPort: 7443}),
		options("debug", Options{Debug: true}),
		options("everything", Options{
			InstallDisk: "/dev/sda", InstallImage: "ghcr.io/siderolabs/installer:v1.13.9", AdditionalSANs: []string{"10.0.0.20"},
			AllowSchedulingOnControlPlanes: true, DNSDomain: "k.local", Sysctls: map[string]string{"a.b": "1"}, Discovery: &off,
			RegistryMirrors: map[string][]string{"docker.io": {"https://m"}}, KubePrismPort: &port, LocalAPIServerPort: 7443,
			PodSubnets: []string{"10.1.0.0/16"}, ServiceSubnets: []string{"10.2.0.0/16"},
		}),
		controlPlanePatch("external-cloud-provider", "cluster:\n  externalCloudProvider:\n    enabled: true\n"),
	}

	return append(sets, versionedSets(minor)...)
}

// versionedSets are said with fields in older contracts and with documents in newer ones.
func versionedSets(minor int) []optionSet {
	var sets []optionSet

	if minor < 14 {
		sets = append(sets,
			controlPlanePatch("cni-none", "cluster:\n  network:\n    cni:\n      name: none\n"),
			controlPlanePatch("proxy-off", "cluster:\n  proxy:\n    disabled: true\n"),
		)
	} else {
		sets = append(sets,
			controlPlanePatch("cni-none", "apiVersion: v1alpha1\nkind: KubeFlannelCNIConfig\n$patch: delete\n"),
			controlPlanePatch("proxy-off", "apiVersion: v1alpha1\nkind: KubeProxyConfig\nenabled: false\n"),
		)
	}

	if minor < 12 {
		return append(sets, controlPlanePatch("vip", `machine:
  network:
    hostname: cp-1
    nameservers: [10.0.0.1]
    interfaces:
      - deviceSelector:
          hardwareAddr: "bc:24:11:00:00:11"
        dhcp: false
        addresses: [10.0.0.11/24]
        routes:
          - network: 0.0.0.0/0
            gateway: 10.0.0.1
        vip:
          ip: 10.0.0.20
`))
	}

	return append(sets, controlPlanePatch("vip", `apiVersion: v1alpha1
kind: LinkAliasConfig
name: net0
selector:
  match: mac(link.permanent_addr) == "bc:24:11:00:00:11"
---
apiVersion: v1alpha1
kind: LinkConfig
name: net0
addresses:
  - address: 10.0.0.11/24
routes:
  - gateway: 10.0.0.1
---
apiVersion: v1alpha1
kind: Layer2VIPConfig
name: 10.0.0.20
link: net0
---
apiVersion: v1alpha1
kind: ResolverConfig
nameservers:
  - address: 10.0.0.1
---
apiVersion: v1alpha1
kind: HostnameConfig
auto: off
hostname: cp-1
`))
}

// cmdGenerateCompare compares ichor's answers with the real ones, byte for byte.
func cmdGenerateCompare(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	real, err := readLines[GenerateCase](args[0])
	if err != nil {
		return err
	}

	answers, err := readLines[GenerateCase](args[1])
	if err != nil {
		return err
	}

	ours := map[string]GenerateCase{}
	for _, c := range answers {
		ours[c.Name] = c
	}

	comparison := Comparison{Cases: len(real)}

	for _, want := range real {
		got, answered := ours[want.Name]

		switch {
		case !answered:
			comparison.differ(want.Name, "no answer")
		case got.Skip != "":
			comparison.skip(want.Name, got.Skip)
		case (want.Error == "") != (got.Error == ""):
			comparison.differ(want.Name, fmt.Sprintf("real error %q, our error %q", want.Error, got.Error))
		default:
			comparison.files(want, got)
		}
	}

	return comparison.verdict()
}

func (c *Comparison) files(want, got GenerateCase) {
	kept := false

	for _, role := range []string{"controlplane", "worker"} {
		why := firstDifference(want.Files[role], got.Files[role])

		switch {
		case why == "":
		// Only what was patched may look different: golden configs and options are compared byte for byte.
		case len(want.Request.ControlPlanePatches) > 0 && sameToTalos(want.Files[role], got.Files[role]):
			kept = true
		default:
			c.differ(want.Name+"/"+role, why)

			return
		}
	}

	if kept {
		c.keep(keptForm)
	} else {
		c.Agree++
	}
}
