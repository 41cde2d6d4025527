# A cluster's machines as people describe them for the bpg provider: an image on every host, and VMs that import
# it, with EFI disk, guest agent and addresses by cloud-init.

terraform {
  required_providers {
    proxmox = { source = "bpg/proxmox" }
  }
}

variable "endpoint" { type = string }
variable "token" { type = string }
variable "schematic" { type = string }
variable "workers" { type = number }

provider "proxmox" {
  endpoint  = var.endpoint
  api_token = var.token
  insecure  = true
}

locals {
  hosts = ["pve1", "pve2", "pve3"]
  machines = merge(
    { for number in range(3) : "cp-${number + 1}" => { vmid = 201 + number, host = local.hosts[number], address = "10.0.0.${11 + number}" } },
    { for number in range(var.workers) : "worker-${number + 1}" => { vmid = 211 + number, host = local.hosts[number % 3], address = "10.0.0.${21 + number}" } },
  )
}

resource "proxmox_virtual_environment_download_file" "talos" {
  for_each     = toset(local.hosts)
  node_name    = each.key
  datastore_id = "local"
  content_type = "import"
  file_name    = "talos-v1.13.9.qcow2"
  url          = "https://factory.talos.dev/image/${var.schematic}/v1.13.9/nocloud-amd64.qcow2"
}

resource "proxmox_virtual_environment_vm" "machine" {
  for_each        = local.machines
  name            = each.key
  description     = "A machine of a Talos cluster"
  tags            = ["lab", "talos"]
  node_name       = each.value.host
  vm_id           = each.value.vmid
  machine         = "q35"
  bios            = "ovmf"
  scsi_hardware   = "virtio-scsi-single"
  stop_on_destroy = true
  boot_order      = ["scsi0"]

  agent {
    enabled = true
    timeout = "1m"
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
      servers = ["10.0.0.1"]
    }
    ip_config {
      ipv4 {
        address = "${each.value.address}/24"
        gateway = "10.0.0.1"
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

output "addresses" {
  value = { for name, machine in proxmox_virtual_environment_vm.machine : name => machine.ipv4_addresses }
}
