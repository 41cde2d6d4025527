//! The little DER that certificates and keys need.
//!
//! Certificates are written here and not by a library, because Talos' own have an empty subject, a
//! subject without a common name, and issuers whose bytes must be repeated exactly: Go compares
//! names byte by byte when it builds a chain.

use sha2::{Digest, Sha256};

pub const BOOLEAN: u8 = 0x01;
pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const NULL: u8 = 0x05;
pub const OID: u8 = 0x06;
pub const PRINTABLE_STRING: u8 = 0x13;
pub const UTC_TIME: u8 = 0x17;
pub const GENERALIZED_TIME: u8 = 0x18;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// Returns the tag of a constructed, context-specific element.
pub const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// Writes one element.
pub fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut der = Vec::with_capacity(content.len() + 10);
    der.push(tag);
    match significant {
        [] => der.push(0),
        [short] if *short < 0x80 => der.push(*short),
        long => {
            // At most eight bytes of length, so the count fits.
            der.push(0x80 | u8::try_from(long.len()).unwrap_or(0));
            der.extend_from_slice(long);
        }
    }
    der.extend_from_slice(content);
    der
}

/// Writes an element made of others.
pub fn join<const N: usize>(tag: u8, parts: [&[u8]; N]) -> Vec<u8> {
    tlv(tag, &parts.concat())
}

/// Writes a sequence.
pub fn sequence<const N: usize>(parts: [&[u8]; N]) -> Vec<u8> {
    join(SEQUENCE, parts)
}

/// Writes a set, whose members DER wants in the order of their bytes.
pub fn set_of(mut parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.sort();
    tlv(SET, &parts.concat())
}

/// Writes a number that is not negative, given with its highest byte first.
pub fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let needs_zero = significant.first().is_none_or(|first| *first >= 0x80);
    let zero: &[u8] = if needs_zero { &[0] } else { &[] };
    join(INTEGER, [zero, significant])
}

/// Writes a string of whole bytes as bits.
pub fn bits(bytes: &[u8]) -> Vec<u8> {
    join(BIT_STRING, [&[0], bytes])
}

/// Splits the first element off: its tag, its content, and what follows it.
///
/// Only what DER allows is read, and nothing is read past the end.
pub fn split(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = der else { return None };
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Returns the content of the first element, if it has the tag.
pub fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    split(der).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Returns a key identifier: the first 160 bits of the SHA-256 of the key (RFC 7093, method 1).
pub fn key_identifier(public_key: &[u8]) -> Vec<u8> {
    Sha256::digest(public_key)[..20].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        assert_eq!(tlv(NULL, &[]), [5, 0]);
        assert_eq!(tlv(OCTET_STRING, &[7; 0x7f])[..2], [4, 0x7f]);
        assert_eq!(tlv(OCTET_STRING, &[7; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(tlv(OCTET_STRING, &[7; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
    }

    #[test]
    fn numbers_are_short_and_not_negative() {
        assert_eq!(unsigned(&[0, 0]), [2, 1, 0]);
        assert_eq!(unsigned(&[0, 1]), [2, 1, 1]);
        assert_eq!(unsigned(&[0x80]), [2, 2, 0, 0x80]);
    }

    #[test]
    fn what_is_written_is_split_again() {
        for size in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x10000] {
            let mut der = tlv(OCTET_STRING, &vec![9; size]);
            der.push(1);
            let (tag, content, rest) = split(&der).expect("one element");
            assert_eq!((tag, content.len(), rest), (OCTET_STRING, size, &[1][..]));
        }
    }

    #[test]
    fn cut_off_or_indefinite_elements_are_refused() {
        for der in [&[][..], &[4], &[4, 1], &[4, 0x80, 0, 0], &[4, 0x82, 1], &[4, 0x85, 0, 0, 0, 0, 0]] {
            assert_eq!(split(der), None, "{der:?}");
        }
    }
}
