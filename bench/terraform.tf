# The machines of a cluster as ichor makes them, for the bpg provider: an image on each host that has machines, and
# VMs that import it. Tuned to be quick: no guest agent to wait for, no shutdown before deleting, and no look at the
# length of an image that is there. An image of a killed run that Terraform does not know of is fetched again, which
# would be an error else.

terraform {
  required_providers {
    proxmox = { source = "bpg/proxmox" }
  }
}

variable "endpoint" { type = string }
variable "token" { type = string }
variable "image" { type = string }
variable "hosts" { type = list(string) }
variable "control_planes" { type = number }
variable "workers" { type = number }
variable "numbers" {
  description = "`named`: each VM has the number that is written here; `free`: Proxmox is asked for a free one."
  type        = string
  default     = "named"
}

provider "proxmox" {
  endpoint  = var.endpoint
  api_token = var.token
  insecure  = true

  random_vm_ids = var.numbers == "free"
}

locals {
  used = slice(var.hosts, 0, min(length(var.hosts), max(var.control_planes, var.workers)))
  machines = merge(
    { for number in range(var.control_planes) : "cp-${number + 1}" => { vmid = 2000 + number, host = local.used[number % length(local.used)], address = "127.70.1.${1 + number}" } },
    { for number in range(var.workers) : "worker-${number + 1}" => { vmid = 3000 + number, host = local.used[number % length(local.used)], address = "127.70.2.${1 + number}" } },
  )
}

resource "proxmox_virtual_environment_download_file" "talos" {
  for_each     = toset(local.used)
  node_name    = each.key
  datastore_id = "local"
  content_type = "import"
  file_name    = "talos-v1.13.9.qcow2"
  url          = var.image

  overwrite           = false
  overwrite_unmanaged = true
}

resource "proxmox_virtual_environment_vm" "machine" {
  for_each        = local.machines
  name            = each.key
  node_name       = each.value.host
  vm_id           = var.numbers == "free" ? null : each.value.vmid
  machine         = "q35"
  bios            = "ovmf"
  scsi_hardware   = "virtio-scsi-single"
  stop_on_destroy = true
  boot_order      = ["scsi0"]

  agent {
    enabled = false
  }

  cpu {
    cores = 2
    type  = "x86-64-v2-AES"
  }

  memory {
    dedicated = 4096
  }

  efi_disk {
    datastore_id      = "local-lvm"
    type              = "4m"
    pre_enrolled_keys = false
  }

  disk {
    datastore_id = "local-lvm"
    import_from  = proxmox_virtual_environment_download_file.talos[each.value.host].id
    interface    = "scsi0"
    size         = 20
    iothread     = true
    discard      = "on"
  }

  initialization {
    datastore_id = "local-lvm"
    dns {
      servers = ["127.70.0.1"]
    }
    ip_config {
      ipv4 {
        address = "${each.value.address}/16"
        gateway = "127.70.0.1"
      }
    }
  }

  network_device {
    bridge = "vmbr0"
  }

  operating_system {
    type = "l26"
  }

  serial_device {}
}
