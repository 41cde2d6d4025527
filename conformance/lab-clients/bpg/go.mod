// The bpg provider for Terraform, built from its module.
module ichor.test/conformance/bpg

go 1.26.0

require github.com/bpg/terraform-provider-proxmox v0.111.1
