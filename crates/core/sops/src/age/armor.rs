//! The armor of age files: base64 in lines of 64 characters between two marks, and nothing else.

use base64::{Engine, engine::general_purpose::STANDARD};

const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";
const COLUMNS: usize = 64;

/// Puts a file into armor.
pub fn wrap(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines = text.as_bytes().chunks(COLUMNS).map(|line| String::from_utf8_lossy(line).into_owned());
    let lines: Vec<String> = lines.collect();
    format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"))
}

/// Takes a file out of its armor; nothing, if it is not as [`wrap`] would write it.
pub fn unwrap(text: &str) -> Option<Vec<u8>> {
    let body = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let body = body.replace("\r\n", "\n");
    let body = body.strip_prefix('\n')?.strip_suffix('\n')?;
    let lines: Vec<&str> = body.split('\n').collect();
    let (last, full) = lines.split_last()?;
    let fits = full.iter().all(|line| line.len() == COLUMNS) && (1..=COLUMNS).contains(&last.len());
    if !fits {
        return None;
    }
    STANDARD.decode(lines.concat()).ok()
}
