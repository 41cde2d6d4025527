package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Golden is one golden config of upstream and how the real generator compares with it.
type Golden struct {
	Contract string   `json:"contract"`
	Flavor   string   `json:"flavor"`
	Role     string   `json:"role"`
	Path     string   `json:"path"`
	Equal    bool     `json:"equal"`
	Error    string   `json:"error,omitempty"`
	Request  *Request `json:"request,omitempty"`
}

// cmdGolden asks the real generator for every golden config in the module and compares.
func cmdGolden(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	folder := stabilityFolder(args[0])

	paths, err := filepath.Glob(filepath.Join(folder, "v*", "*.yaml"))
	if err != nil {
		return err
	}

	if len(paths) == 0 {
		return fmt.Errorf("no golden configs below %s", folder)
	}

	good := true
	list := make([]Golden, 0, len(paths))

	for _, path := range paths {
		golden := judgeGolden(folder, path)
		good = good && golden.Equal

		list = append(list, golden)
	}

	return verdict(good, list)
}

func stabilityFolder(module string) string {
	return filepath.Join(module, "config", "types", "v1alpha1", "testdata", "stability")
}

func judgeGolden(folder, path string) Golden {
	flavor, role, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".yaml"), "-")
	golden := Golden{Contract: filepath.Base(filepath.Dir(path)), Flavor: flavor, Role: role, Path: path}

	request, err := stabilityRequest(folder, golden.Contract, flavor)
	if err != nil {
		golden.Error = err.Error()

		return golden
	}

	golden.Request = &request

	files, err := generateConfigs(request)
	if err != nil {
		golden.Error = err.Error()

		return golden
	}

	expected, err := os.ReadFile(path)
	golden.Error = message(err)
	golden.Equal = string(expected) == files[role]

	return golden
}

// stabilityRequest states the inputs of upstream's stability test.
func stabilityRequest(folder, contract, flavor string) (Request, error) {
	request := Request{
		Cluster:    "base",
		Endpoint:   "https://base:6443",
		Kubernetes: "1.28.0",
		Contract:   contract,
		Secrets:    filepath.Join(folder, "secrets.yaml"),
	}

	switch flavor {
	case "base":
		return request, nil
	case "overrides":
	default:
		return request, fmt.Errorf("unknown flavor %q", flavor)
	}

	request.Options = Options{
		AdditionalSANs:                 []string{"foo", "bar"},
		AllowSchedulingOnControlPlanes: true,
		CustomCNIURL:                   "https://example.com/cni.yaml",
		DNSDomain:                      "example.com",
		InstallDisk:                    "/dev/vda",
		InstallExtraKernelArgs:         []string{"foo=bar", "bar=baz"},
		LocalAPIServerPort:             5443,
		RegistryMirrors:                map[string][]string{"ghcr.io": {"https://ghcr.io.my-mirror.com"}},
		Sysctls:                        map[string]string{"foo": "bar"},
	}

	patch, err := os.ReadFile(stabilityPatch(folder, contract))
	if err != nil {
		return request, err
	}

	request.Patches = []string{string(patch)}

	return request, nil
}

// stabilityPatch picks the patch file: from machinery 1.14 on, older contracts have one of their own.
func stabilityPatch(folder, contract string) string {
	older := filepath.Join(folder, "patch-pre14.yaml")

	if _, err := os.Stat(older); err == nil && minor(contract) < 14 {
		return older
	}

	return filepath.Join(folder, "patch.yaml")
}

func minor(contract string) int {
	var major, minor int

	fmt.Sscanf(strings.TrimPrefix(contract, "v"), "%d.%d", &major, &minor)

	return minor
}
