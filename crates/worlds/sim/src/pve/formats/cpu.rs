//! Processor models of VMs.

use std::collections::BTreeMap;

/// Models that QEMU of 9.2 has.
const MODELS: &str = "486 Broadwell Broadwell-IBRS Broadwell-noTSX Broadwell-noTSX-IBRS Cascadelake-Server \
    Cascadelake-Server-noTSX Cascadelake-Server-v2 Cascadelake-Server-v4 Cascadelake-Server-v5 Conroe Cooperlake \
    Cooperlake-v2 EPYC EPYC-Genoa EPYC-Genoa-v2 EPYC-IBPB EPYC-Milan EPYC-Milan-v2 EPYC-Milan-v3 EPYC-Rome \
    EPYC-Rome-v2 EPYC-Rome-v3 EPYC-Rome-v4 EPYC-Rome-v5 EPYC-Turin EPYC-v3 EPYC-v4 EPYC-v5 GraniteRapids \
    GraniteRapids-v2 Haswell Haswell-IBRS Haswell-noTSX Haswell-noTSX-IBRS Icelake-Client Icelake-Client-noTSX \
    Icelake-Server Icelake-Server-noTSX Icelake-Server-v3 Icelake-Server-v4 Icelake-Server-v5 Icelake-Server-v6 \
    Icelake-Server-v7 IvyBridge IvyBridge-IBRS KnightsMill Nehalem Nehalem-IBRS Opteron_G1 Opteron_G2 Opteron_G3 \
    Opteron_G4 Opteron_G5 Penryn SandyBridge SandyBridge-IBRS SapphireRapids SapphireRapids-v2 SapphireRapids-v3 \
    SierraForest SierraForest-v2 Skylake-Client Skylake-Client-IBRS Skylake-Client-noTSX-IBRS Skylake-Client-v4 \
    Skylake-Server Skylake-Server-IBRS Skylake-Server-noTSX-IBRS Skylake-Server-v4 Skylake-Server-v5 Westmere \
    Westmere-IBRS athlon core2duo coreduo host kvm32 kvm64 max pentium pentium2 pentium3 phenom qemu32 qemu64 \
    x86-64-v2 x86-64-v2-AES x86-64-v3 x86-64-v4 a64fx cortex-a35 cortex-a53 cortex-a55 cortex-a57 cortex-a710 \
    cortex-a72 cortex-a76 neoverse-n1 neoverse-n2 neoverse-v1";

/// Flags that a VM may set.
const FLAGS: &str = "aes, amd-no-ssb, amd-ssbd, hv-evmcs, hv-tlbflush, ibpb, md-clear, nested-virt, pcid, pdpe1gb, spec-ctrl, ssbd, virt-ssbd";

/// Returns the names of the models.
pub fn models() -> impl Iterator<Item = &'static str> {
    MODELS.split_ascii_whitespace()
}

/// Checks model and flags.
pub fn check(found: &BTreeMap<String, String>) -> Result<(), String> {
    let Some(model) = found.get("cputype") else { return Ok(()) };
    if let Some(custom) = model.strip_prefix("custom-") {
        return Err(format!("Custom cputype '{custom}' not found\n"));
    }
    if !MODELS.split_ascii_whitespace().any(|known| known == model) {
        return Err(format!("Built-in cputype '{model}' is not defined (missing 'custom-' prefix?)\n"));
    }
    let flags = found.get("flags").map(String::as_str).unwrap_or_default();
    let unknown = flags
        .split(';')
        .map(|flag| flag.trim_start_matches(['+', '-']))
        .any(|flag| !flag.is_empty() && !FLAGS.split(", ").any(|known| known == flag));
    if unknown {
        return Err(format!("VM-specific CPU flags must be a subset of: {FLAGS}\n"));
    }
    Ok(())
}
