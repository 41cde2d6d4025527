//! Any bytes: reading a file of values never panics, what is written reads back as the same, and what is encrypted
//! opens as the same.
#![no_main]

use ichor_sops::{Format, Identity, Policy, Sealed, Tree, seal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte chooses the format.
    let (choice, text) = bytes.split_first().unwrap_or((&0, &[]));
    let format = if *choice % 4 == 0 { Format::Json } else { Format::Yaml };
    let identity = Identity::generate(&mut |buffer| buffer.fill(7)).expect("an identity");
    if let Ok(sealed) = Sealed::parse(text, format) {
        let _ = sealed.open(std::slice::from_ref(&identity));
    }
    let Ok(tree) = Tree::parse(text, format) else { return };
    let written = tree.to_text(format);
    let again = Tree::parse(written.as_bytes(), format).expect("what was written reads back");
    assert_eq!(
        again.to_text(format).as_str(),
        written.as_str(),
        "what was written reads back as another file"
    );
    let policy = Policy { recipients: vec![identity.recipient().clone()], ..Policy::default() };
    let Ok(sealed) = seal(&tree, format, &policy, "now", &mut |buffer| buffer.fill(9)) else { return };
    let sealed = Sealed::parse(sealed.to_text().as_bytes(), format).expect("what was encrypted reads back");
    sealed.open(std::slice::from_ref(&identity)).expect("what was encrypted opens");
});
