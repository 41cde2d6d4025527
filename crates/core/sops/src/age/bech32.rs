//! Bech32 (BIP 173), without its limit on the length: how age writes keys.

const DIGITS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/// Writes bytes with a prefix, in lower case.
pub fn encode(prefix: &str, bytes: &[u8]) -> String {
    let prefix = prefix.to_ascii_lowercase();
    let mut data = regroup(bytes, 8, 5, true).unwrap_or_default();
    data.extend(checksum(&prefix, &data));
    let digits = data.iter().map(|digit| char::from(DIGITS[usize::from(*digit)]));
    format!("{prefix}1{}", digits.collect::<String>())
}

/// Reads bytes with a prefix in the case of the prefix; nothing, if anything is wrong.
pub fn decode(prefix: &str, text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(prefix)?.strip_prefix('1')?;
    let is_upper = prefix.bytes().any(|byte| byte.is_ascii_uppercase());
    let fits = |byte: &u8| if is_upper { !byte.is_ascii_lowercase() } else { !byte.is_ascii_uppercase() };
    if !digits.bytes().all(|byte| fits(&byte)) {
        return None;
    }
    let position = |byte: u8| DIGITS.iter().position(|digit| *digit == byte.to_ascii_lowercase());
    let data: Option<Vec<u8>> =
        digits.bytes().map(|byte| position(byte).and_then(|it| u8::try_from(it).ok())).collect();
    let data = data?;
    let (data, sum) = data.split_at_checked(data.len().checked_sub(6)?)?;
    if sum != checksum(&prefix.to_ascii_lowercase(), data) {
        return None;
    }
    regroup(data, 5, 8, false)
}

fn checksum(prefix: &str, data: &[u8]) -> [u8; 6] {
    let mut all: Vec<u8> = prefix.bytes().map(|byte| byte >> 5).collect();
    all.push(0);
    all.extend(prefix.bytes().map(|byte| byte & 31));
    all.extend(data);
    all.extend([0; 6]);
    let sum = polymod(&all) ^ 1;
    std::array::from_fn(|i| low_byte(sum >> (5 * (5 - i)) & 31))
}

fn polymod(values: &[u8]) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.iter().fold(1, |sum: u32, value| {
        let top = sum >> 25;
        let sum = (sum & 0x01ff_ffff) << 5 ^ u32::from(*value);
        GENERATOR
            .iter()
            .enumerate()
            .fold(sum, |sum, (i, term)| if top >> i & 1 == 1 { sum ^ term } else { sum })
    })
}

/// Turns groups of bits into groups of another size. What is left over must be zero and less than a group.
fn regroup(data: &[u8], from: u32, to: u32, pad: bool) -> Option<Vec<u8>> {
    let (mut bits, mut held) = (0_u32, 0_u32);
    let mut out = Vec::with_capacity(data.len() * 2);
    let mask = (1 << to) - 1;
    for value in data {
        held = held << from | u32::from(*value);
        bits += from;
        while bits >= to {
            bits -= to;
            out.push(low_byte(held >> bits & mask));
        }
        held &= (1 << bits) - 1;
    }
    match (pad, bits) {
        (true, 0) => Some(out),
        (true, _) => {
            out.push(low_byte(held << (to - bits) & mask));
            Some(out)
        }
        (false, _) => (bits < from && held == 0).then_some(out),
    }
}

const fn low_byte(number: u32) -> u8 {
    number.to_le_bytes()[0]
}
