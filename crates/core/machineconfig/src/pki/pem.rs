//! PEM, with the labels that Talos uses.

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_model::Problem;
use zeroize::Zeroizing;

/// The label of certificates.
pub const CERTIFICATE: &str = "CERTIFICATE";

/// One block.
pub struct Block<'t> {
    /// What it says it holds.
    pub label: &'t str,
    /// What it holds; possibly a key.
    pub der: Zeroizing<Vec<u8>>,
}

/// Writes one block, in lines of 64 characters and with a newline at the end.
pub fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(der));
    // Room for all of it, so that no half-written copy is left behind in freed memory.
    let mut pem = Zeroizing::new(String::with_capacity(body.len() + body.len() / 64 + 2 * label.len() + 36));
    pem.push_str(&format!("-----BEGIN {label}-----\n"));
    for (i, c) in body.char_indices() {
        if i > 0 && i % 64 == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem.push_str(&format!("\n-----END {label}-----\n"));
    pem
}

/// Reads all blocks. Text around them is allowed, as Go allows it.
pub fn decode(text: &str) -> Result<Vec<Block<'_>>, Problem> {
    let mut lines = text.lines().map(str::trim_end);
    let mut blocks = Vec::new();
    while let Some(label) = lines.find_map(begins) {
        blocks.push(Block { label, der: body(label, &mut lines)? });
    }
    if blocks.is_empty() {
        return Err(Problem::new("is not PEM text", "give text that begins with `-----BEGIN `"));
    }
    Ok(blocks)
}

fn begins(line: &str) -> Option<&str> {
    line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")
}

fn body<'t>(label: &str, lines: &mut impl Iterator<Item = &'t str>) -> Result<Zeroizing<Vec<u8>>, Problem> {
    // Room for a key of 4096 bits, so that no half-read copy is left behind in freed memory.
    let mut body = Zeroizing::new(String::with_capacity(4096));
    for line in lines {
        if line.strip_prefix("-----END ").and_then(|line| line.strip_suffix("-----")) == Some(label) {
            return STANDARD.decode(body.as_bytes()).map(Zeroizing::new).map_err(|_| damaged());
        }
        if line.contains(':') {
            return Err(Problem::new(
                "is PEM text with headers, such as those of an encrypted key",
                "decrypt the key first: `openssl pkey -in FILE -out FILE`",
            ));
        }
        body.push_str(line);
    }
    Err(Problem::new("is PEM text without its `-----END` line", "copy the whole text again"))
}

fn damaged() -> Problem {
    Problem::new("is PEM text whose body is damaged", "copy the whole text again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for size in [0, 1, 47, 48, 49, 96, 1000] {
            let der = vec![0xa5; size];
            let pem = encode("ED25519 PRIVATE KEY", &der);
            assert!(pem.ends_with("-----END ED25519 PRIVATE KEY-----\n"), "{size}");
            let blocks = decode(&pem).expect("one block");
            assert_eq!((blocks.len(), blocks[0].label), (1, "ED25519 PRIVATE KEY"));
            assert_eq!(*blocks[0].der, der);
        }
    }

    #[test]
    fn lines_are_as_long_as_openssl_writes_them() {
        let pem = encode("X", &[0; 49]);
        let lengths: Vec<usize> = pem.lines().map(str::len).collect();
        assert_eq!(lengths, [17, 64, 4, 15]);
    }

    #[test]
    fn damaged_text_is_refused_without_repeating_it() {
        for text in [
            "",
            "canary",
            "-----BEGIN X-----\ncanary",
            "-----BEGIN X-----\ncanary\n-----END Y-----\n",
            "-----BEGIN X-----\ncanary!\n-----END X-----\n",
            "-----BEGIN X-----\nProc-Type: 4,ENCRYPTED\n\ncanary\n-----END X-----\n",
        ] {
            let problem = decode(text).err().expect(text);
            assert!(!format!("{problem:?}").contains("canary"), "{text}");
        }
    }

    #[test]
    fn text_around_blocks_is_passed_over() {
        let text = "for tests only\n-----BEGIN X-----\r\nAAAA\r\n-----END X-----\nand more\n";
        assert_eq!(decode(text).expect("a block").len(), 1);
    }
}
