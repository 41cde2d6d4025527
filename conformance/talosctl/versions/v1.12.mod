module ichor.test/conformance/talosctl

go 1.26.0

require (
	github.com/siderolabs/talos v1.12.6
	github.com/siderolabs/talos/pkg/machinery v1.12.6
)

// As in Talos' own go.mod. Left out: its forks of containerd and wgctrl, which are not to be had everywhere
// and matter to the node only.
replace (
	cloud.google.com/go => cloud.google.com/go v0.100.2
	github.com/coredns/coredns => github.com/siderolabs/coredns v1.12.54
	github.com/mdlayher/ethtool => github.com/siderolabs/ethtool v0.4.0-sidero
	github.com/mdlayher/kobject => github.com/smira/kobject v0.0.0-20240304111826-49c8d4613389
)

// A neighbouring release of a module whose pinned release is not to be had everywhere. It serves
// `cluster create`, which no judge uses.
replace github.com/siderolabs/go-blockdevice/v2 => github.com/siderolabs/go-blockdevice/v2 v2.0.25
