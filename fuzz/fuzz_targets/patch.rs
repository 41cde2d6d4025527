//! Any config and patches: patching never panics, its result is bounded and reads back, and reading patches
//! from text or looking at them alone does no harm either.
#![no_main]

use ichor_machineconfig::{Config, Patch, apply, emit, lint, lint::Target};
use ichor_model::{Minor, SourceId};
use libfuzzer_sys::fuzz_target;

/// Aliases add at most 4 MiB of text and 100,000 values to each file, each indented at most 64 deep.
const MOST: usize = 32 * 1024 * 1024;

fuzz_target!(|bytes: &[u8]| {
    // The first byte chooses the release; zero bytes part the config from the patches.
    let (choice, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let talos = Minor::new(1, 8 + u64::from(*choice % 7));
    let mut texts = rest.split(|byte| *byte == 0);
    let config = Config::parse(SourceId(0), texts.next().unwrap_or_default());
    let patches: Result<Vec<Patch>, _> =
        texts.take(4).map(|text| Patch::parse("fuzz", SourceId(1), text)).collect();
    let Ok(patches) = patches else { return };
    for patch in &patches {
        let _ = lint(patch, Target::new(talos));
    }
    let Ok(config) = config else { return };
    let Ok(patched) = apply(&config, &patches, talos) else { return };
    let written = emit(&patched);
    assert!(written.len() <= MOST + bytes.len() * 64, "{} bytes became {}", bytes.len(), written.len());
    let again = Config::parse(SourceId(0), written.as_bytes()).expect("the result reads back");
    assert_eq!(emit(&again), written, "the result reads back as another config");
});
