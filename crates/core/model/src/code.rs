//! The catalogue of findings. A code never changes its meaning and is never used again.

use std::{fmt, str::FromStr};

/// The stable number of a kind of finding, shown as `ICH-1101`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(u16);

/// What `ichor explain` knows of a code.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// Why it is checked and what to do.
    pub text: &'static str,
}

impl Code {
    /// Returns the number without its prefix.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns the catalogue's entry.
    pub fn entry(self) -> &'static Entry {
        CATALOGUE
            .binary_search_by_key(&self, |entry| entry.code)
            .map(|i| &CATALOGUE[i])
            .expect("codes are made only by the catalogue")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ICH-{:04}", self.0)
    }
}

impl FromStr for Code {
    type Err = ();

    /// Reads `ICH-1101`, `ich1101` or `1101`, if the catalogue has it.
    fn from_str(text: &str) -> Result<Self, ()> {
        let lowered = text.to_ascii_lowercase();
        let digits = lowered.strip_prefix("ich").unwrap_or(&lowered).trim_start_matches(['-', '_']);
        let code = Self(digits.parse().map_err(|_| ())?);
        CATALOGUE.iter().any(|entry| entry.code == code).then_some(code).ok_or(())
    }
}

macro_rules! catalogue {
    ($($number:literal $name:ident $title:literal: $text:literal;)*) => {
        impl Code {
            $(
                #[doc = $title]
                pub const $name: Self = Self($number);
            )*
        }

        /// Every code there is, in order.
        pub const CATALOGUE: &[Entry] = &[
            $(Entry { code: Code::$name, title: $title, text: $text },)*
        ];
    };
}

catalogue! {
    1001 EMPTY "the inventory is empty":
        "A file with no keys describes no cluster. Start from the example in the README, or from `examples/minimal`.";
    1002 TOO_LARGE "the inventory is too large":
        "An inventory file may have 4 MiB, and at most 1,000,000 values in all. Real clusters of a thousand machines need a tenth of that; larger input is nearly always the wrong file. Use groups with `count` instead of one entry per machine, or split the clusters into several inventories.";
    1003 NOT_UTF8 "the inventory is not UTF-8 text":
        "Inventories are UTF-8, with or without a byte-order mark. Save the file as UTF-8 in your editor; `iconv -f latin1 -t utf-8` converts the most common other encoding.";
    1004 SYNTAX "the file is not valid YAML":
        "The file could not be read as YAML, so nothing after this place was looked at. The usual causes are wrong indentation, a missing space after a colon, and a quote that is never closed.";
    1005 TAB "a tab indents a line":
        "YAML forbids tabs in indentation, because editors disagree about their width. Replace them by spaces.";
    1006 TOO_DEEP "values are nested too deeply":
        "No inventory needs more than 64 levels. Input that is deeper is damaged or hostile.";
    1007 ALIAS_BOMB "aliases expand to too much":
        "Anchors and aliases (`&x`, `*x`) are allowed, but all of them together may expand to at most 100,000 values. Repeat less by using `defaults`, `roles` and `like`.";
    1008 MANY_DOCUMENTS "the file has several YAML documents":
        "One file is one document. Remove the `---` line, or put the second document into a file of its own: a directory may hold one inventory per cluster.";
    1009 DUPLICATE_KEY "a key is written twice":
        "YAML readers disagree about which of two equal keys counts. Keep one.";
    1010 UNKNOWN_ALIAS "an alias has no anchor":
        "`*name` repeats what `&name` marked earlier in the same file. Aliases do not reach across files.";
    1011 BAD_KEY "a key is not plain text":
        "Keys are words. Lists, maps and nothing at all cannot be keys here.";
    1012 TAG "a YAML tag is not understood":
        "Tags such as `!vault` or `!!binary` have no meaning in an inventory. Secrets are references: `{env: NAME}`, `{file: path}`, `{sops: path#key}`, `{vault: mount/path#field}` or `{command: [word, ...]}`.";
    1013 MERGE_KEY "a merge key is used":
        "`<<: *x` is not part of YAML 1.2 and readers differ in what it does. Use `defaults`, `roles` or `like: NAME`, which say the same in ichor's own language.";
    1014 NO_INVENTORY "no inventory was found":
        "ichor looks for `ichor.yaml`, then `cluster.yaml`, in the current directory, unless `-f` names a file or a directory.";
    1015 UNREADABLE "a file cannot be read":
        "The path names nothing, something that is no regular file, or a file that could not be opened or read. The finding says which, in the operating system's own words where they are its.";
    1016 TWO_FILES "a section is written in two files":
        "In a directory of `cluster.yaml` and `nodes.yaml` each section may stand in one of the two. Sections shared between clusters belong in `defaults.yaml`.";

    1101 UNKNOWN_KEY "a key is not known":
        "Keys that ichor does not know are errors, because a mistyped key that is quietly ignored is a cluster that is quietly different. The finding names the nearest key it knows. `ichor schema` prints all of them.";
    1102 WRONG_TYPE "a value is of the wrong kind":
        "A map, a list or a single value stands where another kind is wanted.";
    1103 MISSING_KEY "a required key is missing":
        "Some things have no good default: what the cluster is called, which releases it runs, where its Proxmox is, and which machines it has.";
    1104 BAD_BOOLEAN "a switch is neither true nor false":
        "Only `true` and `false` are switches. `yes`, `no`, `on` and `off` mean a switch to some YAML readers and plain text to others.";
    1105 BAD_NUMBER "a number is malformed or out of range":
        "Numbers are plain decimal digits. Leading zeros (octal to some readers), `0x`, underscores and exponents are refused, because other tools that read the same file take them differently.";
    1106 BAD_CHOICE "a word is not among the choices":
        "The finding lists the words that are allowed here.";
    1107 AMBIGUOUS_TEXT "text looks like something else":
        "Unquoted `no`, `yes`, `on`, `off`, `true`, `null` and `~` are a switch or nothing to some YAML readers and text to others, and a name of digits is a number. Quote the word if the text is meant.";
    1108 BAD_SIZE "a size is malformed":
        "Sizes carry a unit: `MiB`, `GiB` or `TiB` (also `M`, `G`, `T`). Proxmox counts in powers of two, so decimal units are refused instead of being converted.";
    1109 BAD_VERSION "a version is malformed":
        "Releases are written with all three numbers, as in `v1.13.9`. A minor alone would leave open what is installed.";
    1110 BAD_ADDRESS "an address or network is malformed":
        "Addresses are `10.0.0.11` or `fd00::11`; networks are `10.0.0.0/24`; an offset from the network's first address is `+10`; `dhcp` leaves it to a DHCP server.";
    1111 BAD_MAC "a MAC address is malformed":
        "MAC addresses are six pairs of hex digits, and unicast: the second digit is even.";
    1112 BAD_VMID "a VMID is malformed or out of range":
        "Proxmox takes VMIDs from 100 to 999999999. A range is `2000-2999`.";
    1113 BAD_NAME "a name is not allowed":
        "Names of machines become VM names, host names and Kubernetes node names at once, so the strictest rule holds: 1 to 63 of a to z, 0 to 9 and `-`, starting and ending with a letter or digit. Proxmox VM names forbid underscores. Names of clusters, which become contexts and tags, follow the same rule.";
    1114 BAD_SECRET "a secret reference is malformed":
        "A secret is never written in an inventory; a reference says where it is: `{env: NAME}`, `{file: path}`, `{sops: path#key}`, `{vault: mount/path#field}` or `{command: [word, ...]}`.";
    1115 BAD_URL "a URL is malformed":
        "Addresses of servers are written with their scheme, as in `https://pve1.example:8006`.";
    1116 SCHEMA_NUMBER "the schema number is not known":
        "`schema` numbers the inventory's language. This ichor reads number 1.";
    1117 CONFLICTING_KEYS "two keys exclude each other":
        "The two keys say different things about the same matter. Keep one.";
    1118 EMPTY_VALUE "a value is empty":
        "An empty text, list or map stands where something is wanted. Remove the key to get the default.";
    1119 BAD_PATH "a path is not usable":
        "Files are named relative to the file that mentions them, with `/` between directories, so that the directory can be moved and shared as one piece.";
    1120 BAD_TAG "a Proxmox tag is not allowed":
        "Proxmox tags are letters, digits, `_`, `-`, `+` and `.`, starting with a letter, a digit or `_`. Proxmox stores them in lower case.";
    1121 BAD_LABEL "a Kubernetes label, annotation or taint is not allowed":
        "Label keys are an optional DNS prefix, `/`, and at most 63 letters, digits, `-`, `_` and `.`; label values are at most 63 of the same. Taints are `Effect` or `value:Effect`, where the effect is NoSchedule, PreferNoSchedule or NoExecute.";
    1130 TOO_LONG "a text is too long":
        "Proxmox takes notes of at most 8192 characters, and ichor adds a line of its own to them.";

    1201 TALOS_UNKNOWN "this Talos release is not supported":
        "ichor knows the machine-config shapes and interfaces of Talos 1.8 to 1.14. Older releases lack what it needs; newer ones may have changed it.";
    1202 VERSION_PAIR "this Talos does not run this Kubernetes":
        "Every Talos release accepts a range of Kubernetes minors and refuses machine configs outside it. `ichor explain versions` prints the table.";
    1203 CONTROL_PLANE_COUNT "the number of control planes is not possible":
        "A cluster has at least one control plane. etcd, which runs on them, needs more than half of its members to agree.";
    1204 HA_COUNT "`ha` needs three or more control planes, an odd number":
        "With one or two control planes the cluster does not survive the loss of one. An even number survives no more losses than the odd number below it, and has one more machine that can fail.";
    1205 EVEN_CONTROL_PLANES "an even number of control planes":
        "Four members need three to agree, so they survive one loss, exactly as three members do, with one more machine to lose. Use an odd number.";
    1206 VERSION_SKEW "machines run releases that are too far apart":
        "Kubernetes lets a kubelet be up to three minors older than the API server, never newer; control planes may be one minor apart during an upgrade.";
    1207 CONTRACT "the machine-config contract does not fit the release":
        "The contract is the Talos minor whose machine-config shape the cluster was made with. It is kept across upgrades, so it may be older than the release, never newer.";
    1208 CLUSTER_TWICE "two clusters have the same name or identity":
        "Clusters in one directory need names of their own, because the identity of every VM follows from the cluster's `id`, which is its name unless it is set. Two clusters with the same `id` would take each other's VMs for theirs.";
    1209 NO_SUCH_CLUSTER "there is no cluster of that name":
        "`--cluster` chooses by `cluster.name` among the inventories found under `-f`.";
    1210 SEVERAL_CLUSTERS "one cluster has to be chosen":
        "This command acts on one cluster at a time. Choose it with `--cluster NAME`.";
    1211 PRERELEASE "a pre-release is used":
        "Alpha, beta and rc releases may change what they write to disk. They are allowed for trying them out.";

    1301 NO_ROLE "a machine has no role":
        "Every entry of `machines` says `role: control-plane` or `role: worker`, inherits it through `like`, or refines a member of a group by carrying its name.";
    1302 LIKE "`like` leads nowhere or in a circle":
        "`like: NAME` copies the settings of another entry of `machines`, not its identity (VMID, address, MAC, host). The entry must exist, and the chain must end.";
    1303 NAME_TWICE "two machines have the same name":
        "Names generated by groups and names of single machines share one namespace: `cp` with `count: 3` makes `cp-1` to `cp-3`.";
    1304 COUNT "the number of machines is out of range":
        "All groups together make at most 20,000 machines, far above what one Kubernetes cluster holds. A counted group can be empty (`count: 0`), but a cluster cannot.";
    1305 GROUP_IDENTITY "a group is given what only one machine can have":
        "A MAC address belongs to one machine. Give it to a member: an entry named like the member refines it.";
    1306 TOO_SMALL "a machine is smaller than Talos allows":
        "Talos refuses to be healthy below its minimum: 1 GiB of memory for a worker, 1848 MiB for a control plane (each may miss 150 MiB), and 6 GiB of disk. 4 GiB for control planes and 20 GiB of disk are sensible beginnings.";
    1307 DISK_NAME "extra disks need distinct names":
        "The name of an extra disk becomes its Talos volume and mount path, so it is unique on a machine, 1 to 34 of a to z, 0 to 9 and `-`, and neither `system` nor a name that Talos uses itself.";
    1308 WHOLE_GIB "a disk is not a whole number of GiB":
        "Proxmox sizes new disks in GiB, and growing a disk by fractions would never compare equal again.";
    1309 NAME_PATTERN "a name pattern makes no distinct names":
        "`name` on a group is a pattern with `{n}` for the number, or `{n:02}` for a padded one.";
    1310 TOO_MANY_DEVICES "a machine has more devices than Proxmox takes":
        "Proxmox takes 31 SCSI disks, 32 network cards and 16 PCI devices on a VM.";
    1311 SECUREBOOT "secure boot lacks what it needs":
        "Secure boot works with `bios: ovmf` and `machine: q35`. ichor adds the TPM and an EFI disk without enrolled keys by itself.";
    1312 CPU_TYPE "this CPU type cannot boot Talos":
        "Talos needs x86-64-v2. `kvm64` and `qemu64`, Proxmox's old defaults, lack it and the machine boots in circles. Use `x86-64-v2-AES` or `host`.";
    1313 RAW_PCI "a raw PCI address needs root's own login":
        "Only root@pam's ticket may set raw addresses; API tokens may use resource mappings. Make a mapping under Datacenter, Resource Mappings, and write `{mapping: NAME}`.";
    1314 SCSI_CONTROLLER "this SCSI controller may hang Talos":
        "With `virtio-scsi-single` the install hangs on some Intel hosts. `virtio-scsi-pci` is the safe choice.";
    1315 AGENT "the guest agent is expected but not in the image":
        "Talos has the guest agent only as the extension `siderolabs/qemu-guest-agent`. Without it Proxmox waits in vain for answers, and addresses given by DHCP cannot be found.";

    1401 VMID_TWICE "two VMs have the same VMID":
        "VMIDs are unique in a Proxmox cluster, across all Kubernetes clusters on it.";
    1402 VMID_RANGE_FULL "a VMID range is used up":
        "The range has fewer free numbers than machines. Numbers of foreign VMs are left out.";
    1403 VMID_RANGES_OVERLAP "VMID ranges overlap":
        "When the ranges of two roles or groups overlap, growing one runs into the other later, at a bad moment.";
    1404 VMID_RESERVED "VMID 9999 is in use by the Proxmox CSI plugin":
        "The CSI plugin keeps its volumes under VMID 9999, a VM that does not exist. A VM with that number would own, and when deleted take along, every volume of the cluster.";
    1405 VMID_FOREIGN "a VMID belongs to a VM that is not ours":
        "A foreign VM is never touched. Choose another number.";
    1406 MAC_TWICE "two network cards have the same MAC address":
        "Two cards with one address on a network lose each other's packets. Leave `mac` out and ichor derives distinct ones.";
    1407 VMID_KEPT "a machine that exists keeps its VMID":
        "A VMID cannot be changed: a VM of another number is another VM. The machine keeps the one it has until it is replaced.";

    1501 OUTSIDE_NETWORK "an address is outside the network":
        "Machines, gateway and VIP are in `network.cidr`, or they cannot reach each other without a router between.";
    1502 ADDRESS_TWICE "an address is given twice":
        "Machines, gateway, VIP, name servers in the same network and load balancer need addresses of their own.";
    1503 RESERVED_ADDRESS "an address is the network's own or its broadcast":
        "The first and the last address of an IPv4 network are not for machines.";
    1504 NETWORK_FULL "the network has too few addresses":
        "Counting up from the group's first address leaves the network before every machine has one.";
    1505 NETWORKS_OVERLAP "networks overlap":
        "Addresses of machines, pods and services are kept apart. With a machine inside the service network Talos finds no suitable node address and etcd waits for ever; nothing says so at first.";
    1506 NETWORK_SIZE "a network is too small or too large":
        "A /31 or /32 has no room for machines and a gateway. Pod networks give every node a /24 (or /64), so they must be larger than that; service networks are at most a /12 for IPv4 and a /108 for IPv6.";
    1507 FAMILY "address families do not fit together":
        "A dual-stack cluster has one network of each family for machines, pods and services, and a machine's addresses are of the families of its network.";
    1508 NO_NETWORK "static addresses need a network":
        "`network.cidr` says where addresses are counted from. Without it machines can only take DHCP: `addressing: dhcp`.";
    1509 NO_GATEWAY "the network has no gateway":
        "Without a gateway machines reach nothing outside their network: no image registry, no time server. For an isolated network with a local mirror this is right.";
    1510 HOST_BITS "a network has host bits set":
        "A network is named by its first address: `10.0.0.0/24`, not `10.0.0.5/24`.";
    1511 VIP "the VIP cannot work":
        "The address that Talos moves between control planes is in their network, belongs to no machine, and exists only once etcd runs. It cannot be the address of a tailscale interface, which answers no ARP.";
    1512 VLAN "a VLAN or MTU is out of range":
        "VLANs are 1 to 4094. An MTU is 1280 to 65520, or 1 for the bridge's own.";
    1513 DHCP_AND_STATIC "DHCP and static addresses contradict each other":
        "`addressing: dhcp` leaves addresses to a lease; a delivery by cloud-init, cidata or META hands out static ones. For a DHCP server that gives fixed addresses by MAC, keep `addressing: static` and set `boot.address: dhcp`.";
    1514 DHCP_ENDPOINT "the endpoint may change":
        "Without a VIP, name or load balancer the endpoint is the first control plane's address. Under a DHCP lease it can change, and certificates and kubeconfigs with it.";
    1515 NO_RESOLVER "no name server is given":
        "Static machines without `network.dns` fall back to public name servers built into Talos.";
    1516 SINGLE_ENDPOINT "several control planes share no endpoint":
        "Without a VIP, name or load balancer the endpoint is the first control plane. When that machine is down the API has no address, though the others run.";

    1601 BOOT_PATH "these boot choices do not fit together":
        "META key 10 is read by the metal platform alone, Proxmox's cloud-init drive by nocloud alone; a machine config on a cidata volume needs that volume.";
    1602 TEMPLATE_IDS "templates have no VMIDs":
        "With `source: template` each role in use needs a template: `templates: {control-plane: 998, worker: 999}`.";
    1603 EXTENSION "an extension name is malformed":
        "Official extensions are named `siderolabs/NAME`. A short name such as `qemu-guest-agent` is completed by ichor.";
    1604 SCHEMATIC "a schematic id excludes what it already fixes":
        "A schematic id stands for a recipe with its extensions and kernel arguments. Write either the id or the recipe.";
    1605 UNVERIFIED "machines are trusted by network alone":
        "With `verify: network` a machine config, with the cluster's secrets, goes to whoever answers at the address. Use it only where nobody else can answer.";
    1606 ARCH "architectures do not fit together":
        "A machine needs a host of its own architecture. `q35`, `i440fx`, `seabios` and secure boot are amd64 only; 64-bit Arm guests have `machine: virt` and `bios: ovmf`.";

    1701 NO_FIT "a machine fits on no host":
        "Capacity is checked before anything is created: processors and memory of each host, times `placement.overcommit`, less what foreign VMs and other machines use.";
    1702 UNKNOWN_HOST "a host is not known":
        "`host`, `pin` and `--lose` name hosts of `proxmox.hosts`, or hosts that the live Proxmox lists.";
    1703 UNKNOWN_PIN "a pin names no machine":
        "`placement.pin` maps machine names to hosts.";
    1704 UNPINNED "strategy `pin` leaves a machine without a host":
        "With `strategy: pin` every machine is placed by hand. Use `spread` to pin some and let the others be placed.";
    1706 SHARED_FATE "control planes share a host":
        "There are fewer hosts with room than control planes, so one host failure may take several. Quorum needs more than half.";
    1707 HOST_OFFLINE "a host is offline":
        "Nothing is placed on a host that does not answer.";
    1708 PIN_CONFLICT "two places name different hosts for a machine":
        "`host` on the machine and `placement.pin` disagree.";
    1709 MOVED "a machine is not where it is pinned":
        "The VM runs on another host than the inventory says, moved by HA or by hand. ichor leaves it there.";

    1710 WORLD "what was observed contradicts itself":
        "A host, a machine or a VMID is listed twice, or a machine stands on a host that nobody saw. Nothing is decided on such ground.";

    1711 CAPACITY_UNSEEN "nobody can tell what a host has":
        "Proxmox tells the processors and the memory of a host to those who may audit it: the token needs `Sys.Audit` on `/nodes/HOST`. Until then the host counts as large enough, unless the inventory says what it has: `proxmox: {hosts: {pve1: {cpu: 16, memory: 64GiB}}}`.";

    1801 ADDON_CONFLICT "add-ons contradict each other":
        "Two add-ons that do the same job fight over it, and some need another one to work.";
    1802 ADDON_RETIRED "an add-on is retired":
        "The project has announced its end and publishes no more fixes. It still installs.";
    1803 PATCH_TARGET "a patch is for nobody":
        "A patch names a role, a group or a machine that the inventory does not have.";

    1901 INSECURE_TLS "the connection to Proxmox is not verified":
        "Whoever sits between can read the API token. Pin the certificate: `tls: {sha256: ...}`; Proxmox shows the fingerprint under Node, Certificates.";
    1903 PLAIN_HTTP "the Proxmox API is addressed over plain HTTP":
        "The API speaks HTTPS on port 8006.";
    1904 BAD_FINGERPRINT "a TLS fingerprint is malformed":
        "A certificate is pinned by its SHA-256 fingerprint: 32 pairs of hex digits with colons between them. Shorter ones are of another kind, such as SHA-1. Proxmox shows the right one under Node, Certificates.";

    2001 CONFIG_KEY "a machine config has a key that Talos does not know":
        "Talos refuses a machine config with keys that its release does not know. The finding names the document, the place and, where there is one, the nearest key.";
    2002 CONFIG_KIND "a machine config has a document that Talos does not know":
        "Every document of a machine config has `apiVersion: v1alpha1` and a kind. Kinds came with releases: the finding says which Talos has it.";
    2003 CONFIG_RELEASE "a machine config does not fit the Talos that reads it":
        "A field or document is newer than the Talos of the machine, or it was replaced by another one. Clusters keep the shape of the contract they were made with; patches are written in that shape.";
    2004 CONFIG_REFUSED "Talos refuses the machine config":
        "The config breaks one of the rules that Talos checks before it takes a config. The finding repeats Talos' own words. Nothing was sent to a machine.";
    2005 PATCH_MISSES "a patch points at nothing":
        "The patch deletes, tests or moves something that the generated config does not have. Look at the config without the patch, and mend the path.";
    2006 JSON_PATCH "a list of operations cannot patch this config":
        "RFC 6902 operations work on configs of one document only, which no config of contract 1.12 or later is. Write the patch as the part of the config that it changes.";
    2007 PATCH_HOSTNAME "a patch names the machine in two ways":
        "From contract 1.12 on a HostnameConfig document names the machine: a name and `auto: off` go together, and `machine.network.hostname` cannot stand beside it. ichor sets the name of every machine itself.";
    2008 CONFIG_MATERIAL "something that the machine configs need was not found":
        "Machine configs hold the content of files and the values of secrets that the inventory only names: patches, CA certificates, manifests, registry passwords, settings of extension services.";
    2009 CONFIG_TOO_EARLY "the machine config cannot be made yet":
        "It needs a value that only the running cluster can give, such as an endpoint whose address comes from a DHCP lease. Give the endpoint a name or a fixed address, or make the config once the machine has its lease.";
    2010 CONFIG_DISK "a disk cannot be mounted as asked":
        "From Talos 1.10 on a disk is a volume, mounted at `/var/mnt/NAME` with the filesystem of your choice. Other paths, and older releases, use the older way, which knows XFS alone.";
    2101 NO_SECRETS "the cluster has no secrets yet":
        "Certificates, tokens and machine configs are made from the cluster's secrets bundle, which is made once and kept for the cluster's whole life. `ichor secrets new` makes it for a new cluster; `ichor secrets import FILE` takes that of a cluster that runs. If there was one, and the file got lost, a generation of the store has it: `ichor secrets restore` brings it back.";
    2102 SECRETS_EXIST "the cluster already has secrets":
        "A secrets bundle is never replaced: machines that run with it would accept nothing made from another one, and nothing could be signed for them again. None is made either while the file is gone or damaged and a generation of the store still has it: `ichor secrets restore` brings it back. For a new cluster of the same name move the old directory away by hand, once you are sure that nobody needs it.";
    2103 BAD_BUNDLE "a secrets bundle cannot be used":
        "A bundle is talosctl's `secrets.yaml`, or the machine config of a control plane. All its parts are needed, the certificate authority that signs something must be valid now, and each key must belong to its certificate. The finding names the key and the line, and never repeats a value. A file that was emptied or damaged is brought back by `ichor secrets restore`, if a generation of the store has it, and replaced by `ichor secrets import FILE`; what was there stays beside it.";
    2104 ENCRYPTED_BUNDLE "a secrets bundle is encrypted in a way that is not read":
        "Bundles are encrypted value by value, as SOPS does it, and read that way too. A file that is encrypted as a whole, as with `age secrets.yaml`, is not read. Decrypt it for the command, for example with `age -d secrets.yaml.age | ichor secrets import -`.";
    2105 OPEN_SECRETS "others can read a file with secrets":
        "Whoever reads a secrets bundle owns the cluster. Files with secrets are for their owner alone: mode 0600.";
    2106 UNRESOLVED_SECRET "a secret cannot be had":
        "The reference names an environment variable that is not set, a file that cannot be read, a value that no encrypted file has, a command that fails or takes too long, a secret that Vault does not give, or a value that is empty or not text. The value itself is never shown.";
    2108 LATE_ADDRESS "an address is known only once a machine runs":
        "A machine that takes any DHCP lease has no address before it runs, so nothing that must name it can be made ahead. Give it a fixed address, or a reservation by its MAC with `boot: {address: dhcp}` and a static address.";
    2109 NOT_OURS "a file was not written by ichor, or was changed since":
        "ichor keeps a list of what it wrote. A file that is not on it, or has other content than it was given, may be somebody's work and is not overwritten unless `--overwrite` says so. Nothing was written.";
    2110 UNWRITABLE "a file cannot be written":
        "The operating system refused, for the reason that is given. Files are written whole or not at all, so running the same command again continues.";
    2111 LEFT_OVER "a rendered file is left over":
        "ichor wrote the file in an earlier run, and the inventory as it is now has no use for it. It may hold secrets. ichor names it and leaves it to you to remove.";
    2112 BAD_MATERIAL "a file that the inventory names cannot be used":
        "Patches, certificates and manifests are regular files of UTF-8 text with at most 1 MiB each. Their paths are relative to the inventory's directory, and none of them is the inventory itself.";
    2113 STORE_KIND "this store cannot be used":
        "A store is a directory, `store: {path: .ichor}`, or a bucket: `s3://bucket/prefix`, `gs://bucket/prefix` or `azure://container/prefix`, with settings such as `?endpoint=https://s3.example:9000` behind it. Who asks comes out of the environment, under the names that the providers' own tools use, and never stands in an inventory. The endpoint is reached over HTTPS, unless it is on this machine or `plain_http=true` says otherwise.";
    2114 BAD_RECORD "ichor's record of the cluster cannot be used":
        "Beside the secrets ichor keeps `cluster.json`, with the machine-config contract that the cluster was made with. It is written by ichor alone. Restore it from a backup, or write the contract into the inventory as `cluster.contract` and remove the file.";
    2115 CERTIFICATE "a certificate cannot be made":
        "The certificate authority has expired, the lifetime is not possible, or the machine gives no randomness. The finding says which.";
    2116 NO_SUCH_SERVER "there is no such server":
        "`--server` takes `endpoint`, `vip`, or the name of a control plane: workers serve no Kubernetes API.";
    2117 RENDER_PLACE "files cannot be rendered here":
        "Rendered files get a directory of their own, because it is closed to others and kept out of git as a whole.";
    2118 SHARED_SECRETS "two clusters share their secrets":
        "Every cluster has a bundle of its own: whoever has access to one would have it to the other, and machines of one could join the other. Name `secrets.file` in each cluster's own inventory, not in shared defaults, or leave it out. Bundles that lie in two files are compared as well: a copy of another cluster's secrets is the same mistake.";
    2119 KEPT_FILE "a file that nobody can make again would be written over":
        "The secrets bundle, the record beside it and the inventory are never written over, not even with `--overwrite`: what is lost with them cannot be made again. Write to another file or directory.";
    2120 IN_GIT "secrets may get into git":
        "Secrets in plain do not belong into a repository, where they stay in its history for ever. ichor's own store keeps itself out of git with a `.gitignore` of its own; a file or directory of yours does not. The finding says which line to add.";
    2121 STORE_PLACE "the store cannot be here":
        "The store gets a `.gitignore` that keeps all of it out of git, and is closed to others. A store that holds the inventory would hide it, so it needs a directory of its own, such as `.ichor`.";
    2122 NO_RECORD "nobody has written down which contract the cluster was made with":
        "A cluster keeps the machine-config shape of the Talos it was made with. That contract is recorded beside the secrets; where there are secrets and no record, ichor takes the contract of the Talos that the inventory names, and an upgrade would change the shape of every machine config. Write the contract into the inventory as `cluster.contract`, or restore `cluster.json` from a backup.";
    2123 AUTHORITY_ENDS "a certificate authority ends":
        "Nothing that an authority signed is accepted once it has ended, and a cluster whose authorities have ended cannot be reached any more. Authorities of Talos last ten years. Rotate them while they are valid: `talosctl rotate-ca` does it for the Talos API and for Kubernetes.";
    2124 BUSY "another run is at work here":
        "Two runs that write to one directory could undo each other's work, so the second one stops before it writes anything, and says who is first. Run the same command again once the first one has ended, or let it wait with `--lock-timeout 5m`. The lock of a run whose process is gone is taken over at once on the same machine; elsewhere, when it has not been renewed for two minutes while somebody waits. `ichor lock break` takes it away from a run that is known to be dead.";
    2125 NO_SUCH_MACHINE "there is no such machine":
        "`--only` takes the names of machines, as `ichor plan` shows them. A name of a group stands for none of its members.";
    2130 SEALED "an encrypted file cannot be opened":
        "The file is encrypted to others, it was changed by somebody without the key, or it uses something of SOPS that is not there. Nothing of such a file is used or shown. Keys are looked for where sops looks: `SOPS_AGE_KEY`, `SOPS_AGE_KEY_FILE`, `sops/age/keys.txt` in your configuration directory, `SOPS_AGE_SSH_PRIVATE_KEY_FILE` and `~/.ssh/id_ed25519`.";
    2131 RECIPIENTS "secrets cannot be encrypted as asked":
        "Secrets are encrypted to the recipients that the inventory names under `secrets.age`, or else to those of `SOPS_AGE_RECIPIENTS`, of the creation rules in `.sops.yaml`, or to yourself. Recipients are public keys of age (`age1...`) or of SSH (`ssh-ed25519 ...`), and you must be one of them, or nothing could be made from the secrets any more.";
    2132 PLAIN_SECRETS "secrets are kept in plain":
        "Whoever reads the file owns the cluster, and so does whoever finds a copy of it in a backup. `ichor secrets encrypt` encrypts it to you and those you name, and removes the plain file.";
    2133 IDENTITY "a key of yours cannot be used":
        "An age identity or an SSH key that stands where sops looks for keys cannot be read, or a new identity could not be written. ichor makes an identity only where there is none, and never writes over a file of that name.";
    2134 EDITED "what was edited cannot be kept":
        "The text in the editor was not what the file must hold, or the editor failed. The encrypted file is as it was, and the plain text that was edited is gone.";
    2135 SECRETS_LOST "the cluster has machines, and its secrets are not here":
        "Machines accept nothing that is made from other secrets than those they were configured with, so `up` makes none while VMs of the cluster exist. The secrets are in an older generation of the store, which `ichor secrets restore` brings back, in the store of whoever made the cluster, in a backup, or in the machine config of a control plane: `ichor secrets import FILE` takes them. An inventory that names another store than before, such as a bucket, has them in the old one, and `ichor secrets import .ichor/NAME/secrets.sops.yaml` moves them; the guide on teams has the steps. If they are gone for good, the machines have to go before there can be others: `destroy` wants `--without-secrets` then: without them nothing but a name says that the VMs are of this inventory.";
    2136 NO_GENERATION "no generation has the secrets that are asked for":
        "After each run that is in its trail, the store keeps what must not be lost as a generation, and has the last ten of them. `ichor secrets restore --list` shows who wrote each of them and when, and whether its secrets are whole and open with a key of yours. Of a cluster that keeps its secrets in a file of its own (`secrets.file`), and of a lab in a directory, generations have none. Secrets that no generation has are in a backup, or in the machine config of a control plane: `ichor secrets import FILE` takes them.";
    2140 STORE_FAILED "the store does not do what is asked":
        "The bucket or the directory that a cluster's store is in was not reached, does not know who asks, or refused. Nothing that is in it was changed. Who asks comes out of the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_REGION` for S3, `GOOGLE_APPLICATION_CREDENTIALS` for Google, `AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY` for Azure, or what the machine that ichor runs on has of its own.";
    2141 STORE_UNFIT "the bucket cannot keep two runs apart":
        "Before a bucket is used for the first time, ichor creates an object twice and replaces it with a version that is old. Both must be refused, or of two runs at once one would write over what the other has written. Some servers accept such conditions and ignore them.";
    2142 STORE_REPLAY "the store shows less than was seen before":
        "Every generation of a store names the one before it, and ichor remembers the newest one that this machine has seen. A store whose newest generation is older, or which has another one of the same number, was restored from a backup, or somebody puts old secrets in place of new ones. Nothing of it is used.";
    2143 STORE_DAMAGED "what is in the store is not what was put there":
        "Everything in a store has a checksum, and names the one before it. An object that has another one was changed by somebody else than ichor. Nothing of it is used.";
    2144 LOCK_LOST "the lock was lost":
        "Whoever changes a cluster holds a lock and renews it every few seconds. One that cannot be renewed for 40 seconds counts as lost, and the run stops before its next step, because somebody else may begin. What was done is done; the next run looks and goes on.";
    2145 LOCK_ILLEGIBLE "the lock cannot be read":
        "What is kept as `lock.json` is not a lock that this ichor knows. It may be of a newer one. If nobody is at work, `ichor lock break` takes it away.";
    2146 AUDIT_BROKEN "the audit trail is broken":
        "Each entry of the trail has the checksum of the one before it, and the newest generation of the store says where the trail ended. The finding names the first entry that does not fit: it, or the one before it, was changed or taken away by somebody else than ichor. A run is refused while the end of the trail is not where the store says that it was; `ichor log accept` goes on all the same, and leaves an entry that says so.";
    3101 UNREACHABLE "a server is not reached":
        "Nothing was changed. The finding says which server and what the operating system or the proxy said. Check the address, the route, the firewall and, for machines on a private network, `proxmox.jump`.";
    3102 UNTRUSTED "a server is not the one that it should be":
        "The certificate that the server showed is not the pinned one, or nobody who is trusted vouches for it. Either it was renewed, or somebody else answers at this address. Compare the fingerprint with what Proxmox shows under Node, System, Certificates, and write it as `proxmox.tls.sha256`.";
    3103 DENIED "Proxmox does not let the token in, or not do this":
        "The token is unknown, has expired, or lacks a privilege on a path. With privilege separation a token has only what was given to the token itself, not what its user has.";
    3104 PVE_RELEASE "this release of Proxmox cannot do what the inventory asks for":
        "Proxmox imports disk images by its API since 8.4. Older ones boot an ISO or clone a template: write `image: {source: iso}` or `image: {source: template}`.";
    3105 HOST_DOWN "a host is not there":
        "A machine is to be made on a host that Proxmox does not know, or that does not answer at the moment.";
    3106 STORAGE_CONTENT "a storage cannot hold this":
        "Every Proxmox storage has a list of content types that it may hold. Disks and cloud-init drives need `images`, downloaded disk images `import`, ISOs and cidata volumes `iso`. The list is changed under Datacenter, Storage, or with `pvesm set`.";
    3107 STORAGE_FULL "a storage has too little room":
        "The disks that are still to be made need more than the storage has free. Thin storages grow later, but a storage that runs full stops every machine on it.";
    3108 VM_NOT_OURS "a VMID is taken":
        "A VM with this number is there, and it is not the machine that the inventory means: number, SMBIOS uuid and ichor's stamp in the notes do not agree, or the stamp names other secrets than those that are here, because another inventory has the same cluster name. It is never changed, stopped or deleted, whatever its name and tags say, unless somebody tells `destroy` with `--without-secrets` that the name is enough.";
    3109 ADDRESS_TAKEN "somebody else answers at a machine's address":
        "Two machines with one address fight for it, and a machine config with secrets would go to whoever wins. Nothing was started.";
    3110 VM_LOCKED "Proxmox keeps a VM locked":
        "A task of Proxmox is at work on the VM, or was broken off. Tokens cannot unlock a VM: if no task runs, unlock it on its host with `qm unlock VMID`.";
    3111 TEMPLATE_MISSING "a template cannot be used":
        "The inventory names a template that somebody else made. It must be there, be a template, and be reachable from the hosts of its machines: a clone goes to another host only if the disks are on a shared storage.";
    3112 FACTORY "the Image Factory refuses":
        "The factory does not know the release, one of the extensions for it, or the schematic that the inventory gives.";
    3113 WORLD_CHANGED "the world has changed since the plan was made":
        "A saved plan is carried out only if planning again gives the same steps. Nothing was changed. Make a new plan and look at it.";
    3114 PROTECTED "the cluster is protected":
        "`cluster.protect: true` refuses `destroy`; lift it in the inventory first, if you are sure. A VM that somebody has protected in Proxmox, though the inventory does not ask for it, is refused too: lift that on its host with `qm set VMID --protection 0`.";
    3115 NO_HOSTS "no host could be chosen":
        "The inventory names no hosts, and the Proxmox that was asked shows none that answers to this token.";
    3116 LEFT_ALONE "something was left alone":
        "ichor saw it and did not touch it. The finding says what it is and why.";
    3117 NO_NETWORK_YET "nodes wait for a pod network":
        "The inventory asks for a CNI that Talos does not bring itself. Nodes register, and are Ready once it runs.";
    3118 NOT_CONFIRMED "the name of the cluster was not confirmed":
        "Deleting machines cannot be undone, so `destroy` asks for the name of the cluster. Without a terminal, `--yes` stands for it.";
    3119 TRUSTED_NETWORK "a machine's key is taken on trust":
        "`boot: {verify: network}` gives machine configs, with their secrets, to whoever answers at the machine's address. The serial console would vouch for the key.";
    3120 BAD_LAB "a lab cannot be used":
        "The file does not hold a lab, or one that was set up for something else. A lab is only a rehearsal: remove the file and begin again.";
    3121 JUMP "the way into a private network cannot be taken":
        "`proxmox.jump` names servers that lead to Proxmox and the machines. One of them is not reached, or does not let ichor in. Nothing was changed. With SSH ichor logs in as `ssh` would, with the keys of an agent and of `~/.ssh`, and asks for passphrases only on a terminal; passwords are not used.";
    3122 NO_TOKEN "there is no API token":
        "ichor asks Proxmox in the name of an API token, which the inventory names as `proxmox.token`. It is written `user@realm!name=secret`.";
    3123 VM_UNSEEN "nobody can tell whose a VM is":
        "A VM could not be asked, most often because its host does not answer, and it may be a machine of this cluster. Nothing is made until that is known: a machine must not be there twice.";
    3124 CONTROL_PLANES_LOST "every control plane of a cluster is gone":
        "Workers of the cluster still run, so it was there once, and the VMs that etcd was on are gone. Nothing is made in their place: it would be another, empty cluster. Bring the VMs back from a backup, or destroy what is left.";
    3125 STALE_MEMBER "etcd counts a machine that is gone":
        "The machine of a control plane is gone, and etcd has not been told: its vote still counts. `up` takes that vote out of etcd before it makes the machine anew, and refuses to while etcd is too weak for that: of the voters that are left more than half must answer, and nobody may be about to join. Bring the other control planes back first. A member that never started and never will is taken out by its id, with `talosctl etcd remove-member`.";
    3130 DRIFT_VM "a VM that runs is not as the inventory says":
        "Somebody changed the VM, or the inventory was changed after it was made. This ichor makes VMs and does not change those that run. Change it in Proxmox, where most options take effect with the next start of the VM, or write into the inventory what is there.";
    3131 DRIFT_RELEASE "another release runs than the inventory names":
        "Talos or Kubernetes was upgraded by hand, or the inventory names a new release. This ichor does not upgrade clusters that run. `talosctl upgrade` and `talosctl upgrade-k8s` do; otherwise write the release that runs into the inventory.";
    3132 DRIFT_IMAGE "another image runs than the inventory stands for":
        "The schematic of an image says which extensions, kernel arguments and META values it has, and a machine tells which one it runs. It is not the one that the inventory stands for now. Extensions come with an upgrade to the installer of the new schematic, which `ichor image id` names.";
    3133 DRIFT_CONFIG "a machine runs with another machine config":
        "The config that the machine runs with was compared with the one that the inventory stands for now. The finding names the places where they differ, and no values, because configs hold secrets. This ichor gives machines their config once. `ichor render` writes the new ones, and `talosctl apply-config` applies them.";
    3134 DRIFT_ADDRESS "a machine has another address than the inventory says":
        "Machines that run keep the address that they were made with. At the new one nobody would ever answer, so `up` and `plan` refuse an inventory that gives a machine another one; where nobody can tell which address a machine has, they only warn. Write the old address into the inventory again. To have the machine made anew at the new address, without what is on its disks, take it out first: drain its node, remove it from etcd if it is a control plane (`talosctl reset` does both), delete the node and the VM, and run `ichor up`.";
    3135 NOT_IN_INVENTORY "a machine of this cluster is not in the inventory":
        "A VM carries the stamp of this cluster, and the inventory has no machine of that name. This ichor removes no single machines, and a machine that is renamed is another machine. Write it into the inventory again, or take it out by hand: drain its node, remove it from etcd if it is a control plane (`talosctl reset` does both), then delete the node and the VM. `ichor destroy` takes it with the rest of the cluster.";
    3140 EXCESS "the token may do more than it needs":
        "`ichor pve role` prints what the inventory needs. The token has a privilege beyond that, on a path where it is of no use. Nothing fails because of it. Whoever gets hold of the token could do more harm than necessary, so take it away.";
    3141 CERTIFICATE_ENDS "the certificate of Proxmox ends":
        "It ends soon, or has ended. Proxmox renews certificates that it made itself about two weeks ahead. One that is pinned by `proxmox.tls.sha256` is replaced by one with another fingerprint then, and ichor refuses it until the inventory says the new one.";
    3142 BRIDGE "a bridge is missing or leads nowhere":
        "A network card is plugged into a bridge by its name, and each host that gets such a machine must have it. A bridge without a port connects the machines of one host with each other and with nobody else.";
    3143 CLOCK "clocks differ":
        "The clock of a host and that of this computer do not agree. Machines begin with their host's clock, and the certificates that ichor makes are valid from now on by this computer's: with clocks far apart, the two refuse each other until a time server has put them right.";
    3144 NO_ROOM_NOW "a host has too little free memory at the moment":
        "The inventory's machines fit on the host as it is counted, and what runs there now leaves less than they need. Proxmox starts a VM all the same as long as there is memory, and the host begins to swap or stops VMs when there is not.";
    3145 CLASH "a MAC address or a name is taken":
        "A VM of somebody else has the MAC address or the name of a machine. MAC addresses of ichor's machines follow from the cluster's id, so a clash means that one was written by hand, or that a VM was copied.";
    3146 CPU_UNABLE "a host's processors cannot do what the CPU type promises":
        "Proxmox does not start a VM whose CPU type promises something that the host's processors lack. Talos itself needs x86-64-v2. `x86-64-v2-AES` runs on all processors of the last fifteen years, and `host` on every one, as long as machines do not move between different hosts.";
    3147 REGISTRY "a registry is not reached":
        "Machines pull the images of Talos and Kubernetes from registries, or from mirrors that the inventory names. This computer, or the jump host behind which the machines are, does not reach one. The machines may have another way; if not, they wait for images and never become ready.";
    3148 LOGIN "a login at Proxmox was refused":
        "`ichor pve setup` logs in once as an administrator, to make an account for everything after that. The password was wrong, the user is not known, or it needs a second factor. Codes of authenticator apps (TOTP) are asked for, or read from `--totp-file`; keys and other factors are not known to ichor. The commands of `ichor pve role` do the same in the shell of a Proxmox host.";
    3149 ACCOUNT "the account on Proxmox cannot be made as asked":
        "Something stands in the way of the account: its token is there and nobody here knows its secret, the secret of another token is kept where its own would go, the administrator may not do what is needed, or Proxmox refused a part. What was done so far stays, and the same command goes on from there.";
    3151 JUMP_KEY "a jump host is not the one that it should be":
        "The key that the host showed is not known, is another than the known one, or was revoked. Known keys are in the files that `ssh` reads, `~/.ssh/known_hosts` in most cases. Compare the fingerprint with what the host itself shows before you trust a new key: whoever stands in between can read nothing of Proxmox and the machines, which have keys of their own, but can keep you away from them.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_unique() {
        assert!(CATALOGUE.windows(2).all(|pair| pair[0].code < pair[1].code));
    }

    #[test]
    fn codes_read_in_the_ways_people_write_them() {
        for text in ["ICH-1101", "ich1101", "1101", "ICH_1101"] {
            assert_eq!(text.parse(), Ok(Code::UNKNOWN_KEY), "{text}");
        }
        assert_eq!("ICH-9999".parse::<Code>(), Err(()));
    }

    #[test]
    fn every_entry_is_explained() {
        for entry in CATALOGUE {
            assert!(entry.text.len() > 30 && entry.text.ends_with('.'), "{}", entry.code);
            assert_eq!(entry.code.entry().title, entry.title);
        }
    }
}
