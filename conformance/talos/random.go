package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
)

// cmdPatchRandom prints COUNT random patch cases with the real patcher's answers, as JSON lines.
// The same seed, bundle and release give the same cases.
func cmdPatchRandom(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}

	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}

	bundle := ""
	if len(args) > 2 {
		bundle = args[2]
	}

	bases, err := randomBases(bundle)
	if err != nil {
		return err
	}

	d := dice{rand.New(rand.NewPCG(seed, 0))}
	cases := make([]PatchCase, 0, count)

	for n := range count {
		c := d.patchCase(bases[n%len(bases)])
		c.Name = fmt.Sprintf("%d/%d/%s", seed, n, c.Name)
		c.decide()
		cases = append(cases, c)
	}

	return printLines(cases)
}

type base struct {
	name, text string
}

// randomBases are configs to patch: every contract of this release, both roles, bare and with options,
// and one with the list shapes that merge by key.
func randomBases(bundlePath string) ([]base, error) {
	if bundlePath == "" {
		path, err := temporaryBundle()
		if err != nil {
			return nil, err
		}

		defer os.Remove(path)

		bundlePath = path
	}

	var bases []base

	for _, contract := range contracts() {
		for name, options := range map[string]Options{
			"bare": {},
			"full": {
				InstallDisk:     "/dev/sda",
				AdditionalSANs:  []string{"10.0.0.20"},
				RegistryMirrors: map[string][]string{"docker.io": {"https://mirror.example.com"}},
				Sysctls:         map[string]string{"net.core.somaxconn": "65535"},
			},
		} {
			files, err := generateConfigs(Request{
				Cluster: "demo", Endpoint: "https://10.0.0.20:6443", Kubernetes: runnable(),
				Contract: contract, Secrets: bundlePath, Options: options,
			})
			if err != nil {
				return nil, err
			}

			for role, text := range files {
				bases = append(bases, base{strings.Join([]string{contract, role, name}, "-"), text})
			}
		}
	}

	keyed, err := keyedBase()
	if err != nil {
		return nil, err
	}

	bases = append(bases, keyed, keyed, keyed)
	slices.SortFunc(bases, func(a, b base) int { return strings.Compare(a.name, b.name) })

	return bases, nil
}

// runnable is a Kubernetes that this release runs, so that its age is an objection only where a patch makes
// it one.
func runnable() string {
	if minor(ownContract()) < 14 {
		return "1.31.2"
	}

	return "1.34.1"
}

func temporaryBundle() (string, error) {
	contract, err := config.ParseContractFromVersion(ownContract())
	if err != nil {
		return "", err
	}

	bundle, err := secrets.NewBundle(secrets.NewClock(), contract)
	if err != nil {
		return "", err
	}

	text, err := marshalYAML(bundle)
	if err != nil {
		return "", err
	}

	file, err := os.CreateTemp("", "bundle-*.yaml")
	if err != nil {
		return "", err
	}

	if _, err = file.Write(text); err != nil {
		return "", err
	}

	return file.Name(), file.Close()
}

// keyedBase holds lists whose elements are matched by a key, so that random patches meet them.
func keyedBase() (base, error) {
	text := `version: v1alpha1
machine:
    type: controlplane
    certSANs: [10.0.0.1]
    kubelet:
        image: ghcr.io/siderolabs/kubelet:v` + runnable() + `
        extraArgs: {v: "4"}
        extraMounts:
            - {destination: /var/a, type: bind, source: /var/a, options: [bind, rw]}
        extraConfig: {serverTLSBootstrap: true, evictionHard: {memory.available: 100Mi}, list: [1, 2]}
    network:
        hostname: cp-1
        nameservers: [10.0.0.1]
        interfaces:
            - interface: eth0
              addresses: [10.0.0.11/24]
              routes: [{network: 0.0.0.0/0, gateway: 10.0.0.1}]
              mtu: 1500
              vlans: [{vlanId: 100, addresses: [10.1.0.11/24]}, {vlanId: 200, dhcp: true}]
              vip: {ip: 10.0.0.20}
            - interface: eth1
              dhcp: true
            - deviceSelector: {hardwareAddr: "bc:24:11:00:00:11"}
              addresses: [10.2.0.11/24]
        extraHostEntries: [{ip: 10.0.0.30, aliases: [nas]}]
    install: {disk: /dev/sda, wipe: true}
    files: [{content: a, permissions: 0o644, path: /var/a, op: create}]
    kernel: {modules: [{name: br_netfilter, parameters: [nf_conntrack_max=131072]}]}
    nodeLabels: {zone: a}
    sysctls: {net.core.somaxconn: "65535"}
    registries: {mirrors: {docker.io: {endpoints: ["https://mirror.example.com"], overridePath: true}}}
    time: {servers: [10.0.0.1]}
cluster:
    controlPlane: {endpoint: "https://10.0.0.20:6443"}
    clusterName: demo
    network: {cni: {name: none}, podSubnets: [10.244.0.0/16], serviceSubnets: [10.96.0.0/12]}
    apiServer:
        certSANs: [10.0.0.20]
        extraArgs: {feature-gates: "A=true"}
        admissionControl:
            - name: PodSecurity
              configuration: {apiVersion: pod-security.admission.config.k8s.io/v1alpha1, kind: PodSecurityConfiguration, exemptions: {namespaces: [kube-system]}}
        auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}
    inlineManifests: [{name: one, contents: "a: b\n"}]
    extraManifests: ["https://example.com/a.yaml"]
    etcd: {advertisedSubnets: [10.0.0.0/24]}
    allowSchedulingOnControlPlanes: true
`

	encoded, err := reencode([]byte(text))

	return base{"keyed", string(encoded)}, err
}

// dice makes random patches.
type dice struct{ *rand.Rand }

func pick[T any](d dice, choices ...T) T { return choices[d.IntN(len(choices))] }

func (d dice) some(choices ...string) []any {
	var list []any

	for _, c := range choices {
		if d.IntN(2) == 0 {
			list = append(list, c)
		}
	}

	return list
}

// tree is a YAML mapping in the making.
type tree = map[string]any

// put sets a dotted path, making mappings on the way.
func put(root tree, path string, value any) {
	keys := strings.Split(path, ".")

	for _, key := range keys[:len(keys)-1] {
		next, isTree := root[key].(tree)
		if !isTree {
			next = tree{}
			root[key] = next
		}

		root = next
	}

	root[keys[len(keys)-1]] = value
}

func (d dice) patchCase(from base) PatchCase {
	c := PatchCase{Name: from.name, Config: from.text}

	for range 1 + d.IntN(3) {
		patch, mischief := d.patch()
		c.Patches = append(c.Patches, patch)

		if mischief != "" {
			c.Mischief = mischief
		}
	}

	return c
}

// patch returns one patch; every sixth or so is of an unusual kind.
func (d dice) patch() (text, mischief string) {
	switch d.IntN(18) {
	case 0:
		return d.jsonPatch(), "json6902"
	case 1:
		return d.deletePatch(), "delete"
	case 2:
		return d.malformed(), "malformed"
	case 3, 4, 5:
		return d.documents(1 + d.IntN(2)), ""
	case 6:
		return d.fields() + "---\n" + d.documents(1), ""
	default:
		return d.fields(), ""
	}
}

func dump(value any) string {
	text, err := marshalYAML(value)
	if err != nil {
		panic(err)
	}

	return string(text)
}

// deletePatch removes fields, list elements or keys with `$patch: delete`.
func (d dice) deletePatch() string {
	root := tree{}
	gone := tree{"$patch": "delete"}

	switch d.IntN(6) {
	case 0:
		put(root, "machine.network.interfaces", []any{tree{"interface": pick(d, "eth0", "eth1", "eth9"), "$patch": "delete"}})
	case 1:
		put(root, "cluster.apiServer.admissionControl", []any{tree{"name": pick(d, "PodSecurity", "Absent"), "$patch": "delete"}})
	case 2:
		put(root, pick(d, "machine.network.hostname", "machine.install.disk", "cluster.clusterName"), gone)
	case 3:
		put(root, "machine.network.interfaces", []any{tree{"interface": "eth0", "vlans": []any{tree{"vlanId": pick(d, 100, 999), "$patch": "delete"}}}})
	case 4:
		put(root, pick(d, "machine.kubelet.extraMounts", "machine.nodeLabels", "cluster.network.cni", "machine.sysctls", "cluster.inlineManifests"), gone)
	default:
		put(root, pick(d, "machine.nodeLabels.zone", "machine.kubelet.extraConfig.list", "cluster.discovery", "cluster.apiServer.auditPolicy"), gone)
	}

	return dump(root)
}

// jsonPatch is an RFC 6902 patch, as JSON or as YAML.
func (d dice) jsonPatch() string {
	operations := []any{
		tree{"op": "add", "path": "/machine/certSANs/-", "value": "10.0.0.40"},
		tree{"op": "replace", "path": "/cluster/clusterName", "value": "renamed"},
		tree{"op": "remove", "path": pick(d, "/machine/install/wipe", "/machine/absent")},
		tree{"op": "add", "path": "/machine/sysctls", "value": tree{"a.b": "1"}},
		tree{"op": "test", "path": "/cluster/clusterName", "value": pick(d, "demo", "wrong")},
		tree{"op": "copy", "from": "/cluster/clusterName", "path": "/cluster/network/dnsDomain"},
		tree{"op": "add", "path": "/machine/nodeLabels", "value": tree{"a~b": "c"}},
		tree{"op": "replace", "path": "/machine/nodeLabels/node.kubernetes.io~1exclude-from-external-load-balancers", "value": "x"},
	}

	d.Shuffle(len(operations), func(i, j int) { operations[i], operations[j] = operations[j], operations[i] })
	chosen := operations[:1+d.IntN(3)]

	if d.IntN(2) == 0 {
		return dump(chosen)
	}

	text, err := json.Marshal(chosen)
	if err != nil {
		panic(err)
	}

	return string(text)
}

// malformed is a patch that should be refused, or that only looks odd.
func (d dice) malformed() string {
	return pick(d,
		"machine:\n    netwrok: {}\n",
		"machine:\n    kubelet:\n        extraArg: {}\n",
		"machine: []\n",
		"machine:\n    install:\n        wipe: maybe\n",
		"cluster:\n    proxy:\n        disabled: \"true\"\n",
		"apiVersion: v1alpha1\nkind: NoSuchConfig\nname: x\n",
		"apiVersion: v1beta9\nkind: HostnameConfig\n",
		"kind: HostnameConfig\nauto: stable\n",
		"machine:\n    nodeLabels: null\n",
		"machine: null\n",
		"machine:\n    certSANs:\n        - null\n",
		"cluster:\n    apiServer:\n        extraArgs:\n            v: 4\n",
		"machine:\n    kubelet:\n        extraArgs:\n            v: [\"4\", \"5\"]\n",
		"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: b\n",
		"machine:\n    network:\n        interfaces:\n            - interface: eth0\n              vlans:\n                  - vlanId: abc\n",
		"",
		"# only a comment\n",
		"---\n---\n",
		"just text\n",
		"machine:\n    sysctls:\n        a.b: 1\n",
		"machine:\n    time:\n        bootTimeout: soon\n",
		"machine:\n    type: worker\n",
		"machine: &m\n    certSANs: [x.example.com]\ncluster:\n    apiServer: {certSANs: [y.example.com]}\n",
	)
}
