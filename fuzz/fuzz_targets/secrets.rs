//! Any bytes: reading secrets never panics, a refusal says why, and what is accepted writes and reads back as
//! the same bundle.
#![no_main]

use ichor_machineconfig::{pki::Timestamp, secrets::Bundle};
use libfuzzer_sys::fuzz_target;

/// In 2027, when the seeds' certificates are valid.
const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for read in [Bundle::from_secrets_yaml, Bundle::from_machine_config] {
        match read(text, NOW) {
            Ok(bundle) => reads_back(&bundle),
            Err(flaws) => assert!(!flaws.to_string().is_empty(), "nothing was said"),
        }
    }
});

fn reads_back(bundle: &Bundle) {
    let written = bundle.to_secrets_yaml();
    let again = Bundle::from_secrets_yaml(written.expose(), NOW).expect("what was written reads back");
    assert_eq!(*bundle, again);
    assert_eq!(again.to_secrets_yaml().expose(), written.expose());
}
