module ichor.test/conformance/node/runtime

go 1.26.0

require (
	github.com/containerd/containerd/v2 v2.2.4
	github.com/containernetworking/plugins v1.9.1
)
