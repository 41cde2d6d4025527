module ichor.test/conformance/node

go 1.26.6

require (
	github.com/siderolabs/talos v1.13.9
	github.com/siderolabs/talos/pkg/machinery v1.13.9
)

require github.com/wI2L/jsondiff v0.7.1 // indirect

// As in Talos' own go.mod. Left out: its fork of containerd, which is not to be had; the release that it forked serves.
replace (
	golang.zx2c4.com/wireguard/wgctrl => github.com/siderolabs/wgctrl-go v0.0.0-20251029173431-c4fd5f6a4e72
	github.com/coredns/coredns => github.com/siderolabs/coredns v1.14.53
	github.com/mdlayher/ethtool => github.com/siderolabs/ethtool v0.4.0-sidero
	github.com/mdlayher/kobject => github.com/smira/kobject v0.0.0-20240304111826-49c8d4613389
)

// Neighbouring releases of modules whose pinned release is not to be had everywhere.
replace (
	github.com/fluxcd/pkg/ssa => github.com/fluxcd/pkg/ssa v0.76.0
	github.com/siderolabs/go-kubernetes => github.com/siderolabs/go-kubernetes v0.2.39
	go.etcd.io/etcd/etcdutl/v3 => go.etcd.io/etcd/etcdutl/v3 v3.6.10
)
