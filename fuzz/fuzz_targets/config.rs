//! Any bytes: reading, judging and writing a machine config never panics, and what is written reads back as
//! the same config.
#![no_main]

use ichor_machineconfig::{Config, emit, emit::emit_redacted, validate, validate::Mode};
use ichor_model::{Minor, SourceId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte chooses the release that judges.
    let (choice, text) = bytes.split_first().unwrap_or((&0, &[]));
    let talos = Minor::new(1, 8 + u64::from(*choice % 7));
    let (config, findings) = Config::read(SourceId(0), text);
    for mode in [Mode::Metal, Mode::Cloud] {
        let judged = validate(&config, talos, mode);
        for at in judged.iter().chain(findings.iter()).filter_map(|finding| finding.at) {
            assert!(at.start <= at.end && at.end as usize <= text.len().max(1), "a place outside the file");
        }
    }
    let _ = emit_redacted(&config);
    if findings.has_errors() {
        return;
    }
    let written = emit(&config);
    let again = Config::parse(SourceId(0), written.as_bytes()).expect("what was written reads back");
    assert_eq!(emit(&again), written, "what was written reads back as another config");
    for mode in [Mode::Metal, Mode::Cloud] {
        let verdicts = [&config, &again].map(|config| validate(config, talos, mode).has_errors());
        assert_eq!(verdicts[0], verdicts[1], "the verdict depends on how a config is written");
    }
});
