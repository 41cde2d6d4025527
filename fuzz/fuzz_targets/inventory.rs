//! Any bytes: reading and resolving an inventory never panics, and every place it names exists.
#![no_main]

use ichor_model::{Findings, World};
use ichor_spec::{Layers, Sources};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte splits the rest into shared defaults and an inventory, so that both layers are met.
    let (split, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let (defaults, own) = rest.split_at(rest.len() * usize::from(*split) / 255 / 4);
    let mut sources = Sources::default();
    let layers = Layers {
        defaults: vec![sources.add("defaults.yaml", defaults)],
        files: vec![sources.add("ichor.yaml", own)],
    };
    let mut findings = Findings::new();
    let Some(inventory) = ichor_spec::load(&sources, &layers, &mut findings) else {
        assert!(findings.has_errors(), "nothing was read and nothing was said");
        return;
    };
    let read_well = !findings.has_errors();
    let resolution = ichor_plan::resolve(&inventory, &World::default());
    if read_well {
        assert_eq!(resolution.desired.is_some(), !resolution.findings.has_errors());
    }
    assert!(resolution.findings.iter().count() <= 20_000 + bytes.len(), "findings multiply");
    findings.extend(resolution.findings);
    for span in
        findings.iter().flat_map(|finding| finding.at.iter().chain(finding.related.iter().map(|(at, _)| at)))
    {
        let file = sources.get(span.source).expect("a finding points into a file that was read");
        assert!(span.start <= span.end && span.end as usize <= file.bytes.len().max(1));
    }
});
