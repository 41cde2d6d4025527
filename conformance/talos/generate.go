package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// Request is what the real generator is asked for.
type Request struct {
	Cluster    string  `json:"cluster"`
	Endpoint   string  `json:"endpoint"`
	Kubernetes string  `json:"kubernetes"`
	Contract   string  `json:"contract"` // "v1.13"
	Secrets    string  `json:"secrets"`  // path of a secrets.yaml; a fresh bundle when empty
	Out        string  `json:"out"`      // folder for controlplane.yaml and worker.yaml
	Options    Options `json:"options"`

	// Patches are YAML texts: for both roles, then for the role.
	Patches             []string `json:"patches"`
	ControlPlanePatches []string `json:"controlPlanePatches"`
	WorkerPatches       []string `json:"workerPatches"`
}

// Options mirrors the options of Talos' generator; absent means "not given to it".
type Options struct {
	AdditionalSANs                 []string            `json:"additionalSANs,omitempty"`
	AllowSchedulingOnControlPlanes bool                `json:"allowSchedulingOnControlPlanes,omitempty"`
	CustomCNIURL                   string              `json:"customCNIURL,omitempty"`
	CNINone                        bool                `json:"cniNone,omitempty"` // contracts before 1.14 only
	Debug                          bool                `json:"debug,omitempty"`
	Discovery                      *bool               `json:"discovery,omitempty"`
	DNSDomain                      string              `json:"dnsDomain,omitempty"`
	HostDNSForward                 *bool               `json:"hostDNSForward,omitempty"`
	InstallDisk                    string              `json:"installDisk,omitempty"`
	InstallExtraKernelArgs         []string            `json:"installExtraKernelArgs,omitempty"`
	InstallImage                   string              `json:"installImage,omitempty"`
	KubePrismPort                  *int                `json:"kubePrismPort,omitempty"`
	KubeSpan                       *bool               `json:"kubeSpan,omitempty"` // generator option since 1.13
	LocalAPIServerPort             int                 `json:"localAPIServerPort,omitempty"`
	PodSubnets                     []string            `json:"podSubnets,omitempty"`
	ServiceSubnets                 []string            `json:"serviceSubnets,omitempty"`
	RegistryCACerts                map[string]string   `json:"registryCACerts,omitempty"`
	RegistryInsecure               []string            `json:"registryInsecure,omitempty"`
	RegistryMirrors                map[string][]string `json:"registryMirrors,omitempty"`
	Sysctls                        map[string]string   `json:"sysctls,omitempty"`
}

func cmdGenerate(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	data, err := readInput(args[0])
	if err != nil {
		return err
	}

	var request Request

	if err := json.Unmarshal(data, &request); err != nil {
		return err
	}

	files, err := generateConfigs(request)
	if err != nil {
		return verdict(false, map[string]string{"error": err.Error()})
	}

	if request.Out == "" {
		return printJSON(files)
	}

	written := map[string]string{}

	for role, text := range files {
		path := filepath.Join(request.Out, role+".yaml")
		if err := writeFile(path, text); err != nil {
			return err
		}

		written[role] = path
	}

	return printJSON(written)
}

// generateConfigs returns the text of the two configs, by role name.
func generateConfigs(request Request) (map[string]string, error) {
	contract, err := config.ParseContractFromVersion(request.Contract)
	if err != nil {
		return nil, err
	}

	options, err := request.Options.forGenerator()
	if err != nil {
		return nil, err
	}

	options = append(options, generate.WithVersionContract(contract))

	if request.Secrets != "" {
		bundle, err := secrets.LoadBundle(request.Secrets)
		if err != nil {
			return nil, err
		}

		options = append(options, generate.WithSecretsBundle(bundle))
	}

	input, err := generate.NewInput(request.Cluster, request.Endpoint, request.Kubernetes, options...)
	if err != nil {
		return nil, err
	}

	if len(request.Options.PodSubnets) > 0 {
		input.PodNet = request.Options.PodSubnets
	}

	if len(request.Options.ServiceSubnets) > 0 {
		input.ServiceNet = request.Options.ServiceSubnets
	}

	files := map[string]string{}

	for role, own := range map[machine.Type][]string{
		machine.TypeControlPlane: request.ControlPlanePatches,
		machine.TypeWorker:       request.WorkerPatches,
	} {
		text, err := configFor(input, role, append(append([]string{}, request.Patches...), own...))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", role, err)
		}

		files[role.String()] = text
	}

	return files, nil
}

// configFor encodes before it patches, as upstream's stability test and `talosctl gen config` do.
func configFor(input *generate.Input, role machine.Type, patches []string) (string, error) {
	provider, err := input.Config(role)
	if err != nil {
		return "", err
	}

	text, err := provider.EncodeBytes(withoutComments)
	if err != nil {
		return "", err
	}

	return applyPatches(text, patches)
}

func applyPatches(text []byte, patches []string) (string, error) {
	loaded := make([]configpatcher.Patch, 0, len(patches))

	for _, p := range patches {
		patch, err := configpatcher.LoadPatch([]byte(p))
		if err != nil {
			return "", fmt.Errorf("load patch: %w", err)
		}

		loaded = append(loaded, patch)
	}

	patched, err := configpatcher.Apply(configpatcher.WithBytes(text), loaded)
	if err != nil {
		return "", err
	}

	out, err := patched.Bytes()

	return string(out), err
}

func (o Options) forGenerator() ([]generate.Option, error) {
	var list []generate.Option

	add := func(given bool, option generate.Option) {
		if given {
			list = append(list, option)
		}
	}

	add(len(o.AdditionalSANs) > 0, generate.WithAdditionalSubjectAltNames(o.AdditionalSANs))
	add(o.AllowSchedulingOnControlPlanes, generate.WithAllowSchedulingOnControlPlanes(true))
	add(o.Debug, generate.WithDebug(true))
	add(o.DNSDomain != "", generate.WithDNSDomain(o.DNSDomain))
	add(o.InstallDisk != "", generate.WithInstallDisk(o.InstallDisk))
	add(len(o.InstallExtraKernelArgs) > 0, generate.WithInstallExtraKernelArgs(o.InstallExtraKernelArgs))
	add(o.InstallImage != "", generate.WithInstallImage(o.InstallImage))
	add(o.LocalAPIServerPort != 0, generate.WithLocalAPIServerPort(o.LocalAPIServerPort))
	add(len(o.Sysctls) > 0, generate.WithSysctls(o.Sysctls))

	if o.Discovery != nil {
		list = append(list, generate.WithClusterDiscovery(*o.Discovery))
	}

	if o.HostDNSForward != nil {
		list = append(list, generate.WithHostDNSForwardKubeDNSToHost(*o.HostDNSForward))
	}

	if o.KubePrismPort != nil {
		list = append(list, generate.WithKubePrismPort(*o.KubePrismPort))
	}

	for host, endpoints := range o.RegistryMirrors {
		list = append(list, generate.WithRegistryMirror(host, endpoints...))
	}

	for host, cert := range o.RegistryCACerts {
		list = append(list, generate.WithRegistryCACert(host, cert))
	}

	for _, host := range o.RegistryInsecure {
		list = append(list, generate.WithRegistryInsecureSkipVerify(host))
	}

	versioned, err := o.forThisVersion()

	return append(list, versioned...), err
}

// contracts lists the contracts from 1.8 that this release can generate.
func contracts() []string {
	var list []string

	for n := 8; n <= minor(ownContract()); n++ {
		list = append(list, fmt.Sprintf("v1.%d", n))
	}

	return list
}

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}

	return os.WriteFile(path, []byte(text), 0o600)
}
